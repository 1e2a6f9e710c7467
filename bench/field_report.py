"""The results of `bench.field`, the page docs/benchmarks.md, and what is worse than it was.

Only ratios of programs that ran in turns on one machine are compared between runs: a bare time says more of the machine
and its minute than of the program.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.child import Measurement

WORSE = 1.15  # a ratio that is worse by more than this factor is reported; two rounds may differ by more: repeat it
HEADER = (
    "what",
    "records of",
    "partitions",
    "S3 server",
    "version",
    "records/s",
    "MB/s",
    "CPU-s/M, marginal",
    "floor, CPU-s/M",
    "codec alone, CPU-s/M",
    "start-up, CPU-s",
    "peak RSS, MB",
    "S3 requests",
    "stored, MB",
    "of the floor's rate",
    "rate ÷ earlier",
    "CPU ÷ earlier",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePair:
    """One program in one round, with a quarter of the records and with all."""

    small: Measurement
    large: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTarget:
    """Of this commit, relative to the earlier one."""

    name: str
    data: str
    rate: float | None = None  # at least
    cpu: float | None = None  # marginal, at most
    share: float | None = None  # of the floor's rate in the same run, at least
    stored: float | None = None  # at most


_JSON, _SMALL, _LARGE = "1 kB JSON, key, 2 headers", "100 B", "100 kB JSON"
TARGETS = (
    FieldTarget(name="egress", data=_JSON, rate=2.0, cpu=0.5, stored=0.95),
    FieldTarget(name="egress", data=_SMALL, rate=1.5, cpu=0.6),
    FieldTarget(name="egress", data=_LARGE, rate=1.5, cpu=0.6),
    FieldTarget(name="ingress", data=_JSON, rate=1.4, cpu=0.65),
    FieldTarget(name="restore", data=_JSON, rate=2.0, cpu=0.65, share=0.75),
    FieldTarget(name="merge", data=_JSON, rate=3.0, cpu=0.35, stored=1.05),
)
PARTITIONS = {"merge": 4}  # of the row that a target is for; 6 of the others
RATES = {("egress", "moto"): 1.9, ("ingress", "folder"): 1.5}  # where it is another one, since moto shares the cores
RSS_MB = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRow:
    """One program with one kind of records. `pairs` and `stored` are by version, `pairs` by round."""

    name: str
    data: str
    partitions: int
    server: str
    small: int  # records of the small run
    records: int
    raw_bytes: int
    floor: str
    codec: float | None = None  # CPU-seconds per million records: encoding or decoding them, by pyarrow alone
    pairs: dict[str, list[SizePair]] = field(default_factory=dict)
    floors: list[Measurement] = field(default_factory=list)
    stored: dict[str, int] = field(default_factory=dict)  # bytes

    @property
    def key(self) -> str:
        return f"{self.name}, {self.data}, {self.partitions} partitions, {self.server}"

    def rates(self, version: str) -> list[float]:
        """Records a second, by round."""
        return [self.records / pair.large.seconds for pair in self.pairs[version]]

    def marginal(self, version: str) -> list[float]:
        """CPU-seconds of the whole process per million records beyond those of the small run, by round."""
        more = self.records - self.small
        return [
            (pair.large.whole_cpu_seconds - pair.small.whole_cpu_seconds) * 1e6 / more for pair in self.pairs[version]
        ]

    def start_up(self, version: str) -> float:
        """CPU-seconds that do not grow with the records."""
        pairs = zip(self.pairs[version], self.marginal(version), strict=True)
        return median(pair.small.whole_cpu_seconds - marginal * self.small / 1e6 for pair, marginal in pairs)

    def ratios(self, contenders: Sequence[str]) -> dict[str, float]:
        """Of the first contender: what a later run is compared by. Medians of the rounds. Higher is better in each."""
        here, *others = contenders
        found: dict[str, float] = {}
        if self.floors:
            pairs = zip(self.floors, self.pairs[here], strict=True)
            found["of the floor"] = median(floor.seconds / pair.large.seconds for floor, pair in pairs)
        for other in others:
            found[f"rate ÷ {other}"] = median(map(_divided, self.rates(here), self.rates(other)))
            found[f"{other} ÷ CPU"] = median(map(_divided, self.marginal(other), self.marginal(here)))
            if self.stored.get(here) and self.stored.get(other):
                found[f"{other} ÷ stored"] = self.stored[other] / self.stored[here]
        return found


def _divided(one: float, other: float) -> float:
    return one / other if other > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRun:
    commit: str
    is_clean: bool
    when: str  # UTC
    minutes: float
    machine: str
    software: str
    command: str
    contenders: Sequence[str]  # this commit first
    rows: Sequence[FieldRow]

    def as_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> FieldRun:
        found = json.loads(text)
        return cls(rows=[_row(row) for row in found.pop("rows")], **found)


def _row(found: dict[str, Any]) -> FieldRow:
    pairs = {
        version: [SizePair(small=Measurement(**one["small"]), large=Measurement(**one["large"])) for one in rounds]
        for version, rounds in found.pop("pairs").items()
    }
    return FieldRow(pairs=pairs, floors=[Measurement(**one) for one in found.pop("floors")], **found)


def regressions(before: FieldRun, now: FieldRun) -> list[str]:
    """What is worse by more than `WORSE`, by ratio. Rows that only one run has are left out, and those of another
    number of records, too: start-up is a larger part of fewer."""
    earlier = {(row.key, row.records): row.ratios(before.contenders) for row in before.rows}
    found = []
    for row in now.rows:
        for name, ratio in row.ratios(now.contenders).items():
            old = earlier.get((row.key, row.records), {}).get(name)
            if old is not None and ratio * WORSE < old:
                found.append(f"worse: {row.key}: {name} was {old:.2f}, is {ratio:.2f}")
    return found


def not_compared(before: FieldRun, now: FieldRun) -> list[str]:
    """Rows that `regressions` leaves out, for their number of records or since they are not in this run: silence about
    them would look like a pass."""
    measured = {row.key: row.records for row in now.rows}
    return [
        f"not compared: {row.key}: {row.records:,} records before, "
        + (f"{measured[row.key]:,} now" if row.key in measured else "not measured now")
        for row in before.rows
        if measured.get(row.key) != row.records
    ]


def verdicts(run: FieldRun) -> Iterator[tuple[str, float, float, bool]]:
    """What, the value, its target, and whether it is met; only where the earlier commit ran beside."""
    if len(run.contenders) < 2:
        return
    other = run.contenders[1]
    for row in run.rows:
        ratios = row.ratios(run.contenders)
        for target in TARGETS:
            if (target.name, target.data) != (row.name, row.data) or row.partitions != PARTITIONS.get(row.name, 6):
                continue
            if target.rate is not None:
                limit = RATES.get((row.name, row.server), target.rate) if row.data == _JSON else target.rate
                value = ratios[f"rate ÷ {other}"]
                yield f"{row.key}: rate", value, limit, value >= limit
            if target.cpu is not None:
                value = 1 / ratios[f"{other} ÷ CPU"] if ratios[f"{other} ÷ CPU"] else float("inf")
                yield f"{row.key}: CPU per record", value, target.cpu, value <= target.cpu
            if target.share is not None and "of the floor" in ratios:
                value = ratios["of the floor"]
                yield f"{row.key}: of the floor's rate", value, target.share, value >= target.share
            if target.stored is not None and f"{other} ÷ stored" in ratios:
                value = 1 / ratios[f"{other} ÷ stored"]
                yield f"{row.key}: bytes stored", value, target.stored, value <= target.stored
    for row in run.rows:
        rss = max(pair.large.peak_rss_mib for pair in row.pairs[run.contenders[0]]) * 1.048576
        yield f"{row.key}: peak RSS, MB", rss, RSS_MB, rss <= RSS_MB


def targets_of_floor(run: FieldRun) -> dict[str, float]:
    """How fast a target for the rate is, relative to the floor of the same run: above 1 it cannot be reached. By the
    same names as in `verdicts`; only rows that have a floor."""
    limits = {what: limit for what, _, limit, _ in verdicts(run)}
    found = {}
    for row in run.rows:
        if row.floors and (limit := limits.get(what := f"{row.key}: rate")) is not None:
            rates = zip(row.rates(run.contenders[1]), row.floors, strict=True)
            found[what] = median(limit * rate * floor.seconds / row.records for rate, floor in rates)
    return found


def table(run: FieldRun) -> list[str]:
    lines = [HEADER, ("---",) * len(HEADER), *(cells for row in run.rows for cells in _cells(run, row))]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _cells(run: FieldRun, row: FieldRow) -> Iterator[tuple[str, ...]]:
    ratios = row.ratios(run.contenders)
    for version in run.contenders:
        is_here, last = version == run.contenders[0], row.pairs[version][-1].large
        other = run.contenders[1] if len(run.contenders) > 1 else ""
        rate = median(row.rates(version))
        yield (
            row.name,
            row.data,
            str(row.partitions),
            row.server,
            version,
            f"{rate:,.0f}{_range(row.rates(version), '{:,.0f}'.format)}",
            f"{rate * row.raw_bytes / row.records / 1e6:.0f}",
            f"{median(row.marginal(version)):.1f}{_range(row.marginal(version), '{:.1f}'.format)}",
            f"{median(one.cpu_seconds for one in row.floors) * 1e6 / row.records:.1f}"
            if is_here and row.floors
            else "",
            f"{row.codec:.1f}" if is_here and row.codec is not None else "",
            f"{row.start_up(version):.1f}",
            f"{max(pair.large.peak_rss_mib for pair in row.pairs[version]) * 1.048576:.0f}",
            ", ".join(f"{kind} {count:,}" for kind, count in last.other.get("requests", {}).items()),
            f"{row.stored[version] / 1e6:.1f}" if version in row.stored else "",
            f"{ratios['of the floor']:.2f}" if is_here and row.floors else "",
            f"{ratios[f'rate ÷ {other}']:.2f}" if is_here and other else "",
            f"{_divided(1, ratios[f'{other} ÷ CPU']):.2f}" if is_here and other else "",
        )


def _range(values: Sequence[float], write: Callable[[float], str]) -> str:
    return f" ({write(min(values))}–{write(max(values))})" if len(values) > 1 else ""


def page(run: FieldRun) -> str:
    """The text of docs/benchmarks.md."""
    judged, of_floor = list(verdicts(run)), targets_of_floor(run)
    missed = [
        f"{what}: {value:.2f} ({limit:g}{f', {of_floor[what]:.2f} of the floor' if what in of_floor else ''})"
        for what, value, limit, met in judged
        if not met
    ]
    parts = [
        "# Beside an earlier commit",
        "",
        "Written by `make bench-field` from `benchmarks.json`; each version runs in turns from the same topic.",
        "",
        f"- command: `{run.command}`",
        f"- commit: {run.commit}{'' if run.is_clean else ', with changes that were not committed'}",
        f"- when: {run.when} UTC, {run.minutes:.0f} minutes; {run.machine}",
        f"- software: {run.software}",
        "",
        *table(run),
        "",
    ]
    if judged:
        met = len(judged) - len(missed)
        parts += [f"{met} of {len(judged)} targets are met." + (" Missed, with the target:" if missed else ""), ""]
        parts += [f"- **MISS** {line}" for line in missed]
        parts += [""] if missed else []
    parts += ["## How it is measured", "", METHOD]
    return "\n".join(parts) + "\n"


METHOD = """\
- The earlier version is a wheel, built from its commit, in a virtual environment of its own with the versions of its
  own `constraints.txt`. Both have the same broker, S3 server and topic, each an archive of its own; they take turns, in
  changing order. Groups and transactions of the broker have their coordinators before the first one starts.
