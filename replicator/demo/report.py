"""The results of the demo, as a table for people and as JSON for programs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from formats.records.align import StreamRead
    from replicator.demo.disaster import Recovery
    from replicator.demo.judge import PartitionVerdict
    from replicator.demo.live import Latencies

DIGEST_DIGITS = 12
EQUAL, DIFFERENT = "green", "bold red"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    produced: int  # acknowledged by the source
    verdicts: tuple[PartitionVerdict, ...]
    latencies: Latencies
    max_segment_age: timedelta
    objects: int
    stored_bytes: int
    raw_bytes: int  # keys, values and headers of the archived records
    compacted_objects: int  # after the compaction, in either bucket
    compacted_bytes: int
    took: timedelta
    recovery: Recovery | None = None

    @property
    def differences(self) -> tuple[str, ...]:
        """All differences; empty when no record was lost, added or changed."""
        found = [f"partition {verdict.partition}: {what}" for verdict in self.verdicts for what in verdict.differences]
        if self.records != self.produced:
            found.append(f"source: {self.produced:,} records were produced, {self.records:,} were read")
        if len(self.latencies.seconds) != self.latencies.sent:
            found.append(f"live: {self.latencies.sent} records sent, {len(self.latencies.seconds)} seen")
        if self.recovery is not None:
            found += self.recovery.differences
        return tuple(found)

    @property
    def equal(self) -> bool:
        return not self.differences

    @property
    def records(self) -> int:
        """Number of records in the source."""
        return sum(verdict.source.count for verdict in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "differences": list(self.differences),
            "records": self.records,
            "partitions": [
                {
                    "partition": verdict.partition,
                    "equal": verdict.equal,
                    "source": _side(verdict.source),
                    "archive": _side(verdict.archive),
                    "target": _side(verdict.target),
                }
                for verdict in self.verdicts
            ],
            "live": {
                "sent": self.latencies.sent,
                "seen": len(self.latencies.seconds),
                "p50_seconds": self.latencies.percentile(50),
                "p99_seconds": self.latencies.percentile(99),
                "max_segment_age_seconds": self.max_segment_age.total_seconds(),
            },
            "archive": {
                "objects": self.objects,
                "stored_bytes": self.stored_bytes,
                "raw_bytes": self.raw_bytes,
                "compacted_objects": self.compacted_objects,
                "compacted_bytes": self.compacted_bytes,
            },
            "recovery": None
            if self.recovery is None
            else {
                "records": self.recovery.records,
                "equal": not self.recovery.differences,
                "seconds": round(self.recovery.took.total_seconds(), 1),
            },
            "seconds": round(self.took.total_seconds(), 1),
        }


def show(report: DemoReport, console: Console) -> None:
    """Print the report within 80 columns."""
    console.print()
    console.print(_table(report))
    console.print()
    for text in _summary(report):
        console.print(text, soft_wrap=True)


def _table(report: DemoReport) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for header in ("part", "records", "offsets a", "offsets b"):
        table.add_column(header, justify="right", no_wrap=True)
    for header in ("digest a", "archive", "digest b", ""):
        table.add_column(header, no_wrap=True)
    for verdict in report.verdicts:
        sides = (verdict.source, verdict.archive, verdict.target)
        table.add_row(
            str(verdict.partition),
            f"{verdict.source.count:,}",
            _offsets(verdict.source),
            _offsets(verdict.target),
            *(Text(_digits(side), style="" if _same(side, verdict.source) else DIFFERENT) for side in sides),
            Text("equal", style=EQUAL) if verdict.equal else Text("differs", style=DIFFERENT),
        )
    return table


def _summary(report: DemoReport) -> Iterator[Text]:
    if report.equal:
        yield Text(
            f"All {report.records:,} records are equal in source, archive and target: keys, values, headers and "
            "timestamps, in order.",
            style=EQUAL,
        )
    else:
        yield Text("Source, archive and target are not equal:", style=DIFFERENT)
        for what in report.differences:
            yield Text(f"  {what}", style=DIFFERENT)
    p50, p99 = (report.latencies.percentile(percent) for percent in (50, 99))
    if p50 is not None and p99 is not None:
        yield Text(
            f"Latency of {len(report.latencies.seconds):,} live records, acknowledged in a to read in b: "
            f"p50 {p50:.2f} s, p99 {p99:.2f} s (segments are closed after {report.max_segment_age.total_seconds():g} s)"
        )
    smaller = report.raw_bytes / report.stored_bytes if report.stored_bytes else 0.0
    yield Text(
        f"Archive: {report.objects:,} objects, {_megabytes(report.stored_bytes)} for {_megabytes(report.raw_bytes)} "
        f"of keys, values and headers ({smaller:.1f} times smaller)"
    )
    yield Text(
        f"Compacted on Spark meanwhile: {report.compacted_objects:,} objects, {_megabytes(report.compacted_bytes)}, in "
        "either bucket; each small one was deleted once its records were proven to be in a large one"
    )
    if report.recovery is not None and not report.recovery.differences:
        yield Text(
            f"Region a was lost, and its {report.recovery.records:,} records were restored to a new, empty cluster "
            f"within {report.recovery.took.total_seconds():.1f} s, including the cluster's start: equal by digest.",
            style=EQUAL,
        )
    yield Text(f"Took {report.took.total_seconds():.1f} s.")


def _side(side: StreamRead) -> dict[str, Any]:
    return {
        "records": side.count,
        "first_offset": side.first_offset,
        "last_offset": side.last_offset,
        "digest": side.digest.content,
    }


def _same(side: StreamRead, source: StreamRead) -> bool:
    return side.digest.content == source.digest.content


def _digits(side: StreamRead) -> str:
    return side.digest.content[:DIGEST_DIGITS]


def _offsets(side: StreamRead) -> str:
    return "none" if side.first_offset is None else f"{side.first_offset}-{side.last_offset}"


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
