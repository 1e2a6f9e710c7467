"""The results of `bench.latency`, and the table of docs/latency.md: latency beside what it costs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bench.deployment import MONTH_SECONDS
from bench.prices import STANDARD, RegionPrices, prices_of
from bench.report import replaced, short

BEGIN, END = "<!-- written by `make bench-latency`: begin -->", "<!-- written by `make bench-latency`: end -->"
TARGETS: Mapping[str, Mapping[str, float]] = {"1s": {"p50": 1.0, "p99": 2.0}, "200ms": {"p50": 0.4}}  # seconds, at most
CPU_MS = 3.0  # a segment, at most, of egress and of ingress
DEAR = frozenset({"PUT", "POST", "LIST"})  # requests at the price of a PUT
FREE = frozenset({"DELETE"})
HEADER = (
    "max_segment_age",
    "records/s",
    "partitions",
    "p50, s",
    "p90, s",
    "p99, s",
    "max, s",
    "segments/s",
    "CPU ms a segment, egress",
    "ingress",
    "requests of S3/s",
    "US dollars a month",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRow:
    """One max_segment_age. Seconds are those of the measured part, without the warm-up."""

    age: str
    seconds: float
    per_second: int  # records
    partitions: int
    arrived: int  # records, with those of the warm-up
    is_whole: bool  # every partition's records arrived, as they were sent and in their order
    ages: Mapping[str, float]  # of a record when it could be read, seconds, by percentile
    segments: int
    cpu: Mapping[str, float]  # seconds, by process
    peak_rss_mib: Mapping[str, float]
    requests: Mapping[str, int]  # of S3, by kind
    queue_requests: int | None  # of SQS; None: not counted
    queue_delay: Mapping[str, float]  # seconds in the bench's own queue, by percentile
    notification_delay: Mapping[str, float]  # seconds from the answer to a PUT until its notification is in the queue
    stages: Mapping[str, float]  # mean seconds of a segment in each stage of its way
    # CPU milliseconds of pyarrow and boto3 alone for a segment as large, by step; empty in a file of an earlier version
    bare: Mapping[str, float] = field(default_factory=dict)

    def cpu_ms(self, process: str) -> float:
        """A segment."""
        return self.cpu[process] * 1000 / max(self.segments, 1)

    def dollars_a_month(self, prices: RegionPrices) -> float:
        """Of requests to S3 and SQS at this load. S3's replication to another bucket puts every segment once more."""
        dear = sum(count for kind, count in self.requests.items() if kind in DEAR) + self.segments
        cheap = sum(count for kind, count in self.requests.items() if kind not in DEAR | FREE)
        total = dear * prices.of("put", STANDARD) + cheap * prices.of("get", STANDARD)
        total += (self.queue_requests or 0) * prices.of("queue")
        return total / self.seconds * MONTH_SECONDS

    def text(self) -> str:
        """For a terminal."""
        ages = ", ".join(f"{name} {value:.3f}" for name, value in self.ages.items() if name != "count")
        stages = ", ".join(f"{name} {value:.3f}" for name, value in self.stages.items())
        cpu = ", ".join(f"{name} {value / self.seconds:.0%}" for name, value in self.cpu.items())
        delays = f"notification {dict(self.notification_delay)}, queue {dict(self.queue_delay)}"
        lines = [
            f"{self.age}: {'whole' if self.is_whole else 'NOT WHOLE'}, {self.arrived:,} records, "
            f"{self.segments:,} segments",
            f"seconds: {ages}",
            f"stages: {stages}; {delays}",
            f"CPU: {cpu}; ms a segment: {self.cpu_ms('egress'):.2f}, {self.cpu_ms('ingress'):.2f}",
            _bare(self),
            f"RSS: {dict(self.peak_rss_mib)}; requests: {dict(self.requests)}, of the queue {self.queue_requests}",
        ]
        return "\n    ".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRun:
    commit: str
    is_clean: bool
    when: str  # UTC
    machine: str
    software: str
    server: str
    rows: Sequence[LatencyRow]

    def as_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> LatencyRun:
        found = json.loads(text)
        return cls(rows=[LatencyRow(**row) for row in found.pop("rows")], **found)


