"""Reads the current contents of a topic once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import timedelta

from formats.errors import BrokerUnavailable
from infra.kafka.client.properties import for_bounded_reads
from infra.kafka.internal_topics.topic_log import PositionLost, TopicLog
from infra.runtime.lifecycle import Deadline

POLL_TIMEOUT = timedelta(milliseconds=200)
NEVER = timedelta(days=1)


def read_whole(
    properties: Mapping[str, object], topic: str, *, within: timedelta = timedelta(minutes=5)
) -> Sequence[tuple[bytes | None, bytes | None]]:
    """Keys and values of the committed records, in the order of each partition, up to the end offsets at the time of
    the call. Raises BrokerUnavailable, also when there is no such topic."""
    deadline = Deadline(within)
    with closing(
        TopicLog(for_bounded_reads(properties), topic, answer_within=timedelta(seconds=10), check_every=NEVER)
    ) as log:
        facts = log.facts()
        log.read_from(facts, facts.starts)
        records: list[tuple[bytes | None, bytes | None]] = []
        try:
            while any(log.positions[p] < end for p, end in facts.ends.items()):
                if deadline.expired:
                    raise BrokerUnavailable(f"{topic} was not read to its end within {within}")
                records += [(m.key(), m.value()) for m in log.fetch(min(POLL_TIMEOUT, deadline.left))]
        except PositionLost as error:
            raise BrokerUnavailable(f"read {topic}: {error}") from error
        return records