- **records/s, MB/s**: median of the rounds with all records, lowest and highest in brackets; from the first fetch or
  delivery to the last record stored or acknowledged, as in the [benchmark](bench.md#how-it-is-measured).
- **CPU-s/M, marginal**: user and system time of the whole process with all records, less that with a quarter of them,
  per million records between: the steady state. **start-up**: what is left of the smaller run.
- **of the floor's rate**: relative to the bare consume loop for egress, to the bare produce loop for ingress and
  restore, to decoding and encoding by pyarrow alone for a merge.
- Beside each missed target for the rate stands the share of the floor's rate that meeting it would need: where it is
  near or above 1, no program that also reads and proves can meet it, since the floor only produces, or only consumes.
- **CPU ÷ earlier**: marginal CPU relative to the earlier commit: below 1 is cheaper.
- **floor, CPU-s/M**: processor time of that floor. **codec alone**: what encoding the records of egress takes, or
  decoding those of ingress and restore, by pyarrow alone in memory, once for each row. A program that moves and encodes
  them cannot take less than the sum; in the floor of a merge the codec is included.
- Against `folder` there is no server: both versions store objects as files. Merges always do.
- What each program wrote is compared with what was sent: keys, values, and their boundaries, in their order, by the
  plain client and by pyarrow alone. A run with a difference ends with an error.
- Broker, S3 server and the measured process share the cores."""
