"""Which libraries the processor time of egress, ingress, restore and a merge is spent in, by Linux's `perf`.

    python -m bench.profile --records 1000000

Each program of `bench.field` runs below `perf record` with a quarter of the records and with all. The difference of the
samples is the steady state: processor time of the process per million records, without its start.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import child
from bench.__main__ import commit_of_tree, machine, software
from bench.child import ChildFailed
from bench.earlier import HERE
from bench.field import rows, suite
from bench.field_plan import COUNTS, PROGRAMS, FieldPlan
from bench.report import short
from infra.local.errors import LocalStackError
from infra.runtime.java import JavaMissing

HERTZ = 499  # a prime: no period of the program's own falls together with it
_LINE = re.compile(r"^\s*[\d.]+%\s+(\d+)\s+(\S.*?)\s*$")


@dataclass(frozen=True, slots=True)
class Grouping:
    """`sort`: what `perf report` sorts by. `patterns`: what a group is found by, in the order of trial."""

    sort: str
    patterns: Mapping[str, str]

    def samples(self, report: str) -> Counter[str]:
        """By group, from the text of `perf report -n`."""
        found: Counter[str] = Counter()
        for line in report.splitlines():
            if (match := _LINE.match(line)) is not None:
                samples, name = match.groups()
                groups = (group for group, pattern in self.patterns.items() if re.search(pattern, name))
                found[next(groups, f"other: {name}")] += int(samples)
        return found


LIBRARIES = Grouping(
    "dso",
    {
        "Arrow, Parquet and the codec": r"libarrow|libparquet|pyarrow|_compute\.|_parquet\.|lib\.cpython",
        "Kafka's client": r"librdkafka|cimpl",
        "our compiled code": r"\b(consume|produce)\.",
        "Python": r"libpython|python3|cpython",
        "checksums and TLS": r"libcrypto|libssl|awscrt|libz\.",
        "libc: copying and memory": r"libc\.|libc-|libm\.|libstdc|libpthread|ld-linux|libgcc",
        "kernel: sockets, memory, files": r"kernel|vdso|\[unknown\]",
    },
)
THREADS = Grouping(
    "comm",
    {
        "Kafka's client: connections to brokers": r"^rdk:broker",
        "Kafka's client: its other threads": r"^rdk:",
        "Python's and Arrow's threads": r"",
    },
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=COUNTS["json"], help="of 1 kB JSON")
    parser.add_argument("--only", action="append", choices=PROGRAMS)
    options = parser.parse_args(arguments)
    if shutil.which("perf") is None:
        print("there is no `perf` here: install linux-perf of your distribution", file=sys.stderr)
        return 1
    try:
        found = profiles(options.records, tuple(options.only or PROGRAMS))
    except (ChildFailed, JavaMissing, LocalStackError) as error:
        print(error, file=sys.stderr)
        return 1
    commit, is_clean = commit_of_tree()
    print(f"\nCommit {short(commit, is_clean=is_clean)}, {machine()}, {software()}")
    for grouping in (LIBRARIES, THREADS):
        print("", *table({name: one[grouping.sort] for name, one in found.items()}), sep="\n")
    return 0


def profiles(count: int, programs: tuple[str, ...]) -> Mapping[str, Mapping[str, Counter[str]]]:
    """CPU-seconds per million records by program, by grouping, by group. Raises ChildFailed, LocalStackError."""
    found: dict[str, Mapping[str, Counter[str]]] = {}
    for server, plan in plans(count, programs):
        with suite(plan, server, (HERE,)) as opened:
            opened.profiler = _recorder
            for row in rows(opened):
                found[row.name] = {
                    grouping.sort: _marginal(opened.folder, row.name, row.records - row.small, grouping)
                    for grouping in (LIBRARIES, THREADS)
                }
    return found


def plans(count: int, programs: Collection[str]) -> Iterator[tuple[str, FieldPlan]]:
    """With the server of each: a merge has none."""
    for server, ours in (("moto", ("egress", "ingress", "restore")), ("folder", ("merge",))):
        if chosen := tuple(name for name in ours if name in programs):
            yield server, FieldPlan.profiled(count, chosen)


def _recorder(log: Path) -> Sequence[str]:
    return ("perf", "record", "-q", "-F", str(HERTZ), "-o", str(log.with_suffix(".perf")), "--")


def _marginal(folder: Path, program: str, records: int, grouping: Grouping) -> Counter[str]:
    small, large = sorted(folder.glob(f"*-{program}.perf"))
    more = grouping.samples(_report(large, grouping.sort))
    more.subtract(grouping.samples(_report(small, grouping.sort)))
    return Counter({name: samples / HERTZ * 1e6 / records for name, samples in more.items()})


def _report(file: Path, sort: str) -> str:
    command = ["perf", "report", "-i", str(file), "--stdio", "--no-children", "-g", "none", "-n", "--sort", sort]
    return child.output(command, folder=file.parent)


def table(found: Mapping[str, Counter[str]]) -> list[str]:
    names = sorted(
        {name for one in found.values() for name in one}, key=lambda name: -sum(one[name] for one in found.values())
    )
    lines = [("CPU-s per million records", *found), ("---",) * (len(found) + 1)]
    for name in names:
        shares = (f"{one[name]:.2f} ({one[name] / one.total():.0%})" for one in found.values())
        lines.append((name, *shares))
    lines.append(("all", *(f"{one.total():.2f}" for one in found.values())))
    return ["| " + " | ".join(line) + " |" for line in lines]


if __name__ == "__main__":
    sys.exit(main())
