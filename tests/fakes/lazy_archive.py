"""An archive of any size that is made as it is listed, and counts what it is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from formats.segment import SourcePartition, partition_prefix
from infra.contracts.storage import ObjectInfo

PAGE = 1_000  # keys of one request
STORED_AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class LazyArchive:
    """An ObjectStore, as far as listing goes. Every partition has, by level, so many segments of so many offsets each,
    which tile from 0."""

    levels: Mapping[int, tuple[int, int]]
    prefix: str = "data"
    requests: int = 0
    keys: int = 0
    asked: list[str] = field(default_factory=list)  # prefixes

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        self.asked.append(prefix)
        self.requests += 1
        for number, item in enumerate(islice(self._items(prefix, start_after), limit)):
            self.requests += number > 0 and number % PAGE == 0
            self.keys += 1
            yield item

    def _items(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        if "/_control/" in prefix:
            return
        for level in sorted(self.levels, key=str):
            count, length = self.levels[level]
            name = f"{level}/"
            folder = prefix if prefix.endswith(f"/{name}") and prefix.count("/") == 5 else f"{prefix}{name}"
            if prefix.count("/") == 5 and folder != prefix:
                continue
            for number in range(self._first(folder, start_after, count, length), count):
                key = f"{folder}{number * length:020d}-{number * length + length - 1:020d}"
                if key > start_after:
                    yield ObjectInfo(key, 1000, STORED_AT)

    @staticmethod
    def _first(folder: str, start_after: str, count: int, length: int) -> int:
        """Of the segments that may lie behind `start_after`."""
        if start_after < folder:
            return 0
        if not start_after.startswith(folder):
            return count
        digits = start_after[len(folder) : len(folder) + 20]
        return max(int(digits) // length - 1, 0) if digits.isdecimal() and len(digits) == 20 else count

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is not asked for here")


def source(partition: int = 0) -> SourcePartition:
    found = SourcePartition("a", "t", partition)
    assert partition_prefix("data", found, 0).count("/") == 5
    return found
