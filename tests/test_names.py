"""One name for one thing: a public type has a name of its own in the whole program, benchmarks included."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from infra.spark.packages import PACKAGES

ROOT = Path(__file__).resolve().parent.parent

BENCH = "bench"

IN_BOTH_FLOWS = "the same thing of either flow; flows do not import each other, and nothing imports both"
SHARED: Mapping[str, str] = {
    "Alarms": IN_BOTH_FLOWS,
    "AssignedPartition": IN_BOTH_FLOWS,
    "Assignment": IN_BOTH_FLOWS,
    "Effect": IN_BOTH_FLOWS,
    "Locating": IN_BOTH_FLOWS,
}
"""Names that several modules define, each with the reason."""


def types_of(tree: ast.Module) -> Iterator[str]:
    """Public classes and aliases of types that a module defines."""
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if name.isupper():
                    continue  # a constant
            case _:
                continue
        if name[0].isupper():
            yield name


@cache
def of_folder(root: Path, folder: str) -> Mapping[str, list[str]]:
    """Files by name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((root / folder).rglob("*.py")):
        for name in types_of(ast.parse(path.read_text(encoding="utf-8"))):
            found[name].append(path.relative_to(root).as_posix())
    return found


def defined_in(root: Path) -> Mapping[str, list[str]]:
    """Files of the program and of the benchmarks, by name."""
    found: dict[str, list[str]] = defaultdict(list)
    for folder in (*PACKAGES, BENCH):
        for name, files in of_folder(root, folder).items():
            found[name] += files
    return found


def test_each_type_has_a_name_of_its_own() -> None:
    found = defined_in(ROOT)
    assert {name: files for name, files in found.items() if len(files) > 1 and name not in SHARED} == {}


def test_what_is_shared_is_still_defined_twice() -> None:
    found = defined_in(ROOT)
    assert [name for name in SHARED if len(found.get(name, ())) < 2] == []


def test_no_test_defines_what_a_benchmark_defines() -> None:
    """Tests may reuse a name of the program, for what stands in its place; benchmarks and tests share no names."""
    ours, theirs = of_folder(ROOT, BENCH), of_folder(ROOT, "tests")
    assert {name: files + theirs[name] for name, files in ours.items() if name in theirs} == {}


def test_a_second_definition_is_found(tmp_path: Path) -> None:
    for file, text in (
        ("egress/one.py", "class Wide: ..."),
        ("infra/two.py", "Wide = int | str\nLIMIT = 1\n_Own = int"),
        ("bench/three.py", "class Wide: ..."),
    ):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    assert defined_in(tmp_path) == {"Wide": ["egress/one.py", "infra/two.py", "bench/three.py"]}
