"""Renders a `BenchRun` as tables and sentences: all figures are those of the run, and each missed target is marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from bench.rows import BenchRow, BenchRun, Figure, PerformanceTarget

HEADER = (
    "what",
    "records",
    "records/s",
    "MB/s",
    "compared with",
    "ratio",
    "CPU-s/M",
    "peak RSS, MB",
    "wait, s",
    "S3 requests",
)
BEGIN, END = "<!-- written by `make bench`: begin -->", "<!-- written by `make bench`: end -->"
DIGITS: dict[Figure, int] = {"share": 2, "cpu": 1, "rss": 0, "wait": 1}
PATH = {"share": "ratio", "cpu": "CPU-s/M", "rss": "peak RSS, MB", "wait": "wait, s"}

METHOD = """\
- **records/s, MB/s** (keys, values, headers; 1 MB = 1,000,000 bytes): median of the rounds, lowest and highest in
  brackets. Egress: records ÷ (last segment stored − first records fetched). Ingress: records ÷ (last checkpoint
  acknowledged − first delivery begun). Merge, restore, verify: the whole work, listing and clients included.
  Starting Python, joining the group, and starting Spark are in none of them.
- **ratio**: the speed relative to the program compared with, which runs right before or after in each round: 1 is as
  fast. By elapsed time, but for merges and the trickle by CPU time. The first four of these programs do less than any
  implementation could, so against them a ratio above 1 is noise of the machine:
  - *bare consume*, *bare produce* (`bench/bare.py`): the same client with the same properties, `consume(n)` that only
    counts, and `produce` of prebuilt lists;
  - *decode and encode*: pyarrow reads the inputs from the bucket, decodes, encodes with the same options and puts the
    result, without any proof;
  - *decode*: pyarrow reads and decodes each object in as many threads as `verify`, with one read per row group, without
    any proof;
  - *merge*, *restore*: the same work in one process, compared with two Spark tasks;
  - *backlog*: egress itself with the same records, all available at the start, into segments of the same size.
- **CPU-s/M**: user and system time of the whole process from its start to its end, per million records; `bench.json`
  also has the CPU time of the measured part. **peak RSS**: of the process, the largest of the rounds.
- **wait**: of a trickle, the age of a segment's oldest record when it is stored (median and 99th percentile). Of a
  first record: from the start of the command `replicator restore`, including Python's own start, until a consumer that
  reads committed records has it; the archive has {first_segments:,} segments.
- **many partitions**: {many_partitions:,}. **trickle**: 5,000 records a second over 50 partitions, segments of a
  second; where the S3 server does not keep up with 50 segments a second, they are larger.
