"""Reads a topic from its first record to its end, or for ever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta

from formats.errors import BrokerUnavailable
from infra.kafka.client.properties import for_bounded_reads
from infra.kafka.internal_topics.topic_log import PositionLost, TopicLog
from infra.runtime.lifecycle import Deadline

POLL_TIMEOUT = timedelta(milliseconds=200)
ANSWER_WITHIN = timedelta(seconds=10)
CHECK_EVERY = timedelta(seconds=30)  # that the topic is still the same, while it is followed
NEVER = timedelta(days=1)
MEMORY_KBYTES = 16 << 10  # of fetched records that wait to be read

KeyValue = tuple[bytes | None, bytes | None]


def read_whole(
    properties: Mapping[str, object], topic: str, *, within: timedelta = timedelta(minutes=5)
) -> Sequence[KeyValue]:
    """Keys and values of the committed records, in the order of each partition, up to the end offsets at the time of
    the call. Raises BrokerUnavailable, and TargetError when there is no such topic."""
    deadline, is_late, found = Deadline(within), False, list[KeyValue]()
    for some in _to_end(properties, topic, within):
        if is_late:
            raise BrokerUnavailable(f"{topic} was not read to its end within {within}")
        found += some
        is_late = deadline.expired
    return found


def read_each(
    properties: Mapping[str, object], topic: str, *, follow: bool = False, patience: timedelta = timedelta(minutes=1)
) -> Iterator[KeyValue]:
    """As `read_whole`, one record after the other and in bounded memory. `follow`: never ends. `patience`: without
    progress, until the end offsets are reached; time that the caller takes does not count."""
    for some in _for_ever(properties, topic) if follow else _to_end(properties, topic, patience):
        yield from some


def _to_end(properties: Mapping[str, object], topic: str, patience: timedelta) -> Iterator[Sequence[KeyValue]]:
    """What each fetch returned, perhaps nothing."""
    with closing(_log(for_bounded_reads(properties), topic, check_every=NEVER)) as log:
        facts = log.facts()
        log.read_from(facts, facts.starts)
        limit = Deadline(patience)
        while any(log.positions[p] < end for p, end in facts.ends.items()):
            if limit.expired:
                raise BrokerUnavailable(
                    f"{topic} was not read to its end: nothing came for {patience}; is the broker away, or a "
                    "transaction open?"
                )
            before = dict(log.positions)
            yield _fetched(log, topic, min(POLL_TIMEOUT, limit.left))
            if log.positions != before:
                limit = Deadline(patience)


def _for_ever(properties: Mapping[str, object], topic: str) -> Iterator[Sequence[KeyValue]]:
    with closing(_log(properties, topic, check_every=CHECK_EVERY)) as log:
        facts = log.facts()
        log.read_from(facts, facts.starts)
        while True:
            yield _fetched(log, topic, POLL_TIMEOUT)


def _log(properties: Mapping[str, object], topic: str, *, check_every: timedelta) -> TopicLog:
    given = {**properties, "queued.max.messages.kbytes": MEMORY_KBYTES}
    return TopicLog(given, topic, answer_within=ANSWER_WITHIN, check_every=check_every)


def _fetched(log: TopicLog, topic: str, timeout: timedelta) -> Sequence[KeyValue]:
    try:
        return [(message.key(), message.value()) for message in log.fetch(timeout)]
    except PositionLost as error:
        raise BrokerUnavailable(f"read {topic}: {error}") from error
