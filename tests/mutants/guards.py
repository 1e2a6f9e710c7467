"""Which modules bear load, and which tests guard each: the nearest first, what needs brokers last.

A module that is in no row bears none: it wires, words or shows. The first row that fits holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

Stage = tuple[str, ...]  # files and folders of tests, run together

EGRESS: tuple[Stage, ...] = (("tests/egress",), ("tests/stateful/test_egress_process.py",))
EGRESS_BROKER: Stage = ("tests/integration/test_lives_and_gaps.py",)
INGRESS: tuple[Stage, ...] = (("tests/ingress",), ("tests/stateful/test_ingress_process.py",), ("tests/restore",))
INGRESS_BROKER: Stage = ("tests/integration/test_ingress_lives.py", "tests/integration/test_lives_and_gaps.py")
COMPACTION: tuple[Stage, ...] = (("tests/compaction",),)
COMPACTION_SPARK: Stage = ("tests/integration/test_compaction.py", "tests/integration/test_gc.py")
FORMATS: tuple[Stage, ...] = (("tests/formats",), ("tests/compaction", "tests/restore"))
RESTORE: tuple[Stage, ...] = (("tests/restore",),)
RESTORE_BROKER: Stage = ("tests/restore/test_commands.py", "tests/restore/test_restore_on_broker.py")
DRILL: Stage = ("tests/processes/test_drill.py",)
SHARED: tuple[Stage, ...] = (("tests/replicator",), ("tests/egress", "tests/ingress"), ("tests/compaction",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    group: str
    stages: tuple[Stage, ...]  # each is run when those before saw nothing
    broker: tuple[Stage, ...] = ()  # the same, with brokers or Spark


def _row(group: str, *stages: Stage, broker: tuple[Stage, ...] = ()) -> Guards:
    return Guards(group=group, stages=stages, broker=broker)


TABLE: Sequence[tuple[str, Guards]] = (
    ("egress/__init__.py", _row("")),
    ("egress/partition.py", _row("egress", ("tests/stateful/test_egress_partition.py",), *EGRESS)),
    ("egress/*.py", _row("egress", *EGRESS, broker=(EGRESS_BROKER,))),
    ("ingress/__init__.py", _row("")),
    ("ingress/telling.py", _row("")),  # words and metrics
    ("ingress/sequencer.py", _row("ingress", ("tests/stateful/test_sequencer.py",), *INGRESS)),
    ("ingress/verification.py", _row("verify", *RESTORE, broker=(RESTORE_BROKER,))),
    ("ingress/report.py", _row("verify", *RESTORE, broker=(RESTORE_BROKER,))),
    ("ingress/restor*.py", _row("restore", *RESTORE, broker=(RESTORE_BROKER,))),
    ("ingress/objections.py", _row("restore", *RESTORE, broker=(RESTORE_BROKER,))),
    ("ingress/newcomers.py", _row("restore", *RESTORE, broker=(RESTORE_BROKER,))),
    ("ingress/selection.py", _row("restore", *RESTORE, broker=(RESTORE_BROKER,))),
    (
        "ingress/operator.py",
        _row("ingress", ("tests/ingress",), broker=(("tests/integration/test_operator_commands.py",),)),
    ),
    ("ingress/*.py", _row("ingress", *INGRESS, broker=(INGRESS_BROKER,))),
    ("compaction/__init__.py", _row("")),
    ("compaction/*.py", _row("compaction", *COMPACTION, broker=(COMPACTION_SPARK,))),
    ("formats/__init__.py", _row("")),
    ("formats/uploads.py", _row("formats", ("tests/egress",), ("tests/compaction",), ("tests/formats",))),
    ("formats/*.py", _row("formats", *FORMATS)),
    ("replicator/restore.py", _row("restore", broker=(RESTORE_BROKER,))),
    ("replicator/restore_worker.py", _row("restore", broker=(RESTORE_BROKER,))),
    ("replicator/verify.py", _row("verify", broker=(RESTORE_BROKER, DRILL))),
    ("replicator/drill.py", _row("verify", broker=(DRILL,))),
    ("replicator/checkpoint.py", _row("ingress", ("tests/replicator", "tests/ingress"), ("tests/infra",))),
    ("replicator/view.py", _row("ingress", ("tests/stateful/test_view.py",), *INGRESS)),
    (
        "replicator/coverage.py",
        _row(
            "ingress",
            ("tests/replicator/test_coverage.py",),
            ("tests/stateful/test_sequencer.py", "tests/compaction", "tests/ingress"),
            *RESTORE,
        ),
    ),
    ("replicator/stretches.py", _row("restore", ("tests/replicator",), *RESTORE)),
    ("replicator/commit_note.py", _row("egress", ("tests/replicator",), *EGRESS)),
    ("replicator/notes.py", _row("egress", ("tests/replicator",), *EGRESS)),
    ("replicator/notifications.py", _row("ingress", ("tests/replicator",), ("tests/ingress",))),
    ("replicator/events.py", _row("ingress", ("tests/replicator",), ("tests/ingress",))),
    ("replicator/control.py", _row("formats", *SHARED)),
    ("replicator/control_store.py", _row("formats", *SHARED)),
    ("replicator/segment.py", _row("formats", *SHARED)),
    ("replicator/store.py", _row("formats", *SHARED)),
)


def guards_of(module: str) -> Guards | None:
    """None for a module that bears no load."""
    found = next((guards for pattern, guards in TABLE if fnmatchcase(module, pattern)), None)
    return found if found is not None and found.group else None


def nearest(module: str, root: Path = ROOT) -> Iterator[Stage]:
    """Files of tests with the module's own name, which see most mistakes within a second."""
    path = Path(module)
    for folder in (path.parts[0], "stateful", "restore"):
        file = root / "tests" / folder / f"test_{path.stem}.py"
        if file.exists():
            yield (file.relative_to(root).as_posix(),)


def modules(root: Path = ROOT) -> Iterator[str]:
    """Those that bear load."""
    for package in ("egress", "ingress", "compaction", "formats", "replicator"):
        for path in sorted((root / package).glob("*.py")):
            name = path.relative_to(root).as_posix()
            if guards_of(name) is not None:
                yield name
