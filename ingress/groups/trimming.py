"""Which pages of the offset map have no record at the target any more. Pure.

    pages      0 ────── 500 ────── 1000 ────── 1500 ──>      log start: 1000
               goes     goes       stays       stays

1. A page goes when the next one begins at the log start or below it. So the page with the log start stays, and so does
   the last page before it when the log start lies between two: with it, what was delivered differs from what is not
   known.
2. Of a destination that was deleted, or created again, every page goes. The last page of any other stays.
3. What is not known changes nothing: a destination without a topic id here, a partition without a log start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from formats.messages.map_key import MapKey
from formats.messages.offset_map_index import PageIndex
from infra.contracts.cluster import TopicPartition


@dataclass(frozen=True, slots=True)
class MapTrim:
    """Pages of one partition that go."""

    key: MapKey
    starts: tuple[int, ...]  # not empty
    first_start: int | None  # of the first page that stays; None: none does


def trims(
    maps: Mapping[MapKey, PageIndex],
    log_starts: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str | None],
    known: Collection[MapKey],
) -> Iterator[MapTrim]:
    """`topic_ids`: by destination, as the cluster has it now; None: there is no such topic. `log_starts`: of those
    incarnations. `known`: maps that an earlier run had found stale already. Of any other, no incarnation is taken
    for an earlier one: it may be the next."""
    for key, index in maps.items():
        topic = key.delivery.destination_topic
        if topic not in topic_ids:
            continue
        if is_stale(key, topic_ids):
            if key in known:
                yield MapTrim(key, tuple(index.starts), None)
            continue
        log_start = log_starts.get(TopicPartition(topic, key.delivery.source.partition))
        count = 0 if log_start is None else pages_below(index, log_start)
        if count:
            yield MapTrim(key, tuple(islice(index.starts, count)), index.start(count))


def is_stale(key: MapKey, topic_ids: Mapping[str, str | None]) -> bool:
    """Whether its destination is known to be gone, or to be another one. `topic_ids`: as above."""
    return topic_ids.get(key.delivery.destination_topic, key.destination_id) != key.destination_id


def pages_below(index: PageIndex, log_start: int) -> int:
    """How many of the first pages are not needed with this log start."""
    return max(index.starting_up_to(log_start) - 1, 0)
