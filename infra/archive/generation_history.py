"""Which generation of a control object was in force at a moment: of the catalogue, the watermarks, or the groups.

    numbers      1      2      7      8      9       in the order of their observations; some are thinned
    observed    10:00  10:05  11:00  11:20  12:00    inside each object
    at 11:10                   in force

The numbers are listed, and a few objects are read: where the times of the listing point to, and then halves of what is
left. These times only save requests, since a replica may have those of its copy. A generation that cannot be read
leaves the last good one before it in force, and is reported.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from formats.control.catalog import Catalog, decode_catalog
from formats.control.group_snapshot import GroupSnapshot, decode_group_snapshot
from formats.control.keys import catalog_prefix, groups_prefix, watermarks_prefix
from formats.control.watermarks import SourceWatermarks, decode_watermarks
from formats.errors import MalformedEvent, SegmentNotFound
from infra.archive.generations import Generations, StoredGeneration
from infra.contracts.storage import ObjectStore


class Observed(Protocol):
    """The content of a generation."""

    @property
    def observed_at(self) -> datetime: ...


T = TypeVar("T", bound=Observed)
TRIED = 5  # generations in a row; further ones are tried at doubling distances


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationInForce(Generic[T]):
    """`value` is None when none was in force."""

    number: int = 0
    value: T | None = None
    first_observed_at: datetime | None = None  # UTC; when `value` is None: of the first one that can be read
    problems: Sequence[str] = ()  # generations that cannot be read, of which one may have been in force instead


@dataclass(slots=True)
class GenerationHistory(Generic[T]):
    """The generations of one kind, in one region. Use from one thread at a time."""

    generations: Generations
    decode: Callable[[bytes], T]
    known_at: Callable[[T], datetime] = lambda value: value.observed_at

    def at(self, moment: datetime | None) -> GenerationInForce[T]:
        """The generation that was observed last, up to `moment`; None: of all. One LIST for each thousand generations,
        and a few GETs: some 2 × log2 of their number at most, as long as few of them are damaged. Raises
        StoreUnavailable."""
        return _Search(self.generations, self.decode, self.known_at, self.generations.stored(), moment).found()

    def earlier(self, number: int) -> Iterator[tuple[int, T]]:
        """Those before `number` that can be read, the highest first: a LIST for each thousand, and a GET each. Raises
        StoreUnavailable."""
        for one in reversed(self.generations.stored()):
            if one.number < number and (value := self._readable(one.number)) is not None:
                yield one.number, value

    def later(self, number: int) -> Iterator[tuple[int, T]]:
        """Those after `number`, the lowest first, up to one that cannot be read: a LIST for each thousand, and a GET
        each. Raises StoreUnavailable."""
        for one in self.generations.stored():
            if one.number > number:
                if (value := self._readable(one.number)) is None:
                    return
                yield one.number, value

    def following(self, number: int) -> T | None:
        """The first one after `number`, when it can be read. Raises StoreUnavailable."""
        after = self.generations.at_or_after(number + 1)
        return None if after is None else self._readable(after)

    def _readable(self, number: int) -> T | None:
        try:
            return self.decode(self.generations.read(number))
        except (SegmentNotFound, MalformedEvent):
            return None


def watermark_generations(objects: ObjectStore, prefix: str, region: str) -> GenerationHistory[SourceWatermarks]:
    return GenerationHistory(Generations(objects, watermarks_prefix(prefix, region)), decode_watermarks)


def catalog_history(objects: ObjectStore, prefix: str, region: str) -> GenerationHistory[Catalog]:
    return GenerationHistory(Generations(objects, catalog_prefix(prefix, region)), decode_catalog)


def group_history(objects: ObjectStore, prefix: str, region: str) -> GenerationHistory[GroupSnapshot]:
    """A snapshot counts from the end of its observation on: groups commit while it is made."""
    generations = Generations(objects, groups_prefix(prefix, region))
    return GenerationHistory(generations, decode_group_snapshot, lambda snapshot: snapshot.known_at)


@dataclass(slots=True)
class _Search(Generic[T]):
    """`_low` and `_high` are indexes of `stored`: up to `_low` is not later than the moment, from `_high` on is."""

    generations: Generations
    decode: Callable[[bytes], T]
    known_at: Callable[[T], datetime]
    stored: Sequence[StoredGeneration]
    moment: datetime | None
    _low: int = -1
    _high: int = field(init=False)
    _later: int = field(init=False)  # the lowest one known to be later
    _best: T | None = None  # at _low
    _observed: dict[int, datetime | None] = field(default_factory=dict)  # None: cannot be read
    _problems: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._high = self._later = len(self.stored)

    def found(self) -> GenerationInForce[T]:
        guesses = self._guesses()
        while self._high - self._low > 1:
            guess = next((one for one in guesses if self._low < one < self._high), None)
            self._narrow((self._low + self._high) // 2 if guess is None else guess)
        first = min((at for at in self._observed.values() if at is not None), default=None)
        return GenerationInForce(
            number=self.stored[self._low].number if self._best is not None else 0,
            value=self._best,
            first_observed_at=first if self._best is None else None,
            problems=[why for index, why in sorted(self._problems.items()) if self._low < index < self._later],
        )

    def _guesses(self) -> Iterator[int]:
        """Where the search begins, by the times of the listing."""
        if self.moment is None:
            yield len(self.stored) - 1
            return
        # ascending in a bucket that was not copied; elsewhere the guess may be any
        guess = bisect_right(self.stored, self.moment, key=lambda one: one.modified_at) - 1
        yield from range(guess, guess + 3)

    def _narrow(self, index: int) -> None:
        """Move `_low` up to `index` or above it, or `_high` down to it."""
        tried = index
        for tried in self._upwards(index):
            if (value := self._read(tried)) is None:
                continue
            if self.moment is None or self.known_at(value) <= self.moment:
                self._low, self._best = tried, value
                return
            self._later = min(self._later, tried)
            break
        # later, or nothing from here on can be read; between unreadable ones at a distance nothing more is tried
        self._high = index

    def _upwards(self, index: int) -> Iterator[int]:
        yield from range(index, min(index + TRIED + 1, self._high))
        step = 2 * TRIED
        while index + step < self._high - 1:
            yield index + step
            step *= 2
        if self._high - 1 > index + TRIED:
            yield self._high - 1

    def _read(self, index: int) -> T | None:
        if index in self._observed and self._observed[index] is None:
            return None
        number = self.stored[index].number
        try:
            value = self.decode(self.generations.read(number))
        except SegmentNotFound:
            self._unreadable(index, f"{self.generations.key(number)} is listed, and it is gone")
            return None
        except MalformedEvent as error:
            self._unreadable(index, f"{self.generations.key(number)}: {error}")
            return None
        self._observed[index] = self.known_at(value)
        return value

    def _unreadable(self, index: int, why: str) -> None:
        self._observed[index], self._problems[index] = None, why
