"""Time, metrics and a store that fails on demand: what every shell has around it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import inf
from operator import add
from typing import BinaryIO

from formats.errors import StoreUnavailable
from infra.contracts.storage import ObjectInfo
from infra.runtime.buckets import BUCKETS
from infra.runtime.metrics import CounterName, GaugeName, HistogramName, MetricName, labels
from infra.storage.memory_and_folder import MemoryObjectStore

T0 = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class HandClock:
    at: datetime = T0

    def now(self) -> datetime:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass(slots=True)
class CountedMetrics:
    """What was counted, by name over all labels, and by name and labels. Refuses labels that a metric has not."""

    counts: dict[str, float] = field(default_factory=lambda: defaultdict(int))
    labelled: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=lambda: defaultdict(int))
    gauges: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)
    observed: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    observed_of: dict[tuple[str, tuple[tuple[str, str], ...]], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    counted: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[tuple[int, ...], float]] = field(default_factory=dict)

    def count(self, name: CounterName, value: float = 1, **of: str) -> None:
        self.counts[name] += value
        self.labelled[_checked(name, of)] += value

    def gauge(self, name: GaugeName, value: float, **of: str) -> None:
        self.gauges[_checked(name, of)] = value

    def observe(self, name: HistogramName, value: float, **of: str) -> None:
        self.observed[name].append(value)
        self.observed_of[_checked(name, of)].append(value)

    def observe_many(self, name: HistogramName, counts: Sequence[int], total: float, **of: str) -> None:
        buckets = len(BUCKETS[name]) + 1
        if len(counts) != buckets:
            raise ValueError(f"{name} has {buckets} buckets, not {len(counts)}")
        before, sum_before = self.counted.get(_checked(name, of), ((0,) * buckets, 0))
        self.counted[_checked(name, of)] = tuple(map(add, before, counts)), sum_before + total

    def forget(self, name: GaugeName, **of: str) -> None:
        self.gauges.pop(_checked(name, of), None)

    def value(self, name: GaugeName, **of: str) -> float | None:
        return self.gauges.get(_checked(name, of))

    def buckets(self, name: HistogramName, **of: str) -> dict[float, int]:
        """What `observe_many` added: number of values by the bound of their bucket, without empty buckets."""
        counts, _ = self.counted[_checked(name, of)]
        return {bound: n for bound, n in zip((*BUCKETS[name], inf), counts, strict=True) if n}

    def sum_of(self, name: HistogramName, **of: str) -> float:
        """Of the values that `observe_many` added."""
        return self.counted[_checked(name, of)][1]

    def stages(self, region: str) -> dict[str, list[float]]:
        """The seconds of each stage of the region's segments, in the order in which they were observed."""
        return {
            dict(of)["stage"]: seconds
            for (name, of), seconds in self.observed_of.items()
            if name == "segment_stage_seconds" and dict(of)["region"] == region
        }

    def by_label(self, name: CounterName, **of: str) -> float:
        return self.labelled[_checked(name, of)]


def _checked(name: MetricName, of: dict[str, str]) -> tuple[str, tuple[tuple[str, str], ...]]:
    assert set(of) == set(labels(name)), f"{name} has labels {labels(name)}, not {tuple(of)}"
    return name, tuple(sorted(of.items()))


class FailingStore:
    """An ObjectStore in memory; calls of operations in `away` raise StoreUnavailable. Listings show every object as
    `older` than it is here, as they do of replicas."""

    def __init__(self, clock: HandClock) -> None:
        self.memory = MemoryObjectStore(now=clock.now)
        self.away: set[str] = set()
        self.older = timedelta()
        self.deleted: set[str] = set()  # keys of which servers name the folders all the same: MinIO with versions
        self.calls: Counter[str] = Counter()
        self.asked: list[tuple[str, str]] = []  # operation and key, or prefix
        self.listed = 0  # objects, in all answers
        self.before: dict[str, Callable[[str], None]] = {}  # operation → what happens just before it, once
        self.before_each: Callable[[str, str], None] = lambda *_: None  # with operation and key; may wait, or raise
        self.after_listing: dict[str, Callable[[], None]] = {}  # by prefix, before the answer

    def keys(self) -> list[str]:
        return [info.key for info in self.memory.list("")]

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        self._called("list", prefix)
        found = [
            replace(info, modified_at=info.modified_at - self.older)
            for info in self.memory.list(prefix, start_after=start_after, limit=limit)
        ]
        if (hook := self.after_listing.pop(prefix, None)) is not None:
            hook()
        self.listed += len(found)
        return iter(found)

    def folders(self, prefix: str) -> Sequence[str]:
        self._called("list", prefix)
        emptied = [key.removeprefix(prefix) for key in self.deleted if key.startswith(prefix)]
        return sorted({*self.memory.folders(prefix), *(rest.partition("/")[0] for rest in emptied if "/" in rest)})

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        self._called("put_new", key)
        self.memory.put_new(key, body, size_bytes)

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        self._called("open", key)
        return self.memory.open(key, tail_bytes=tail_bytes)

    def stat(self, key: str) -> ObjectInfo | None:
        self._called("stat", key)
        return self.memory.stat(key)

    def delete_many(self, keys: Collection[str]) -> None:
        self._called("delete_many", "")
        self.memory.delete_many(keys)

    def _called(self, operation: str, key: str) -> None:
        self.calls[operation] += 1
        self.asked.append((operation, key))
        if (hook := self.before.pop(operation, None)) is not None:
            hook(key)
        self.before_each(operation, key)
        if operation in self.away:
            raise StoreUnavailable(f"{operation} {key}: planned")
