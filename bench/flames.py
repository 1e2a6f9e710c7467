"""Flame graphs of this commit and of an earlier one: `make bench-flames` writes them into docs/images.

    python -m bench.flames --only egress --records 1000000

Both versions take their turns with the same topic, below `py-spy`, which shows Python's functions and those of the
libraries in one stack. A graph is as wide as the program's own processor time per million records, without its start
and end, so the widths of two compare. py-spy slows a program down: the times are those of the profiled run, not of
`bench.field`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.__main__ import commit_of_tree
from bench.child import ROOT, ChildFailed
from bench.earlier import HERE, earlier
from bench.field import EARLIER, rows, suite
from bench.field_plan import COUNTS, PROGRAMS, FieldPlan
from bench.flame_graph import WIDTH, boxes, stacks_of, svg
from bench.profile import LIBRARIES
from bench.report import short
from infra.local.errors import LocalStackError
from infra.runtime.java import JavaMissing

HERTZ = 47  # a prime: no period of the program's own falls together with it; each sample stops the program
FILLS = {
    "Arrow, Parquet and the codec": "#78b4f0",
    "Kafka's client": "#8fd694",
    "our compiled code": "#e58fd0",
    "Python": "#ffd866",
    "checksums and TLS": "#f0a878",
    "libc: copying and memory": "#c9c9c9",
}
COLOURS = {r"\.py\)$": ("Python", FILLS["Python"])} | {  # py-spy has no frames of the kernel
    pattern: (group, FILLS[group]) for group, pattern in LIBRARIES.patterns.items() if group in FILLS
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.flames", description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=COUNTS["json"], help="of 1 kB JSON")
    parser.add_argument("--only", action="append", choices=[name for name in PROGRAMS if name != "merge"])
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "images")
    options = parser.parse_args(arguments)
    if shutil.which("py-spy") is None:
        print("there is no `py-spy` here: pip install py-spy, and put it on the PATH", file=sys.stderr)
        return 1
    try:
        record(options.records, tuple(options.only or ["egress"]), options.output)
    except (ChildFailed, JavaMissing, LocalStackError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def record(count: int, programs: tuple[str, ...], output: Path) -> None:
    """Write `flames-PROGRAM-before.svg` and `-after.svg`. Raises ChildFailed, LocalStackError."""
    contenders = (HERE, earlier(EARLIER))
    commit, is_clean = commit_of_tree()
    names = {HERE.name: short(commit, is_clean=is_clean), EARLIER: EARLIER}
    plan = FieldPlan.profiled(count, programs)
    with suite(plan, "moto", contenders) as opened:
        opened.profiler = _recorder
        for row in rows(opened):
            files = sorted(opened.folder.glob(f"*-{row.name}.raw"))[-len(contenders) :]  # of all records
            trees = [boxes(stacks_of(file.read_text(encoding="utf-8"))) for file in files]
            if not all(tree.samples for tree in trees):
                raise ChildFailed(f"{row.name}: py-spy has no samples; give more --records")
            used = [row.pairs[one.name][0].large.cpu_seconds * 1e6 / row.records for one in contenders]
            for one, tree, seconds in zip(contenders, trees, used, strict=True):
                title = f"{row.name}, {names[one.name]}: {seconds:.1f} CPU-s per million records of {row.data}"
                drawn = svg(
                    tree,
                    title=title,
                    per_sample=WIDTH * seconds / max(used) / tree.samples,
                    unit=seconds / tree.samples,
                    colours=COLOURS,
                )
                file = output / f"flames-{row.name}-{'after' if one is HERE else 'before'}.svg"
                file.write_text(drawn, encoding="utf-8")
                print(f"{file}: {title}", flush=True)


def _recorder(log: Path) -> Sequence[str]:
    options = ("--native", "--rate", str(HERTZ), "--format", "raw", "--output", str(log.with_suffix(".raw")))
    return ("py-spy", "record", *options, "--")


if __name__ == "__main__":
    sys.exit(main())