- **S3 requests**: HTTP requests of one round, counted in the server's log: each part, range and retry counts.
- The broker, the S3 server (moto, one Python process) and the measured process share the cores.
- The services use their defaults, except: segments are sealed by count (about 95 MB), so that a backlog ends with a
  full one; `first_segment_delay = "0s"`; with many partitions a longer `shutdown_timeout`, since that run reads all
  records, is stopped, and then stores its open segments. pandas, which only the demo needs, is hidden from them."""


def exact(value: float, figure: Figure, target: PerformanceTarget | None) -> str:
    """Rounded in the direction that shows a missed target as missed: 300.4 of at most 300 is 301."""
    scale = 10 ** DIGITS[figure]
    if target is not None:
        towards = math.ceil if target.at_most is not None else math.floor
        value = towards(round(value * scale, 6)) / scale
    return f"{value:.{DIGITS[figure]}f}"


def judged(run: BenchRun, row: BenchRow, figure: Figure, extra: str = "") -> str:
    """The figure, and its target, if any, with a mark if that is missed."""
    found = [(target, met) for target, one, met in run.verdicts() if one is row and target.figure == figure]
    if not found:
        return exact(row.figure(figure), figure, None) + extra
    ((target, met),) = found
    sign = "≤" if target.at_most is not None else "≥"
    limit = f"{sign} {target.limit:g}"
    return f"{exact(row.figure(figure), figure, target)}{extra} " + (f"({limit})" if met else f"**MISS** ({limit})")


def cells(run: BenchRun, row: BenchRow) -> tuple[str, ...]:
    scale = row.raw_bytes / row.records / 1e6
    share = _range(row.shares, "{:.2f}".format) if row.floor and len(row.shares) > 1 else ""
    floor = f"{row.floor}: {median(row.floor_rates):,.0f}/s" if row.floor else ""
    requests = "not counted" if row.requests is None else ", ".join(f"{k} {n:,}" for k, n in row.requests.items())
    return (
        row.name,
        row.data,
        f"{median(row.rates):,.0f}{_range(row.rates, '{:,.0f}'.format)}" if row.has_rate else "",
        f"{median(row.rates) * scale:.0f}" if row.has_rate else "",
        f"{row.floor}, by CPU time" if row.compared_by == "cpu" else floor,
        judged(run, row, "share", share) if row.floor else "",
        judged(run, row, "cpu") if row.one_process else "",
        judged(run, row, "rss") if row.one_process else "",
        _wait(run, row),
        requests,
    )


def _range(values: Sequence[float], write: Callable[[float], str]) -> str:
    return f" ({write(min(values))}–{write(max(values))})" if len(values) > 1 else ""


def _wait(run: BenchRun, row: BenchRow) -> str:
    if not row.waits:
        return ""
    if len(row.waits) == 1:
        return judged(run, row, "wait")
    return ", ".join(f"{name} {seconds:.1f}" for name, seconds in row.waits.items())


def table(run: BenchRun) -> list[str]:
    lines = [HEADER, ("---",) * len(HEADER), *(cells(run, row) for row in run.rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def sentences(run: BenchRun) -> Iterator[str]:
    """The table's results as sentences."""
    verdicts = list(run.verdicts())
    missed = [f"{t.row} ({t.data}), {PATH[t.figure]}" for t, _, met in verdicts if not met]
    yield (
        f"{len(verdicts) - len(missed)} of {len(verdicts)} targets are met."
        + (f" Missed: {'; '.join(missed)}." if missed else "")
        + (f" Not measured in this run: {'; '.join(run.not_measured)}." if run.not_measured else "")
    )
    rates = {(row.name, row.data): median(row.rates) for row in run.rows}
    for (name, data), rate in rates.items():
        if name == "ingress" and (repeating := rates.get(("ingress, at least once", data))):
            yield f"Exactly-once delivery has {rate / repeating:.2f} of the rate of at-least-once delivery ({data})."
    for target, row, met in verdicts:
        if not met and target.figure == "share" and row.compared_by == "clock" and row.one_process:
            wanted, about = target.limit * median(row.floor_rates), f"{row.name.capitalize()} ({row.data})"
            yield (
                f"{about}: {target.limit:g} of the rate of {row.floor} is {wanted:,.0f} records a second, which leaves "
                f"{run.cores * 1e6 / wanted:.1f} CPU-seconds per million on {run.cores} cores for the process, the "
                f"broker and the S3 server together; the process takes {row.figure('cpu'):.1f}."
            )


def environment(run: BenchRun) -> list[str]:
    commit = run.commit + ("" if run.is_clean else ", with changes that were not committed")
    return [
        f"- commit: {commit}",
        f"- when: {run.when} UTC, {run.minutes:.0f} minutes in total; load average before "
        + ("unknown" if run.load is None else f"{run.load:.1f}"),
        f"- machine: {run.machine}",
        f"- software: {run.software}",
    ]


def section(run: BenchRun) -> str:
    """The generated section of docs/performance.md, with its markers."""
    origin = f"Commit {short(run.commit, is_clean=run.is_clean)}, {run.when} UTC, {run.machine}:"
    return "\n".join([BEGIN, "", origin, "", *table(run), "", *_paragraphs(run), END])


def page(run: BenchRun) -> str:
    """The text of docs/bench.md."""
    ratios = ", ".join(f"{ratio:.1f} ({data})" for data, ratio in run.stored_ratio.items())
    parts = [
        "# Benchmark",
        "",
        f"Written by `make bench` from `bench.json`. {run.plan['rounds']} rounds. Raw bytes per stored byte: {ratios}.",
        "",
        *environment(run),
        "",
        *table(run),
        "",
        *_paragraphs(run),
        "## How it is measured",
        "",
        METHOD.format(first_segments=run.plan["first_segments"], many_partitions=run.plan["many_partitions"]),
    ]
    return "\n".join(parts) + "\n"


def _paragraphs(run: BenchRun) -> Iterator[str]:
    for sentence in sentences(run):
        yield f"- {sentence}"
    yield ""


def with_section(performance: str, run: BenchRun) -> str:
    """docs/performance.md with its generated section replaced. Raises ValueError when the markers are missing."""
    return replaced(performance, BEGIN, END, section(run))


def short(commit: str, *, is_clean: bool) -> str:
    """For a page: the commit that was measured, and whether the tree was that."""
    return f"{commit[:10]}{'' if is_clean else ' and changes'}"


def replaced(page: str, begin: str, end: str, text: str) -> str:
    """The page with `text` instead of all from the marker `begin` to the marker `end`. Raises ValueError when one is
    missing."""
    before, has_begin, rest = page.partition(begin)
    _, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise ValueError(f"no {begin} … {end} to write between")
    return before + text + after


def text(run: BenchRun) -> str:
    """The table in aligned columns, for a terminal."""
    lines = [HEADER, *(cells(run, row) for row in run.rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    shown = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*shown, "", *sentences(run)])
