"""A consumer's client that loses every broker it knew, at a moment of the test's choice."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from infra.kafka.client import lost_brokers
from infra.kafka.client.lost_brokers import LostBrokers

SOON = timedelta(milliseconds=100)


@dataclass(slots=True)
class Loss:
    happened: bool = False


def first_client_of_a_member(monkeypatch: pytest.MonkeyPatch) -> Loss:
    """Once it has `happened`, the first client created for a member gets no answer to a request, and later ones do."""
    loss, created = Loss(), []

    class Lost(Consumer):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            created.append(self)

        def list_topics(self, *arguments: Any, **options: Any) -> Any:
            if loss.happened and self is created[0]:
                raise KafkaException(KafkaError(KafkaError._TRANSPORT))
            return super().list_topics(*arguments, **options)

    where = "infra.kafka.consumer.group_member"
    monkeypatch.setattr(f"{where}.Consumer", Lost)
    monkeypatch.setattr(f"{where}.LostBrokers", partial(LostBrokers, check_every=SOON))
    monkeypatch.setattr(lost_brokers, "ASK_AGAIN", SOON)
    monkeypatch.setattr(lost_brokers, "RECOVERS_WITHIN", SOON)
    return loss
