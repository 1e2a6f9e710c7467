"""The judge of end-to-end runs: did every committed record arrive, unaltered and in order?

It shares no code with the product: it reads topics with a plain client of its own and archive keys with an expression
of its own, so that no mistake of the product can hide itself here.

    source, read_committed ──┐                       index of the next record wanted in the source
                             ├─ judge_target ──>     0 1 2 3 4 5 | 3 4 5 6 7 8 …      one rewind, by three records
    target, read_uncommitted ┘
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its stubs hide what it documents

SHOWN = 120  # characters of a record in a message
ASK_SECONDS = 10.0
SETTLING = (  # a topic made just now, a broker that came back
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)


class Content(NamedTuple):
    """All of a record that must arrive."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: tuple[int, int]  # type, milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One partition, read to its end."""

    offsets: tuple[int, ...] = ()
    records: tuple[Content, ...] = ()
    next_offset: int = 0  # behind the last stable one


class Charge(StrEnum):
    LOST = "records were skipped"
    SHORT = "the last records are missing"
    REPEATED = "records came again, further back or more often than a crash explains"
    FOREIGN = "a record that the source does not have"
    GAP = "offsets that no segment covers"
    KEY = "a key that is no segment's"


class Guilty(AssertionError):
    def __init__(self, charge: Charge, detail: str) -> None:
        self.charge = charge
        super().__init__(f"{charge}: {detail}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Not guilty: how the target reads as the source."""

    rewinds: int
    repeated: int  # records delivered more than once, in all


# --- topics ----------------------------------------------------------------------------------------------------------


def content(message: Message) -> Content:
    pairs: Any = message.headers() or ()
    headers = tuple((name, _as_bytes(value)) for name, value in pairs)
    return Content(_as_bytes(message.key()), _as_bytes(message.value()), headers, message.timestamp())


def _as_bytes(value: object) -> bytes | None:
    assert value is None or isinstance(value, bytes)
    return value


class Reader:
    """Reads a topic on and on, from its beginning. `read` may be called again and again; `logs` is all that came."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, isolation: str) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "judge",  # never joined: partitions are assigned by hand and nothing is committed
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        self._records: dict[int, list[tuple[int, Content]]] = {p: [] for p in range(partitions)}
        self._ends: dict[int, int] = {}
        self._consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in self._records])

    def read(self, seconds: float = 0.1) -> None:
        """Take what is there. Raises RuntimeError for what no reader should see."""
        for message in self._consumer.consume(5000, seconds):
            error, partition, offset = message.error(), message.partition(), message.offset()
            if error is None:
                assert partition is not None
                assert offset is not None
                self._records[partition].append((offset, content(message)))
            elif error.code() == KafkaError._PARTITION_EOF:
                assert partition is not None
                assert offset is not None
                self._ends[partition] = offset
            elif (
                error.code() == KafkaError._AUTO_OFFSET_RESET and partition is not None and not self._records[partition]
            ):
                # records were deleted between the client's requests for the beginning and for what is there
                beginning = [TopicPartition(self._topic, partition, OFFSET_BEGINNING)]
                self._consumer.incremental_unassign(beginning)
                self._consumer.incremental_assign(beginning)
            elif not error.retriable() and error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
                raise RuntimeError(f"cannot read {self._topic}: {error}")

    @property
    def at_end(self) -> bool:
        """Every partition has reported where it ends."""
        return self._ends.keys() == self._records.keys()

    def count(self) -> int:
        return sum(map(len, self._records.values()))

    def last(self, partition: int) -> Content | None:
        records = self._records[partition]
        return records[-1][1] if records else None

    def logs(self) -> Mapping[int, Log]:
        return {
            p: Log(
                offsets=tuple(offset for offset, _ in records),
                records=tuple(each for _, each in records),
                next_offset=self._ends.get(p, 0),
            )
            for p, records in self._records.items()
        }

    def close(self) -> None:
        self._consumer.close()


def read_topic(
    bootstrap: str, topic: str, partitions: int, *, isolation: str = "read_committed", turns: int = 600
) -> Mapping[int, Log]:
    """The whole topic as it is now. Raises RuntimeError when its ends are not reached in `turns` tenths of a second."""
    reader = Reader(bootstrap, topic, partitions, isolation=isolation)
    try:
        for _ in range(turns):
            reader.read()
            if reader.at_end:
                return reader.logs()
        raise RuntimeError(f"the end of {topic} was not reached")
    finally:
        reader.close()


def ends(bootstrap: str, topic: str, partitions: int, settles_within: float = ASK_SECONDS) -> Mapping[int, int]:
    """Where a reader of the whole topic would come to, without reading it: behind the last stable record. Waits until
    each partition has its leader, for so many seconds."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + settles_within
    while True:
        asked = admin.list_offsets(
            {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)},  # type: ignore[no-untyped-call]
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=ASK_SECONDS,
        )
        try:
            return {place.partition: answer.result(ASK_SECONDS).offset for place, answer in asked.items()}
        except KafkaException as error:
            if error.args[0].code() not in SETTLING or time.monotonic() > deadline:
                raise


