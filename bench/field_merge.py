"""The rows of `bench.field` that merge segments: in a folder, without a server between."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench import child, fidelity
from bench.child import Measurement
from bench.data import RecordKind, records
from bench.earlier import HERE, Contender
from bench.field_plan import MERGE_PARTITIONS, MERGE_SEGMENTS, NAMES, QUARTERS
from bench.field_report import FieldRow, SizePair
from bench.field_suite import FieldSuite, same

FILL = f"""
import pickle, sys
from pathlib import Path
from types import SimpleNamespace
from bench import merge
made = SimpleNamespace(**pickle.loads(Path(sys.argv[2]).read_bytes()))
merge.records = lambda *_: made
store = merge.SegmentStore(merge.DirectoryObjectStore(Path(sys.argv[1])), "")
print(merge.fill(store, {MERGE_PARTITIONS}, {MERGE_SEGMENTS}, int(sys.argv[3])))
"""  # of the earlier version, which does not know all kinds of records


def merge_row(suite: FieldSuite, kind: RecordKind) -> FieldRow:
    """Raises ChildFailed, also when merged segments do not hold what their inputs held."""
    segments, quarter = MERGE_PARTITIONS * MERGE_SEGMENTS, suite.plan.merged_quarter(kind)
    row = FieldRow(
        name="merge", data=NAMES[kind], partitions=MERGE_PARTITIONS, server="folder", small=segments * quarter,
        records=segments * quarter * QUARTERS, raw_bytes=0, floor="decode and encode",
    )  # fmt: skip
    raw = 0
    for number in range(suite.plan.rounds):
        for contender in suite.order(number):
            results: list[Measurement] = []
            for count in (quarter, quarter * QUARTERS):
                root = suite.folder / f"merge-{kind}-{number}-{contender.name.replace(' ', '-')}-{count}"
                root.mkdir()
                raw = _fill(suite, contender, root, kind, count)
                before = _segments(root)
                if contender is HERE and count > quarter:
                    row.floors.append(_floor(suite, root, before))
                module = "bench.field_programs" if contender is HERE else "bench.merge"
                results.append(suite.child(contender, module, "merge", {"root": str(root)}))
                merged = [one for one in _segments(root) if one not in set(before)]
                same("merge", fidelity.of_files(_read(merged)), fidelity.of_files(_read(before)))
                row.stored[contender.name] = sum(one.stat().st_size for one in merged)
            pair = SizePair(small=results[0], large=results[1])
            row.pairs.setdefault(contender.name, []).append(pair)
            cpu = pair.large.cpu_seconds * 1e6 / row.records
            print(f"folder    {row.records:>9,} merge {contender.name:12} {cpu:6.1f} CPU-s per million", flush=True)
    return replace(row, raw_bytes=raw)


def _fill(suite: FieldSuite, contender: Contender, root: Path, kind: RecordKind, count: int) -> int:
    """By the version that merges. Returns the raw bytes."""
    if contender is HERE:
        spec = {"root": str(root), "kind": kind, "partitions": MERGE_PARTITIONS}
        spec |= {"segments": MERGE_SEGMENTS, "records": count}
        return int(suite.child(contender, "bench.field_programs", "fill", spec).other["raw_bytes"])
    made = records(kind, count * MERGE_SEGMENTS, 1)
    file = root.with_suffix(".pickle")
    lists = {"values": made.values, "keys": made.keys, "headers": made.headers, "stamps": made.timestamps_ms}
    file.write_bytes(pickle.dumps(lists))
    command = [str(contender.python), "-c", FILL, str(root), str(file), str(count)]
    return int(child.output(command, folder=contender.folder))


def _floor(suite: FieldSuite, root: Path, inputs: Sequence[Path]) -> Measurement:
    """Of the same inputs; what it writes is removed."""
    result = suite.child(HERE, "bench.field_programs", "floor-merge", {"root": str(root)})
    for one in set(_segments(root)) - set(inputs):
        one.unlink()
    return result


def _segments(root: Path) -> list[Path]:
    return [one for one in root.rglob("*") if one.is_file() and "_control" not in one.parts]


def _read(files: Sequence[Path]) -> Iterator[tuple[int, bytes]]:
    for one in sorted(files, key=lambda file: int(file.name.partition("-")[0])):
        yield int(one.parts[-3]), one.read_bytes()
