"""Medians, spreads and targets of one benchmark, as text, Markdown and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.child import Result
from bench.suite import PARTITIONS, Line, Plan, Results

EGRESS_RATIO, INGRESS_RATIO = 0.3, 0.75  # of the bare loop's rate
EGRESS_CPU_SECONDS = 12.0  # per million records of 1 kB
MANY_RSS_MB = 700.0

HEADER = (
    "records",
    "service",
    "records/s",
    "MB/s",
    "of bare",
    "bare records/s",
    "CPU-s/M",
    "bare CPU-s/M",
    "RSS MB",
    "S3 requests",
)
NAMES = {"json": "1 kB JSON, key, 2 headers", "small": "100 B"}
METHOD = """\
- **records/s, MB/s** (keys, values, headers; 1 MB = 1,000,000 bytes): median of the rounds, lowest and highest in
  brackets. Egress: records ÷ (last segment stored − first records fetched). Bare consume: first record fetched to last
  record counted. Ingress: records ÷ (last checkpoint acknowledged − first piece of a segment begun), so reading,
  connecting the producer and the checkpoints are in it. Bare produce: first `produce` to the end of `flush`. Starting
  Python, joining the group, listing and finding positions are in none of them.
- **of bare**: each round's rate over the rate of the bare loop that ran right before it; median, lowest and highest.
  The bare loop (`bench/bare.py`) is the same client with the same properties: `consume(n)` that only counts, with the
  `n` that our consumer settles on; a `for` over prebuilt lists that calls `produce` with key, value, headers, timestamp
  and partition, partitions in runs as ours. Both choices are faster for the bare loop than the others tried.
- **CPU-s/M**: user and system time of the whole process from its start to its end, start-up included, per million
  records. `bench.json` has that between the marks, too.
- **RSS**: the process's own peak, the largest of the rounds. **S3 requests**: the metric `store_requests`, in one
  round; a multipart upload and a read segment count once there.
- Broker, S3 server (moto, one Python process) and the measured process share the cores: an S3 elsewhere would leave
  more of them to the services.
- Services run on their default configuration, but for: segments sealed by count (about 95 MB each), so that the
  backlog ends with a full one; `first_segment_delay = "0s"`; and, with many partitions, a longer `shutdown_timeout`:
  that run reads everything, is told to stop, and stores what it holds. pandas, which only the demo's data bring, is
  hidden from them (pyarrow imports it where it is)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    what: str
    value: float
    limit: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{'pass' if self.met else 'MISS'}  {self.what}: {self.value:.2f} (target {sign} {self.limit:g})"


def rates(line: Line) -> list[float]:
    return [line.records / r.seconds for r in line.ours]


def ratios(line: Line) -> list[float]:
    return [b.seconds / o.seconds for o, b in zip(line.ours, line.bare, strict=True)]


def cpu_per_million(records: int, results: Sequence[Result]) -> float:
    return median(r.whole_cpu_seconds for r in results) * 1e6 / records


def rss_mb(results: Sequence[Result]) -> float:
    return max(r.peak_rss_mib for r in results) * 1.048576


def targets(results: Results) -> Iterator[Target]:
    for line in results.lines:
        name = f"{line.service}, {NAMES[line.kind]}"
        if line.service == "ingress":
            yield Target(what=f"{name}, of bare", value=median(ratios(line)), limit=INGRESS_RATIO, at_least=True)
        elif line.service == "egress" and line.kind == "json":
            yield Target(what=f"{name}, of bare", value=median(ratios(line)), limit=EGRESS_RATIO, at_least=True)
            cpu = cpu_per_million(line.records, line.ours)
            yield Target(what=f"{name}, CPU-s per million", value=cpu, limit=EGRESS_CPU_SECONDS, at_least=False)
    what = f"egress, {results.many.partitions} partitions, peak RSS in MB"
    yield Target(what=what, value=rss_mb([results.many.egress]), limit=MANY_RSS_MB, at_least=False)


def rows(results: Results) -> Iterator[tuple[str, ...]]:
    for line in results.lines:
        bare = Line(service="bare", kind=line.kind, records=line.records, raw_bytes=line.raw_bytes, ours=line.bare)
        scale = line.raw_bytes / line.records / 1e6
        yield (
            NAMES[line.kind],
            line.service,
            _spread(rates(line), "{:,.0f}".format),
            _spread([rate * scale for rate in rates(line)], "{:.0f}".format),
            _spread(ratios(line), "{:.2f}".format),
            _spread(rates(bare), "{:,.0f}".format),
            f"{cpu_per_million(line.records, line.ours):.1f}",
            f"{cpu_per_million(line.records, line.bare):.1f}",
            f"{rss_mb(line.ours):.0f}",
            _requests(line.ours[-1]),
        )
    many = results.many
    yield (
        f"{NAMES['json']}, {many.partitions} partitions of {many.records // many.partitions:,}",
        "egress",
        *[""] * 4,
        f"{cpu_per_million(many.records, [many.egress]):.1f}",
        "",
        f"{rss_mb([many.egress]):.0f}",
        _requests(many.egress),
    )


def text(results: Results) -> str:
    """The table in columns, and the targets."""
    table = [HEADER, *rows(results)]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([*lines, "", *map(str, targets(results))])


def markdown(results: Results, plan: Plan, environment: Mapping[str, str]) -> str:
    table = [HEADER, ("---",) * len(HEADER), *rows(results)]
    count = {line.kind: line.records for line in results.lines}
    sizes = ", ".join(f"{count[kind]:,} records of {NAMES[kind]}" for kind in count)
    ratios_ = ", ".join(f"{ratio:.1f} ({NAMES[kind]})" for kind, ratio in results.stored_ratio.items())
    return "\n".join(
        [
            "# Benchmark",
            "",
            f"Written by `make bench`. {plan.rounds} rounds, bare client and service taking turns; {sizes}; "
            f"{PARTITIONS} partitions. Raw bytes per stored byte: {ratios_}.",
            "",
            *(f"- {name}: {value}" for name, value in environment.items()),
            "",
            *("| " + " | ".join(row) + " |" for row in table),
            "",
            *(f"- {target}" for target in targets(results)),
            "",
            "## How it is measured",
            "",
            METHOD,
            "",
        ]
    )


def as_json(results: Results, plan: Plan, environment: Mapping[str, str]) -> str:
    """Every single measurement."""
    return (
        json.dumps(
            {
                "environment": dict(environment),
                "plan": dataclasses.asdict(plan),
                "results": dataclasses.asdict(results),
                "targets": [dataclasses.asdict(t) | {"met": t.met} for t in targets(results)],
            },
            indent=1,
        )
        + "\n"
    )


def _spread(values: Sequence[float], write: Callable[[float], str]) -> str:
    return f"{write(median(values))} ({write(min(values))}–{write(max(values))})"


def _requests(result: Result) -> str:
    requests: Mapping[str, int] = result.other["requests"]
    return ", ".join(f"{operation} {count}" for operation, count in sorted(requests.items()))