# --- source and target -----------------------------------------------------------------------------------------------


def judge_target(
    source: Sequence[Content], target: Sequence[Content], *, rewinds: int, run: int, gone: Collection[int] = ()
) -> Verdict:
    """Raises Guilty unless `target` reads as `source` with at most `rewinds` steps back of at most `run` records each.

    `gone`: indices of source records that may be missing, because log compaction may have removed them first. Records
    need not differ from each other: every reading is followed, and the one with the fewest rewinds counts.
    """
    case = _Case(source, gone, run)
    readings = {0: 0}  # index of the next record wanted -> rewinds so far, the fewest
    furthest = repeated = 0
    for at, record in enumerate(target):
        following: dict[int, int] = {}
        for wanted, used in readings.items():
            for index, back in case.steps(wanted, record):
                total = used + back
                if total < following.get(index + 1, rewinds + 1):
                    following[index + 1] = total
        if not following:
            case.accuse(max(readings), at, record, min(readings.values()), rewinds)
        reached = max(following)
        repeated += reached <= furthest
        furthest = max(furthest, reached)
        readings = following
    ends = {wanted: used for wanted, used in readings.items() if case.reaches(wanted) == len(source)}
    if not ends:
        wanted = max(readings)
        raise Guilty(Charge.SHORT, f"{len(source) - wanted} of {len(source)}, from {shown(source[wanted])} on")
    return Verdict(rewinds=min(ends.values()), repeated=repeated)


@dataclass(slots=True)
class _Case:
    source: Sequence[Content]
    gone: Collection[int]
    run: int
    _places: dict[Content, list[int]] = field(default_factory=dict)
    _kept: list[int] = field(default_factory=list)  # indices of records that must be there
    _before: list[int] = field(default_factory=list)  # how many of those lie before each index

    def __post_init__(self) -> None:
        gone = frozenset(self.gone)
        for index, record in enumerate(self.source):
            self._places.setdefault(record, []).append(index)
            self._before.append(len(self._kept))
            if index not in gone:
                self._kept.append(index)
        self._before.append(len(self._kept))

    def reaches(self, wanted: int) -> int:
        """The last index that may follow: everything between may be missing."""
        before = self._before[wanted]
        return self._kept[before] if before < len(self._kept) else len(self.source)

    def steps(self, wanted: int, record: Content) -> Iterable[tuple[int, int]]:
        """Where `record` may stand in the source, and whether that is a rewind."""
        places = self._places.get(record, [])
        last = self.reaches(wanted)
        if places and len(places) == 1 and wanted <= places[0] <= last:
            return [(places[0], 0)]  # all but always
        first = max(wanted - self._distance(wanted), 0)
        near = places[bisect_left(places, first) : bisect_right(places, last)]
        return [(index, int(index < wanted)) for index in near]

    def _distance(self, wanted: int) -> int:
        """A run counts records that were delivered; those that may be missing widen it."""
        if not self.gone:
            return self.run
        before = self._before[wanted]
        return wanted if before <= self.run else wanted - self._kept[before - self.run]

    def accuse(self, wanted: int, at: int, record: Content, used: int, allowed: int) -> None:
        places = self._places.get(record)
        expected = shown(self.source[wanted]) if wanted < len(self.source) else "nothing more"
        seen = f"record {at} of the target is {shown(record)}, wanted {expected} (source record {wanted})"
        if places is None:
            raise Guilty(Charge.FOREIGN, seen)
        if places[-1] >= wanted:
            ahead = next(place for place in places if place >= wanted)
            raise Guilty(Charge.LOST, f"{ahead - wanted} records; {seen}")
        back = wanted - places[-1]
        raise Guilty(
            Charge.REPEATED,
            f"{back} records back, a run has {self.run}; {used} of {allowed} rewinds were used before; {seen}",
        )


