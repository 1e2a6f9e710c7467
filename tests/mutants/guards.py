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
EGRESS_BROKER: Stage = ("tests/integration/test_incarnations_and_gaps.py",)
RESTORE: tuple[Stage, ...] = (("tests/replicator/restore", "tests/replicator/verify"),)
RESTORE_BROKER: Stage = (
    "tests/replicator/commands/test_restore_commands.py",
    "tests/replicator/restore/test_restore_on_broker.py",
)
INGRESS: tuple[Stage, ...] = (("tests/ingress",), ("tests/stateful/test_ingress_process.py",), *RESTORE)
INGRESS_BROKER: Stage = (
    "tests/integration/test_ingress_incarnations.py",
    "tests/integration/test_incarnations_and_gaps.py",
)
COMPACTION: tuple[Stage, ...] = (("tests/compaction",),)
COMPACTION_SPARK: Stage = ("tests/integration/test_compaction.py", "tests/integration/test_gc.py")
FORMATS: tuple[Stage, ...] = (("tests/formats",), ("tests/compaction", *RESTORE[0]))
ARCHIVE: Stage = ("tests/infra/archive",)
DRILL: Stage = ("tests/processes/test_drill.py",)
MESSAGES: Stage = ("tests/formats/messages",)
SEQUENCER: Stage = ("tests/stateful/test_sequencer.py", "tests/stateful/test_sequencer_steps.py")
PRESERVING: Stage = (
    "tests/infra/kafka/producer/test_preserving_in_memory.py",
    "tests/infra/kafka/producer/test_preserving_parts.py",
    "tests/replicator/services/test_preserving_session.py",
    "tests/replicator/services/test_preserve_plan.py",
)
PRESERVING_BROKER: Stage = ("tests/infra/kafka/producer/test_preserving.py",)
STREAM: Stage = ("tests/replicator/spark_source",)
STREAM_POSITIONS: Stage = ("tests/replicator/spark_source/test_stream_positions.py",)
STREAM_SPARK: Stage = ("tests/integration/test_spark_stream.py",)
SHARED: tuple[Stage, ...] = (
    ("tests/formats", *ARCHIVE),
    ("tests/egress", "tests/ingress"),
    ("tests/compaction",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    group: str
    stages: tuple[Stage, ...]  # each is run when those before saw nothing
    broker: tuple[Stage, ...] = ()  # the same, with brokers or Spark


def _row(group: str, *stages: Stage, broker: tuple[Stage, ...] = ()) -> Guards:
    return Guards(group=group, stages=stages, broker=broker)


TABLE: Sequence[tuple[str, Guards]] = (
    ("*/__init__.py", _row("")),
    ("*settings.py", _row("")),
    ("egress/partition.py", _row("egress", ("tests/stateful/test_egress_partition.py",), *EGRESS)),
    ("egress/*.py", _row("egress", *EGRESS, broker=(EGRESS_BROKER,))),
    ("ingress/partition_log.py", _row("")),  # words and metrics
    ("ingress/sequencer.py", _row("ingress", SEQUENCER, *INGRESS)),
    ("ingress/segment_view.py", _row("ingress", ("tests/stateful/test_view.py",), *INGRESS)),
    (
        "ingress/repair.py",
        _row("ingress", ("tests/ingress",), broker=(("tests/integration/test_operator_commands.py",),)),
    ),
    ("ingress/*.py", _row("ingress", *INGRESS, broker=(INGRESS_BROKER,))),
    ("compaction/*.py", _row("compaction", *COMPACTION, broker=(COMPACTION_SPARK,))),
    ("formats/errors.py", _row("")),
    ("formats/messages/delivery_checkpoint.py", _row("ingress", (*MESSAGES, "tests/ingress"), ("tests/infra/kafka",))),
    ("formats/messages/checkpoint_notes.py", _row("egress", MESSAGES, *EGRESS)),
    ("formats/messages/*.py", _row("ingress", MESSAGES, ("tests/ingress",))),
    (
        "formats/coverage.py",
        _row(
            "ingress",
            ("tests/formats/test_coverage.py",),
            (*SEQUENCER, "tests/compaction", "tests/ingress"),
            *RESTORE,
        ),
    ),
    ("formats/read_splits.py", _row("restore", ("tests/formats",), *RESTORE)),
    ("formats/control/*.py", _row("formats", *SHARED)),
    ("formats/incarnation.py", _row("formats", *SHARED)),
    ("formats/segment.py", _row("formats", *SHARED)),
    ("formats/*.py", _row("formats", *FORMATS)),
    ("infra/archive/archive.py", _row("formats", *SHARED)),
    ("infra/archive/control.py", _row("formats", *SHARED)),
    ("infra/archive/segments.py", _row("formats", *SHARED)),
    ("infra/archive/upload.py", _row("formats", ("tests/egress",), ("tests/compaction",), ARCHIVE)),
    ("infra/archive/lease.py", _row("compaction", ARCHIVE, *COMPACTION)),
    ("infra/archive/read.py", _row("formats", ARCHIVE, ("tests/compaction", *RESTORE[0]))),
    ("infra/archive/offset_for_time.py", _row("ingress", ARCHIVE, *INGRESS)),
    ("infra/archive/run_reader.py", _row("ingress", ARCHIVE, *INGRESS)),
    *(
        (f"infra/kafka/producer/{name}.py", _row("preserve", PRESERVING, broker=(PRESERVING_BROKER,)))
        for name in ("preserv*", "hole_filler", "owned_logs", "departure_log")
    ),
    ("infra/runtime/lookups.py", _row("ingress", ("tests/infra/runtime/test_lookups.py",), *EGRESS, *INGRESS)),
    ("replicator/selection.py", _row("restore", *RESTORE, broker=(RESTORE_BROKER,))),
    ("replicator/restore/restore.py", _row("restore", broker=(RESTORE_BROKER,))),
    ("replicator/restore/worker.py", _row("restore", broker=(RESTORE_BROKER,))),
    ("replicator/restore/spark_task.py", _row("")),
    ("replicator/restore/*.py", _row("restore", *RESTORE, broker=(RESTORE_BROKER,))),
    ("replicator/verify/verify.py", _row("verify", broker=(RESTORE_BROKER, DRILL))),
    ("replicator/verify/spark_task.py", _row("")),
    ("replicator/verify/*.py", _row("verify", *RESTORE, broker=(RESTORE_BROKER,))),
    ("replicator/drill.py", _row("verify", ("tests/replicator/test_drill_on_fakes.py",), broker=(DRILL,))),
    ("replicator/spark_source/rows.py", _row("formats", ARCHIVE)),
    ("replicator/spark_source/positions.py", _row("spark", STREAM_POSITIONS, STREAM)),
    ("replicator/spark_source/reach.py", _row("spark", STREAM)),
    ("replicator/spark_source/stream.py", _row("spark", STREAM, broker=(STREAM_SPARK,))),
)


def guards_of(module: str) -> Guards | None:
    """None for a module that bears no load."""
    found = next((guards for pattern, guards in TABLE if fnmatchcase(module, pattern)), None)
    return found if found is not None and found.group else None


def nearest(module: str, root: Path = ROOT) -> Iterator[Stage]:
    """Files of tests with the module's own name, which see most mistakes within a second. Of a state machine, the name
    may begin with the package's: both flows have an assigned partition."""
    path = Path(module)
    for name in (
        f"{path.parent.as_posix()}/test_{path.stem}.py",
        f"stateful/test_{path.stem}.py",
        f"stateful/test_{path.parts[0]}_{path.stem}.py",
    ):
        if (root / "tests" / name).exists():
            yield (f"tests/{name}",)


def modules(root: Path = ROOT) -> Iterator[str]:
    """Those that bear load."""
    for package in ("egress", "ingress", "compaction", "formats", "infra", "replicator"):
        for path in sorted((root / package).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if guards_of(name) is not None:
                yield name
