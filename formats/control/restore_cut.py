"""The cut of a restore to a moment: where each partition of a source ended then, by one generation of its watermarks.

A restore writes it to its checkpoint topic before its first record, and keeps to it: the same command, given again when
that generation was thinned, ends at the same offsets. The value is gzip'd JSON; of a partition that did not exist there
is no end, and one of which it is not known has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from formats.codec import VERSION, load, malformed, parse_time
from formats.control.packed import pack, unpack
from formats.control.watermarks import SourceWatermarks

_WHAT = "the cut of a restore"


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTopic:
    topic_id: str  # empty where brokers have none
    ends: tuple[int | None, ...]  # next offset of each partition: what was committed lies before it; None: not known
    settled: frozenset[int]  # numbers of partitions in which no transaction was open at `Cut.settled_at`


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    region: str
    wanted_at: datetime  # UTC; the moment that was asked for
    generation: int  # number of the watermarks
    observed_at: datetime  # UTC; when their observation began
    settled_at: datetime | None  # UTC; None: no partition is settled
    next_observed_at: datetime | None  # UTC; of the generation after them; None: there was none
    is_transactional: bool  # the generation was chosen for this: all partitions are settled
    topics: Mapping[str, CutTopic]  # the selected ones

    @property
    def moment(self) -> datetime:
        """As of which everything else is restored: UTC."""
        return self.settled_at if self.is_transactional and self.settled_at is not None else self.wanted_at

    def end(self, topic: str, partition: int) -> int | None:
        """Next offset: 0 of what did not exist; None when it is not known."""
        found = self.topics.get(topic)
        return 0 if found is None or partition >= len(found.ends) else found.ends[partition]

    def unsettled(self, is_selected: Callable[[str, int], bool]) -> Iterator[tuple[str, int]]:
        """Topics and numbers of the selected partitions of which transactions may be split."""
        for name, topic in sorted(self.topics.items()):
            for number in range(len(topic.ends)):
                if number not in topic.settled and is_selected(name, number):
                    yield name, number


def cut_topics(found: SourceWatermarks, is_selected: Callable[[str], bool]) -> Mapping[str, CutTopic]:
    """What was committed ends at the last stable offset."""
    return {
        name: CutTopic(topic_id=one.topic_id, ends=one.stable, settled=one.settled)
        for name, one in found.topics.items()
        if is_selected(name)
    }


def encode_cut(cut: Cut) -> bytes:
    return pack(
        {
            "v": VERSION,
            "region": cut.region,
            "wanted_at": cut.wanted_at.isoformat(),
            "generation": cut.generation,
            "observed_at": cut.observed_at.isoformat(),
            "settled_at": _iso(cut.settled_at),
            "next_observed_at": _iso(cut.next_observed_at),
            "transactional": cut.is_transactional,
            "topics": {
                name: {"id": one.topic_id, "ends": list(one.ends), "settled": sorted(one.settled)}
                for name, one in cut.topics.items()
            },
        }
    )


def decode_cut(data: bytes) -> Cut:
    """Raises MalformedEvent, also for another version."""
    text = unpack(_WHAT, data)
    with malformed(_WHAT, text):
        message = load(text)
        return Cut(
            region=str(message["region"]),
            wanted_at=parse_time(message["wanted_at"]),
            generation=int(message["generation"]),
            observed_at=parse_time(message["observed_at"]),
            settled_at=_at(message["settled_at"]),
            next_observed_at=_at(message["next_observed_at"]),
            is_transactional=bool(message["transactional"]),
            topics={str(name): _topic(one) for name, one in message["topics"].items()},
        )


def _topic(message: Mapping[str, Any]) -> CutTopic:
    return CutTopic(
        topic_id=str(message["id"]),
        ends=tuple(None if end is None else int(end) for end in message["ends"]),
        settled=frozenset(map(int, message["settled"])),
    )


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _at(text: str | None) -> datetime | None:
    return None if text is None else parse_time(text)