def compacted(written: Sequence[Content], kept: Sequence[Content]) -> frozenset[int]:
    """Indices of `written` that a compacted log does not hold any more. Raises Guilty when `kept` is not what is left
    of `written`, in order: then the topic was not a log of that."""
    gone: set[int] = set()
    left = iter(enumerate(written))
    for record in kept:
        for index, each in left:
            if each == record:
                break
            gone.add(index)
        else:
            raise Guilty(Charge.FOREIGN, f"the source holds {shown(record)}, which was not written to it in this order")
    gone.update(index for index, _ in left)
    return frozenset(gone)


def shown(record: Content) -> str:
    text = repr(tuple(record))
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"


# --- archive ---------------------------------------------------------------------------------------------------------

_SEGMENT = re.compile(r"(?P<partition>\d+)/(?P<level>\d+)/(?P<start>\d{20})-(?P<end>\d{20})")


def ranges(keys: Iterable[str], *, prefix: str, region: str, topic: str) -> Mapping[int, Sequence[tuple[int, int]]]:
    """Covered ranges of a topic by partition, sorted, ends included. Raises Guilty for a key that is no segment's."""
    head = f"{prefix}/{region}/{topic}/"
    found: dict[int, list[tuple[int, int]]] = {}
    for key in keys:
        if key.startswith(head):
            match = _SEGMENT.fullmatch(key[len(head) :])
            if match is None or int(match["start"]) > int(match["end"]):
                raise Guilty(Charge.KEY, key)
            found.setdefault(int(match["partition"]), []).append((int(match["start"]), int(match["end"])))
    return {partition: sorted(each) for partition, each in found.items()}


def judge_archive(covered: Sequence[tuple[int, int]], *, start: int, next_offset: int) -> None:
    """Raises Guilty unless the ranges cover exactly `start` to `next_offset` - 1. Overlaps are allowed."""
    wanted = start
    for first, last in sorted(covered):
        if first < start:
            raise Guilty(Charge.GAP, f"a segment begins at {first}, the archive at {start}")
        if first > wanted:
            raise Guilty(Charge.GAP, f"[{wanted},{first - 1}] before the segment [{first},{last}]")
        wanted = max(wanted, last + 1)
    if wanted != next_offset:
        raise Guilty(Charge.GAP, f"the archive ends before {wanted}, the source's last stable offset is {next_offset}")


def overlaps(covered: Sequence[tuple[int, int]]) -> Sequence[tuple[tuple[int, int], tuple[int, int]]]:
    """Neighbours that cover an offset twice."""
    return [(one, other) for one, other in pairwise(sorted(covered)) if other[0] <= one[1]]


def archive_end(covered: Sequence[tuple[int, int]]) -> int:
    return max((last + 1 for _, last in covered), default=0)
