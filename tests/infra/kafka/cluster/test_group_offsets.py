"""Which client asks for a group's offsets after the last one got no answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from formats.errors import BrokerUnavailable, TargetError
from infra.contracts.cluster import TopicPartition
from infra.kafka.cluster import group_offsets
from infra.kafka.cluster.group_offsets import GroupOffsets

PARTITIONS = [TopicPartition("t", 0)]


class Clients:
    """In place of the client's consumer; the next one to be created fails with `code`."""

    def __init__(self) -> None:
        self.created = 0
        self.code = KafkaError._TIMED_OUT

    def __call__(self, *_: object, **__: object) -> Clients:
        self.created += 1
        return self

    def committed(self, partitions: Sequence[ClientPartition], timeout: float) -> Sequence[ClientPartition]:
        raise KafkaException(KafkaError(self.code))

    def close(self) -> None: ...


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Clients:
    made = Clients()
    monkeypatch.setattr(group_offsets, "Consumer", made)
    return made


@pytest.mark.parametrize(
    ("code", "expected", "created"),
    [
        (KafkaError._TIMED_OUT, BrokerUnavailable, 2),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, TargetError, 1),  # a broker did answer
    ],
)
def test_a_client_without_an_answer_is_replaced(
    clients: Clients, monkeypatch: pytest.MonkeyPatch, code: int, expected: type[Exception], created: int
) -> None:
    monkeypatch.setattr(group_offsets, "REPLACED_AFTER", timedelta())
    clients.code = code
    ask_twice(expected)
    assert clients.created == created


def test_a_young_client_is_kept(clients: Clients) -> None:
    """Perhaps the broker is away."""
    ask_twice(BrokerUnavailable)
    assert clients.created == 1


def ask_twice(expected: type[Exception]) -> None:
    with closing(GroupOffsets({"group.id": "g"}, timeout=timedelta(seconds=1))) as offsets:
        for _ in range(2):
            with pytest.raises(expected):
                offsets.committed(PARTITIONS)
