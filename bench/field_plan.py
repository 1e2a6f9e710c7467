"""Which rows `bench.field` has: programs, kinds of records, partitions, and the servers that they run against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.data import RecordKind

QUARTERS = 4  # the topic holds the same records so many times; a small run reads them once
MERGE_PARTITIONS, MERGE_SEGMENTS = 4, 10
MERGED = 0.4  # records of a merge, relative to those of the other programs
COUNTS: Mapping[RecordKind, int] = {
    "json": 480_000,
    "small": 1_440_000,
    "large": 5_760,
    "random": 192_000,
    "flights": 800_000,
}
NAMES: Mapping[RecordKind, str] = {
    "json": "1 kB JSON, key, 2 headers",
    "small": "100 B",
    "large": "100 kB JSON",
    "random": "1 kB, incompressible",
    "flights": "flights",
}
PROGRAMS = ("egress", "ingress", "restore", "merge")
SERVERS = ("moto", "versitygw", "folder")  # the last: no server, objects are files
_OF_SERVERS: Sequence[tuple[RecordKind, int, Sequence[str]]] = (
    ("json", 6, ("egress", "ingress", "restore")),
    ("small", 6, ("egress", "ingress", "restore")),
    ("large", 6, ("egress", "ingress")),
    ("random", 6, ("egress", "ingress")),
    ("json", 1, ("egress", "ingress")),
    ("json", 200, ("egress", "ingress")),
)
_OF_FOLDERS: Sequence[tuple[RecordKind, int, Sequence[str]]] = (
    ("json", 6, ("egress", "ingress")),
    ("json", MERGE_PARTITIONS, ("merge",)),
    ("flights", MERGE_PARTITIONS, ("merge",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldPlan:
    rounds: int = 2
    share: float = 1.0  # of COUNTS
    servers: tuple[str, ...] = SERVERS
    data: tuple[RecordKind, ...] = tuple(NAMES)
    partitions: tuple[int, ...] = (1, 6, 200)  # of the topics; merges have their own number
    only: tuple[str, ...] = PROGRAMS

    @classmethod
    def profiled(cls, count: int, programs: tuple[str, ...]) -> FieldPlan:
        """Each of these programs once with `count` records of 1 kB."""
        return cls(rounds=1, share=count / COUNTS["json"], data=("json",), partitions=(6,), only=programs)

    def rows(self, server: str) -> Iterator[tuple[RecordKind, int, Sequence[str]]]:
        """Kind, partitions and programs of what is to be measured against `server`."""
        for kind, partitions, programs in _OF_FOLDERS if server == "folder" else _OF_SERVERS:
            chosen = [name for name in programs if name in self.only]
            if chosen and kind in self.data and (partitions in self.partitions or chosen == ["merge"]):
                yield kind, partitions, chosen

    def quarter(self, kind: RecordKind, partitions: int) -> int:
        """Records of a small run: the same number for each partition."""
        return max(int(COUNTS[kind] * self.share) // QUARTERS // partitions, 1) * partitions

    def merged_quarter(self, kind: RecordKind) -> int:
        """Records of each segment, of a small run."""
        segments = MERGE_PARTITIONS * MERGE_SEGMENTS
        return max(round(COUNTS[kind] * MERGED * self.share) // segments // QUARTERS, 1)
