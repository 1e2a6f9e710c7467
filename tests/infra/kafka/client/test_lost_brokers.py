"""A consumer is given up when it gets no answer while another client of the cluster does, and for nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from itertools import chain, repeat
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from infra.kafka.client import lost_brokers
from infra.kafka.client.lost_brokers import LostBrokers
from infra.runtime.lifecycle import Deadline

PATIENCE = timedelta(seconds=10)


class Client:
    """In place of a consumer: gives these answers, the last one for ever. None: an answer of a broker."""

    def __init__(self, *answers: int | None) -> None:
        self.answers = chain(answers, repeat(answers[-1]))
        self.requests: list[tuple[str, float]] = []
        self.closed = False

    def list_topics(self, topic: str, timeout: float) -> object:
        self.requests.append((topic, timeout))
        if (code := next(self.answers)) is not None:
            raise KafkaException(KafkaError(code))
        return object()

    def close(self) -> None:
        self.closed = True


SILENT = KafkaError._TRANSPORT


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_brokers, "ANSWERS_WITHIN", timedelta(milliseconds=20))
    monkeypatch.setattr(lost_brokers, "RECOVERS_WITHIN", timedelta(milliseconds=60))


def verdicts(client: Client, other: Client, *, count: int) -> Sequence[bool]:
    """What the first `count` checks of the consumer find."""
    found: list[bool] = []
    watched = LostBrokers(lambda: cast(Any, other), check_every=timedelta())
    deadline = Deadline(PATIENCE)
    with closing(watched):
        while len(found) < count:
            assert not deadline.expired
            watched.suspected(cast(Consumer, client), "t")  # asks
            assert watched._check is not None
            watched._check.join(PATIENCE.total_seconds())
            found.append(watched.suspected(cast(Consumer, client), "t"))
    return found


def test_a_consumer_without_an_answer_is_given_up_once_another_client_has_one() -> None:
    client, other = Client(SILENT), Client(None)
    assert verdicts(client, other, count=1) == [True]
    assert {topic for topic, _ in client.requests + other.requests} == {"t"}
    assert other.closed
    assert not client.closed, "that is left to its owner"


def test_an_outage_of_the_cluster_is_no_reason() -> None:
    assert verdicts(Client(SILENT), Client(KafkaError._ALL_BROKERS_DOWN), count=3) == [False] * 3


def test_a_consumer_that_connects_again_is_kept() -> None:
    class Recovers(Client):
        def list_topics(self, topic: str, timeout: float) -> object:
            if other.closed:
                return object()
            return super().list_topics(topic, timeout)

    other = Client(None)
    assert verdicts(Recovers(SILENT), other, count=1) == [False]
    assert other.closed, "the cluster did answer the other one"


@pytest.mark.parametrize("answer", [None, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_any_answer_of_a_broker_counts(answer: int | None) -> None:
    other = Client(SILENT)
    assert verdicts(Client(answer), other, count=1) == [False]
    assert other.requests == [], "nobody else has to ask"


def test_nothing_is_asked_while_messages_arrive() -> None:
    client = Client(SILENT)
    with closing(LostBrokers(lambda: cast(Any, Client(None)), check_every=PATIENCE)) as watched:
        watched.received()
        assert not watched.suspected(cast(Consumer, client), "t")
    assert client.requests == []


class Blocks(Client):
    def __init__(self) -> None:
        super().__init__(SILENT)
        self.entered, self.may_return = threading.Event(), threading.Event()

    def list_topics(self, topic: str, timeout: float) -> object:
        self.entered.set()
        self.may_return.wait(PATIENCE.total_seconds())
        return super().list_topics(topic, timeout)


@pytest.fixture
def blocks() -> Iterator[Blocks]:
    client = Blocks()
    yield client
    client.may_return.set()


def test_close_waits_for_the_request_that_uses_the_consumer(blocks: Blocks) -> None:
    """The consumer is closed next, and a client that is closed during a request crashes the process."""
    watched = LostBrokers(lambda: cast(Any, Client(None)), check_every=timedelta())
    watched.suspected(cast(Consumer, blocks), "t")
    assert blocks.entered.wait(PATIENCE.total_seconds())
    closer = threading.Thread(target=watched.close)
    closer.start()
    assert not watched.suspected(cast(Consumer, blocks), "t")
    assert closer.is_alive()
    blocks.may_return.set()
    closer.join(PATIENCE.total_seconds())
    assert not closer.is_alive()
    assert len(blocks.requests) == 1, "it asks no further once it is stopped"
