"""A consumer is given up when it gets no answer while another client of the cluster does, and for nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from formats.errors import BrokerUnavailable
from infra.kafka.client import lost_brokers
from infra.kafka.client.lost_brokers import LostBrokers
from infra.runtime.lifecycle import Deadline, Stop

PATIENCE = timedelta(seconds=10)
SILENT = KafkaError._TRANSPORT
TURN = timedelta(milliseconds=5)
HELD_BACK = {"fetch.wait.max.ms": "20000"}


@dataclass
class Client:
    """In place of a consumer."""

    code: int | None = SILENT  # of the error that it gives; None: an answer of a broker
    answers_after: timedelta = timedelta()
    topics: list[str] = field(default_factory=list)  # that it was asked about
    closed: Stop = field(default_factory=Stop)

    def list_topics(self, topic: str, timeout: float) -> object:
        self.topics.append(topic)
        if self.answers_after > timedelta(seconds=timeout):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if (code := self.code) is not None:
            Stop().wait(min(TURN, timedelta(seconds=timeout)))
            raise KafkaException(KafkaError(code))
        return object()

    def close(self) -> None:
        self.closed.set()


@dataclass
class Watch:
    client: Client
    others: list[Client]
    lost_brokers: LostBrokers

    def turn(self) -> bool:
        return self.lost_brokers.suspected(cast(Consumer, self.client), "t")


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Both clients are silent."""
    monkeypatch.setattr(lost_brokers, "ASK_AGAIN", TURN)
    monkeypatch.setattr(lost_brokers, "RECOVERS_WITHIN", 10 * TURN)
    others: list[Client] = [Client()]
    with closing(LostBrokers(lambda: cast(Any, others[-1]), HELD_BACK, check_every=timedelta())) as watched:
        yield Watch(Client(), others, watched)


def until_asked(client: Client, times: int, watch: Watch) -> list[bool]:
    deadline, found = Deadline(PATIENCE), []
    while len(client.topics) < times:
        assert not deadline.expired
        found.append(watch.turn())
    return found


def until_suspected(watch: Watch) -> None:
    deadline = Deadline(PATIENCE)
    while not watch.turn():
        assert not deadline.expired


def test_a_consumer_without_an_answer_is_given_up_while_another_client_has_one(watch: Watch) -> None:
    other = watch.others[0]
    other.code = None
    assert not watch.turn(), "not at the first request that fails"
    until_suspected(watch)
    assert set(watch.client.topics + other.topics) == {"t"}
    assert other.closed.wait(PATIENCE)
    assert not watch.client.closed.is_set(), "that is left to its owner"


@pytest.mark.parametrize("error", [BrokerUnavailable("no token"), KafkaException(KafkaError(KafkaError._FAIL))])
def test_another_client_that_cannot_be_made_at_first_is_made_later(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one without a token: what makes tokens may be away for as long as the brokers."""
    monkeypatch.setattr(lost_brokers, "ASK_AGAIN", TURN)
    monkeypatch.setattr(lost_brokers, "RECOVERS_WITHIN", 10 * TURN)
    made: list[Client | Exception] = [error, error, Client(code=None)]

    def another() -> Consumer:
        found = made.pop(0)
        if isinstance(found, Exception):
            raise found
        return cast(Consumer, found)

    with closing(LostBrokers(another, HELD_BACK, check_every=timedelta())) as watched:
        until_suspected(Watch(Client(), [], watched))
    assert made == []


def test_a_consumer_whose_answers_wait_behind_a_fetch_is_kept(watch: Watch) -> None:
    watch.others[0].code = watch.client.code = None
    watch.client.answers_after = timedelta(seconds=20)
    assert not any(until_asked(watch.client, 3, watch))
    assert watch.others[0].closed.wait(PATIENCE)
    deadline = Deadline(15 * TURN)  # longer than it may be without an answer
    while not deadline.expired:
        assert not watch.turn()


def test_an_outage_of_the_cluster_is_no_reason_and_its_end_is_none_at_once(watch: Watch) -> None:
    other = watch.others[0]
    assert not any(until_asked(watch.client, 30, watch))
    other.code = None
    assert other.closed.wait(PATIENCE)
    watch.client.code = None  # it connects again a little later
    assert not any(until_asked(watch.client, len(watch.client.topics) + 1, watch))
    watch.others.append(Client())
    watch.client.code = SILENT
    assert not any(until_asked(watch.client, 60, watch)), "the answer of before counts no more"


@pytest.mark.parametrize("answer", [None, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_any_answer_of_a_broker_counts(watch: Watch, answer: int | None) -> None:
    watch.client.code = answer
    assert not any(until_asked(watch.client, 5, watch))
    assert watch.others[0].topics == [], "no other client has to ask"


def test_a_record_counts_as_an_answer(watch: Watch) -> None:
    other = watch.others[0]
    other.code = None
    watch.turn()
    assert other.closed.wait(PATIENCE)
    watch.lost_brokers.received()
    watch.others.append(Client())
    assert not any(until_asked(watch.client, 30, watch))


def test_nothing_is_asked_before_it_is_time() -> None:
    client = Client()
    with closing(LostBrokers(lambda: cast(Any, Client()), {}, check_every=PATIENCE)) as watched:
        assert not watched.suspected(cast(Consumer, client), "t")
    assert client.topics == []


def test_the_other_client_ends_with_the_watch(watch: Watch) -> None:
    watch.turn()
    watch.lost_brokers.close()
    assert watch.others[0].closed.wait(PATIENCE)