def table(run: LatencyRun) -> list[str]:
    lines = [HEADER, ("---",) * len(HEADER), *map(_cells, run.rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _cells(row: LatencyRow) -> tuple[str, ...]:
    return (
        row.age,
        f"{row.per_second:,}",
        str(row.partitions),
        *(_judged(row, name) for name in ("p50", "p90", "p99")),
        f"{row.ages['max']:.2f}",
        f"{row.segments / row.seconds:.0f}",
        *(_limited(row.cpu_ms(name), CPU_MS, ".1f") for name in ("egress", "ingress")),
        ", ".join(f"{kind} {count / row.seconds:.1f}" for kind, count in row.requests.items()),
        f"{row.dollars_a_month(prices_of('us-east-1', {})):,.0f}",
    )


def _judged(row: LatencyRow, name: str) -> str:
    limit = TARGETS.get(row.age, {}).get(name)
    return f"{row.ages[name]:.2f}" if limit is None else _limited(row.ages[name], limit, ".2f")


def _limited(value: float, limit: float, form: str) -> str:
    return f"{value:{form}} " + (f"(≤ {limit:g})" if value <= limit else f"**MISS** (≤ {limit:g})")


def section(run: LatencyRun) -> str:
    """The generated part of docs/latency.md, with its markers."""
    seconds = sorted({round(row.seconds) for row in run.rows})
    origin = (
        f"Commit {short(run.commit, is_clean=run.is_clean)}, {run.when} UTC, {run.machine}; {run.server}. Records of "
        f"1 kB, {' to '.join(str(one) for one in dict.fromkeys((seconds[0], seconds[-1])))} seconds of each row:"
    )
    return "\n".join([BEGIN, "", origin, "", *table(run), "", *(f"- {line}" for line in _sentences(run)), "", END])


def _sentences(run: LatencyRun) -> Iterator[str]:
    damaged = [row.age for row in run.rows if not row.is_whole]
    yield (
        f"The records of {', '.join(damaged)} did NOT all arrive as they were sent."
        if damaged
        else "Every record arrived once, as it was sent, in the order of its partition."
    )
    for row in run.rows:
        cpu = ", ".join(f"{name} {used / row.seconds:.0%}" for name, used in row.cpu.items())
        parts = [f"{row.age}: of a core, {cpu}", f"peak RSS {_rss(row)}"]
        if row.stages:
            parts.append("mean seconds " + ", ".join(f"{name} {value:.2f}" for name, value in row.stages.items()))
        if row.notification_delay and row.queue_delay:
            parts.append(
                "the bench's own part: from the answer to a PUT until its notification is in the queue p50 "
                f"{row.notification_delay['p50'] * 1000:.0f} ms, p99 {row.notification_delay['p99'] * 1000:.0f} ms; in "
                f"the queue p50 {row.queue_delay['p50'] * 1000:.0f} ms, p99 {row.queue_delay['p99'] * 1000:.0f} ms"
            )
        if row.queue_requests is not None:
            parts.append(f"requests of SQS {row.queue_requests / row.seconds:.0f}/s")
        if row.bare:
            parts.append(f"{_bare(row)}, with nothing of ours and no Kafka")
        yield "; ".join(parts) + "."


def _bare(row: LatencyRow) -> str:
    encode, put, get, decode = (row.bare[step] for step in ("encode", "put", "get", "decode"))
    return (
        f"CPU ms of pyarrow and boto3 alone for a segment as large, to write {encode + put:.1f} (encode {encode:.1f}, "
        f"put {put:.1f}), to read {get + decode:.1f} (get {get:.1f}, decode {decode:.1f})"
    )


def _rss(row: LatencyRow) -> str:
    return ", ".join(f"{name} {mib * 1.048576:.0f} MB" for name, mib in row.peak_rss_mib.items())


def page_with(page: str, run: LatencyRun) -> str:
    """docs/latency.md with its generated part replaced. Raises ValueError when the markers are missing."""
    return replaced(page, BEGIN, END, section(run))
