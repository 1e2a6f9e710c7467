"""The results of one benchmark run: a row for each measured program, and whether each target is met.

`bench.json` holds a `BenchRun`; every table and every sentence with a figure is generated from it (`bench.report`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from bench.child import Measurement

Figure = Literal["share", "cpu", "rss", "wait"]
JSON_RECORDS, SMALL_RECORDS = "1 kB JSON, key, 2 headers", "100 B"

MEASURED = (  # names of rows, in their order
    "egress",
    "ingress",
    "ingress, at least once",
    "egress, many partitions",
    "egress, trickle",
    "merge",
    "merge on Spark local[2]",
    "restore",
    "restore on Spark local[2]",
    "verify",
    "restore, first record",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """One program with one kind of record, and the program that it is compared with, by round."""

    name: str
    data: str
    records: int
    raw_bytes: int  # keys, values, headers
    floor: str = ""  # the program compared with
    compared_by: Literal["clock", "cpu"] = "clock"
    has_rate: bool = True
    one_process: bool = True  # else CPU time and memory of one process are meaningless
    ours: list[Measurement] = field(default_factory=list)
    floors: list[Measurement] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        """Records per second, by round."""
        return [self.records / result.seconds for result in self.ours]

    @property
    def floor_rates(self) -> list[float]:
        return [self.records / result.seconds for result in self.floors]

    @property
    def shares(self) -> list[float]:
        """Speed relative to the floor, by round: 1 is as fast as the floor."""
        pairs = zip(self.floors, self.ours, strict=True)
        if self.compared_by == "cpu":
            return [floor.cpu_seconds / ours.cpu_seconds for floor, ours in pairs]
        return [floor.seconds / ours.seconds for floor, ours in pairs]

    @property
    def waits(self) -> Mapping[str, float]:
        """Seconds until the oldest record of a segment is stored, or until a user has the first record."""
        found: list[Mapping[str, float]] = [result.other.get("wait_seconds", {}) for result in self.ours]
        return {name: max(one[name] for one in found) for name in found[-1]} if found else {}

    @property
    def requests(self) -> Mapping[str, int] | None:
        """HTTP requests of one round, counted by the S3 server; None: not counted."""
        requests: Mapping[str, int] | None = self.ours[-1].other.get("requests")
        return requests

    def figure(self, which: Figure) -> float:
        """share: median; cpu: seconds per million records, median, whole process; rss: MB, largest; wait: largest."""
        match which:
            case "share":
                return median(self.shares)
            case "cpu":
                return median(result.whole_cpu_seconds for result in self.ours) * 1e6 / self.records
            case "rss":
                return max(result.peak_rss_mib for result in self.ours) * 1.048576
            case "wait":
                return max(self.waits.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceTarget:
    row: str
    data: str
    figure: Figure
    at_least: float | None = None
    at_most: float | None = None

    @property
    def limit(self) -> float:
        found = self.at_least if self.at_most is None else self.at_most
        assert found is not None
        return found

    def is_met(self, row: BenchRow) -> bool:
        value = row.figure(self.figure)
        return value >= self.limit if self.at_most is None else value <= self.limit


TARGETS = (
    PerformanceTarget(row="egress", data=JSON_RECORDS, figure="share", at_least=0.3),
    PerformanceTarget(row="egress", data=JSON_RECORDS, figure="cpu", at_most=12),
    PerformanceTarget(row="egress", data=JSON_RECORDS, figure="rss", at_most=600),
    PerformanceTarget(row="egress", data=SMALL_RECORDS, figure="rss", at_most=600),
    PerformanceTarget(row="ingress", data=JSON_RECORDS, figure="share", at_least=0.75),
    PerformanceTarget(row="ingress", data=JSON_RECORDS, figure="rss", at_most=600),
    PerformanceTarget(row="ingress", data=SMALL_RECORDS, figure="share", at_least=0.75),
    PerformanceTarget(row="egress, many partitions", data=JSON_RECORDS, figure="rss", at_most=700),
    PerformanceTarget(row="egress, trickle", data=JSON_RECORDS, figure="share", at_least=0.34),  # CPU: three times
    PerformanceTarget(row="merge", data=JSON_RECORDS, figure="share", at_least=0.85),
    PerformanceTarget(row="merge", data=JSON_RECORDS, figure="cpu", at_most=20),  # that of the ancestor
    PerformanceTarget(row="merge", data=JSON_RECORDS, figure="rss", at_most=200),
    PerformanceTarget(row="merge on Spark local[2]", data=JSON_RECORDS, figure="share", at_least=1.6),
    PerformanceTarget(row="restore", data=JSON_RECORDS, figure="share", at_least=0.75),
    PerformanceTarget(row="restore", data=JSON_RECORDS, figure="rss", at_most=600),
    PerformanceTarget(row="restore on Spark local[2]", data=JSON_RECORDS, figure="share", at_least=1.6),
    PerformanceTarget(row="restore, first record", data=JSON_RECORDS, figure="wait", at_most=5),
    PerformanceTarget(row="verify", data=JSON_RECORDS, figure="share", at_least=0.8),
    PerformanceTarget(row="verify", data=JSON_RECORDS, figure="rss", at_most=400),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    commit: str  # of the code that was measured
    is_clean: bool  # False: with changes that are not committed
    when: str  # UTC
    minutes: float
    load: float | None  # the machine's load average in the minute before; None: unknown
    cores: int
    machine: str
    software: str
    plan: Mapping[str, Any]
    rows: Sequence[BenchRow]
    stored_ratio: Mapping[str, float]  # raw bytes per stored byte, by data

    def verdicts(self) -> Iterator[tuple[PerformanceTarget, BenchRow, bool]]:
        """Each target whose row was measured, with that row and whether the target is met."""
        for target in TARGETS:
            for row in self.rows:
                if (row.name, row.data) == (target.row, target.data):
                    yield target, row, target.is_met(row)

    @property
    def not_measured(self) -> list[str]:
        present = {row.name for row in self.rows}
        return [name for name in MEASURED if name not in present]

    def as_json(self) -> str:
        """All measurements, and the targets for readers of the file."""
        targets = [
            {"row": t.row, "data": t.data, "figure": t.figure, "value": row.figure(t.figure)}
            | {"at_least": t.at_least, "at_most": t.at_most, "is_met": met}
            for t, row, met in self.verdicts()
        ]
        return json.dumps(dataclasses.asdict(self) | {"targets": targets}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> BenchRun:
        found = json.loads(text)
        del found["targets"]
        rows = [
            BenchRow(**row | {side: [Measurement(**result) for result in row[side]] for side in ("ours", "floors")})
            for row in found.pop("rows")
        ]
        return cls(rows=rows, **found)
