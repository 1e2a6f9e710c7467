"""Whether threads inside an executor of Spark would make merges quicker: `python -m bench.merge_threads`.

The same merges, with all their proofs and in a folder, by one thread, by two threads of one process, and by two
processes: Spark runs a task on each core, in a Python worker of its own. They take turns.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import child
from bench.child import ChildFailed, Measurement

PARTITIONS, SEGMENTS = 8, 10
WAYS = {"one thread": (1, 1), "two threads": (1, 2), "two processes": (2, 1)}  # processes, threads of each


@dataclass(frozen=True, slots=True)
class MergeCost:
    """`rss_mib`: the processes' peaks, together."""

    records: int
    seconds: float
    cpu_seconds: float
    rss_mib: float

    @property
    def line(self) -> str:
        cpu = self.cpu_seconds * 1e6 / self.records
        return f"{self.records / self.seconds:>10,.0f} | {cpu:>16.1f} | {self.rss_mib:>8.0f}"


def measured(folder: Path, way: str, count: int, kind: str) -> MergeCost:
    """Raises ChildFailed."""
    processes, threads = WAYS[way]
    roots = [folder / str(number) for number in range(processes)]
    for root in roots:
        root.mkdir(parents=True)
        spec = {"root": str(root), "kind": kind, "partitions": PARTITIONS // processes, "segments": SEGMENTS}
        _run(root, "fill", spec | {"records": count})
    with ThreadPoolExecutor(processes) as pool:
        found = list(pool.map(lambda root: _run(root, "merge", {"root": str(root), "threads": threads}), roots))
    return MergeCost(
        records=sum(one.other["records"] for one in found),
        seconds=max(one.seconds for one in found),
        cpu_seconds=sum(one.cpu_seconds for one in found),
        rss_mib=sum(one.peak_rss_mib for one in found),
    )


def _run(root: Path, what: str, spec: dict[str, object]) -> Measurement:
    return child.run("bench.field_programs", what, spec, log=root.with_suffix(f".{what}.log"), timeout_seconds=600)


def table(rounds: int, count: int, kind: str) -> Iterator[str]:
    """Medians by way. Raises ChildFailed."""
    found: dict[str, list[MergeCost]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in list(WAYS)[:: 1 if number % 2 == 0 else -1]:
            with tempfile.TemporaryDirectory(prefix="replicator-merge-") as folder:
                found[way].append(measured(Path(folder), way, count, kind))
    yield f"{'merges by':<13} | {'records/s':>10} | CPU-s per million | RSS, MiB"
    for way, those in found.items():
        middle = MergeCost(
            records=those[0].records,
            seconds=median(one.seconds for one in those),
            cpu_seconds=median(one.cpu_seconds for one in those),
            rss_mib=median(one.rss_mib for one in those),
        )
        yield f"{way:<13} | {middle.line}"


def main(arguments: Sequence[str] | None = None) -> int:
    """0; 1 after a failure."""
    parser = argparse.ArgumentParser(prog="python -m bench.merge_threads", description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=4_800, help="of each segment")
    parser.add_argument("--data", default="json", choices=("json", "flights"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    try:
        print(*table(options.rounds, options.records, options.data), sep="\n")
    except ChildFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
