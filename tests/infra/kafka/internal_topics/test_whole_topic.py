"""A topic read to its end, or for ever, on what the client hands over."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from formats.errors import BrokerUnavailable
from infra.kafka.internal_topics import topic_log, whole_topic
from infra.kafka.internal_topics.topic_log import LogFacts, TopicLog
from infra.kafka.internal_topics.whole_topic import MEMORY_KBYTES, read_each, read_whole

UNREACHABLE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
SOON = timedelta(milliseconds=50)


class Client:
    """In place of the client's consumer: hands over one answer after the other, and then nothing."""

    def __init__(self) -> None:
        self.answers: deque[list[Message]] = deque()
        self.properties: dict[str, object] = {}
        self.is_closed = False
        self.calls: list[str] = []

    def create(self, properties: dict[str, object], **_: Any) -> Client:
        self.properties = properties
        return self

    def assign(self, _: list[TopicPartition]) -> None:
        self.calls.append("assign")

    def list_topics(self, topic: str, **_: Any) -> None:
        self.calls.append(f"ask for {topic}")

    def consume(self, count: int, _: float) -> list[Message]:
        if count == 1:
            return self.answers.popleft() if self.answers else []
        return []

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr(topic_log, "Consumer", made.create)
    monkeypatch.setattr(TopicLog, "facts", lambda _: LogFacts(topic_id="id", starts={0: 5, 1: 0}, ends={0: 8, 1: 0}))
    return made


def record(offset: int) -> Message:
    return Message("t", 0, offset, b"k%d" % offset, b"v%d" % offset)


def end(offset: int) -> Message:
    return Message("t", 0, offset, error=KafkaError(KafkaError._PARTITION_EOF))


def pair(offset: int) -> tuple[bytes, bytes]:
    return b"k%d" % offset, b"v%d" % offset


def test_to_the_end_that_it_had_at_the_begin(client: Client) -> None:
    client.answers += [[record(5)], [], [record(6)], [record(7)], [record(8)]]
    assert read_whole(UNREACHABLE, "t") == list(map(pair, (5, 6, 7)))
    assert len(client.answers) == 1
    assert client.is_closed


def test_leaders_are_asked_for_before_partitions_are_assigned(client: Client) -> None:
    """A client that was connected before the topic existed asks for them once a second."""
    client.answers += [[end(8)]]
    assert list(read_each(UNREACHABLE, "t")) == []
    assert client.calls == ["ask for t", "assign"]


def test_an_end_of_markers_is_an_end(client: Client) -> None:
    client.answers += [[record(5)], [end(8)]]
    assert list(read_each(UNREACHABLE, "t")) == [pair(5)]


def test_records_come_before_the_end_is_reached(client: Client) -> None:
    client.answers += [[record(5)]]
    found = read_each(UNREACHABLE, "t", patience=SOON)
    assert next(found) == pair(5)
    with pytest.raises(BrokerUnavailable, match="t was not read to its end: nothing came"):
        next(found)
    assert client.is_closed
    assert client.properties["queued.max.messages.kbytes"] == MEMORY_KBYTES


def test_patience_begins_anew_with_every_record(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked:
        """Expires when it was asked twice."""

        left = timedelta()

        def __init__(self, _: timedelta) -> None:
            self.times = 0

        @property
        def expired(self) -> bool:
            self.times += 1
            return self.times > 2

    monkeypatch.setattr(whole_topic, "Deadline", Asked)
    client.answers += [[record(5)], [], [record(6)], [], [record(7)]]
    assert len(list(read_each(UNREACHABLE, "t"))) == 3
    client.answers += [[record(5)], [], [], [record(6)]]
    with pytest.raises(BrokerUnavailable, match="nothing came"):
        list(read_each(UNREACHABLE, "t"))


def test_the_whole_is_read_in_time_or_not_at_all(client: Client) -> None:
    client.answers += [[record(5)]]
    with pytest.raises(BrokerUnavailable, match="was not read to its end"):
        read_whole(UNREACHABLE, "t", within=SOON)


def test_a_topic_that_is_followed_has_no_end(client: Client) -> None:
    client.answers += [[record(5)], [record(6)], [record(7)], [end(8)], [], [record(8)], [record(9)]]
    found = read_each(UNREACHABLE, "t", follow=True)
    assert list(islice(found, 5)) == list(map(pair, (5, 6, 7, 8, 9)))
    found.close()  # type: ignore[attr-defined]
    assert client.is_closed


def test_a_position_that_is_gone_is_no_end(client: Client) -> None:
    client.answers += [[Message("t", 0, 5, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))]]
    with pytest.raises(BrokerUnavailable, match="does not hold offset 5 any more"):
        list(read_each(UNREACHABLE, "t"))
