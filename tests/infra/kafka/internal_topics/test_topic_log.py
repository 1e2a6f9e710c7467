"""What a reader of a log makes of the messages that the client hands over in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from formats.errors import BrokerUnavailable, TargetError
from infra.kafka.client.lost_brokers import LostBrokers
from infra.kafka.internal_topics import topic_log
from infra.kafka.internal_topics.topic_log import LogFacts, PositionLost, TopicLog

FACTS = LogFacts(topic_id="id", starts={0: 0}, ends={0: 9})
NOW = timedelta()
UNREACHABLE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


class Client:
    """In place of the client's consumer: hands over what is queued, and forgets it when it is assigned anew."""

    def __init__(self, *_: object, **__: object) -> None:
        self.queued: list[Message] = []
        self.assigned: list[TopicPartition] = []
        self.is_closed = False

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned, self.queued = partitions, []

    def consume(self, count: int, _: float) -> list[Message]:
        some, self.queued = self.queued[:count], self.queued[count:]
        return some

    def list_topics(self, *_: object, **__: object) -> object:
        return object()

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr(topic_log, "Consumer", lambda *_, **__: made)
    return made


@pytest.fixture
def log(client: Client) -> Iterator[TopicLog]:
    log = TopicLog(UNREACHABLE, "t", answer_within=timedelta(seconds=1), check_every=timedelta(days=1))
    with closing(log):
        log.read_from(FACTS, {0: 5})
        yield log


def record(offset: int) -> Message:
    return Message("t", 0, offset, b"key", b"value")


def error(code: int, offset: int) -> Message:
    return Message("t", 0, offset, error=KafkaError(code))


def end(offset: int) -> Message:
    return error(KafkaError._PARTITION_EOF, offset)


def fetched(log: TopicLog, client: Client, messages: Sequence[Message]) -> list[int | None]:
    client.queued += messages
    return [message.offset() for message in log.fetch(NOW)]


def test_records_and_the_end_after_them_move_the_position(log: TopicLog, client: Client) -> None:
    assert fetched(log, client, [record(5), record(6), end(8)]) == [5, 6]
    assert log.positions == {0: 8}


@pytest.mark.parametrize("before", [[record(5)], [record(5), end(6)], [end(6)]], ids=["record", "both", "end"])
def test_records_that_come_with_a_refusal_are_read_again(log: TopicLog, client: Client, before: list[Message]) -> None:
    """They are dropped with it, so no position may lie behind them."""
    with pytest.raises(TargetError, match="allow READ"):
        fetched(log, client, [*before, error(KafkaError.TOPIC_AUTHORIZATION_FAILED, -1001)])
    assert log.positions == {0: 5}
    log.fetch(NOW)
    assert [one.offset for one in client.assigned] == [5]


def test_records_that_come_with_a_lost_position_move_nothing(log: TopicLog, client: Client) -> None:
    with pytest.raises(PositionLost):
        fetched(log, client, [record(5), end(6), error(KafkaError.OFFSET_OUT_OF_RANGE, 6)])
    assert log.positions == {0: 5}


def test_a_log_whose_clients_got_no_answer_goes_on_with_others(log: TopicLog, client: Client) -> None:
    """A client whose broker named no broker may never send a request again."""
    assert fetched(log, client, [record(5)]) == [5]
    silent = log._admin
    with pytest.raises(BrokerUnavailable):
        log.facts()
    assert log._admin is silent, "perhaps the broker is away"
    with pytest.raises(BrokerUnavailable):
        log.facts()
    assert log._admin is not silent
    assert [one.offset for one in client.assigned] == [6], "goes on where it was"


def test_a_log_whose_consumer_lost_every_broker_goes_on_with_another(
    log: TopicLog, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `fetch` would wait for ever: there is no request that fails."""
    assert fetched(log, client, [record(5)]) == [5]
    monkeypatch.setattr(LostBrokers, "suspected", lambda *_: True)
    assert fetched(log, client, []) == []
    assert [one.offset for one in client.assigned] == [6], "goes on where it was"
    assert fetched(log, client, [record(6)]) == [6]


def test_a_log_goes_on_with_its_clients_where_no_other_can_be_made_now(
    log: TopicLog, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as without a token: what makes tokens may be away for as long as the brokers."""
    assert fetched(log, client, [record(5)]) == [5]

    def refuses(*_: object, **__: object) -> object:
        raise BrokerUnavailable("no token")

    monkeypatch.setattr(topic_log, "Consumer", refuses)
    with pytest.raises(BrokerUnavailable, match="no token"):
        log.reconnect()
    assert not client.is_closed
    monkeypatch.setattr(LostBrokers, "suspected", lambda *_: True)
    assert fetched(log, client, []) == []
    assert fetched(log, client, [record(6)]) == [6]
    monkeypatch.setattr(topic_log, "Consumer", lambda *_, **__: client)
    assert fetched(log, client, []) == []
    assert client.is_closed, "the former one"
