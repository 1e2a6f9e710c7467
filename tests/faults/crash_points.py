"""Where each durable step is made, and how a process gets there; or why nothing here gets there.

A new step belongs here as soon as product code makes it: a test asks.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from pathlib import Path

from infra.runtime.crash_points import Step

ROOT = Path(__file__).resolve().parent.parent.parent
PRODUCT = ("replicator", "egress", "ingress", "compaction", "formats", "infra")


class Side(Enum):
    EGRESS = "egress"
    INGRESS = "ingress"

    def __lt__(self, other: Side) -> bool:
        return self.value < other.value


class Scene(Enum):
    """What goes on when the victim gets there."""

    FLOW = auto()  # records of every kind
    BIG = auto()  # and segments above the part size, with little memory
    REFUSED = auto()  # and the target takes no large records, until the victim is dead
    LATE = auto()  # and the first segment of a partition is missing, until the victim is dead


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    side: Side
    scene: Scene = Scene.FLOW
    occurrence: int = 2


EGRESS, INGRESS = Side.EGRESS, Side.INGRESS

WAYS: Mapping[Step, Way] = {
    Step.PROBE_STORE: Way(side=EGRESS, occurrence=1),
    Step.SPOOL_SEGMENT: Way(side=EGRESS, scene=Scene.BIG, occurrence=1),
    Step.PUT_SEGMENT: Way(side=EGRESS, occurrence=3),
    Step.CREATE_MULTIPART: Way(side=EGRESS, scene=Scene.BIG, occurrence=1),
    Step.PUT_PART: Way(side=EGRESS, scene=Scene.BIG, occurrence=2),
    Step.COMPLETE_MULTIPART: Way(side=EGRESS, scene=Scene.BIG, occurrence=1),
    Step.COMMIT_OFFSETS: Way(side=EGRESS, occurrence=2),
    Step.PUT_GENERATION: Way(side=EGRESS, occurrence=2),  # the first catalogue, after the first heartbeat
    Step.CREATE_INTERNAL_TOPIC: Way(side=INGRESS, occurrence=2),  # the checkpoints', once the events' is there
    Step.CREATE_TOPIC: Way(side=INGRESS, occurrence=1),
    Step.RECORD_OWNERSHIP: Way(side=INGRESS, occurrence=2),  # the entry, after the intent and the creation
    Step.CHANGE_CONFIGS: Way(side=INGRESS, occurrence=1),  # the retention, once the first copy is through
    Step.PUBLISH_EVENT: Way(side=INGRESS, occurrence=2),
    Step.DELETE_MESSAGE: Way(side=INGRESS, occurrence=2),
    Step.CLAIM_PATH: Way(side=EGRESS, occurrence=1),
    Step.RECORD_BEGIN: Way(side=EGRESS, occurrence=1),
    Step.BEGIN_TRANSACTION: Way(side=INGRESS, occurrence=3),
    Step.PRODUCE_RECORDS: Way(side=INGRESS, occurrence=3),
    Step.PRODUCE_OFFSET_MAP: Way(side=INGRESS, occurrence=3),
    Step.PRODUCE_CHECKPOINT: Way(side=INGRESS, occurrence=3),
    Step.SEND_OFFSETS: Way(side=INGRESS, occurrence=3),
    Step.COMMIT_TRANSACTION: Way(side=INGRESS, occurrence=3),
    Step.ABORT_TRANSACTION: Way(side=INGRESS, scene=Scene.REFUSED, occurrence=1),
    Step.PARK: Way(side=INGRESS, scene=Scene.REFUSED, occurrence=1),
    Step.CLAIM_GROUP: Way(side=INGRESS, occurrence=1),
    Step.RECORD_WAITING: Way(side=INGRESS, scene=Scene.LATE, occurrence=1),
}

# Of commands that end by themselves, without traffic: which of the times that a step is made
# (tests/faults/test_restore_killed.py, test_compaction_killed.py, test_sync_killed.py).
RESTORE: Mapping[Step, int] = {
    Step.CREATE_TOPIC: 1,
    Step.TAKE_OVER: 2,  # once for each batch size
    Step.BEGIN_TRANSACTION: 3,  # the first is that of the checkpoints which say that it begins
    Step.PRODUCE_RECORDS: 3,
    Step.PRODUCE_OFFSET_MAP: 1,
    Step.PRODUCE_CHECKPOINT: 1,
    Step.COMMIT_TRANSACTION: 3,
}
# Of a restore that empties its destination first (tests/faults/test_purge_killed.py).
PURGE: Mapping[Step, tuple[int, ...]] = {
    Step.DELETE_RECORDS: (1,),
    Step.BEGIN_TRANSACTION: (1,),  # of the checkpoints which say that it begins: until then it is emptied again
    Step.COMMIT_TRANSACTION: (1, 3),
}
# Of a restore to a moment, with groups (tests/faults/test_moment_killed.py).
MOMENT: Mapping[Step, tuple[int, ...]] = {
    Step.RECORD_CUT: (1,),
    Step.COMMIT_TRANSACTION: (1, 3),
    Step.COMMIT_GROUP: (1, 2),
}
# Of one that keeps the source's offsets (tests/faults/test_restore_keeps_offsets_killed.py).
KEEPING: Mapping[Step, tuple[int, ...]] = {
    Step.TAKE_OVER: (3, 4),  # the first proof of ownership, and that of the partition's transactional id
    Step.PRODUCE_RECORDS: (1, 2),  # the first is that of the checkpoints which say that it begins
    Step.BEGIN_TRANSACTION: (2, 3),
    Step.FILL_HOLE: (1, 2),
    Step.END_HOLE: (1, 2, 4),
    Step.DELETE_RECORDS: (1,),
    Step.PRODUCE_OFFSET_MAP: (2,),
    Step.PRODUCE_CHECKPOINT: (2,),
    Step.COMMIT_GROUP: (1, 2),
}
COMPACT: Mapping[Step, tuple[int, ...]] = {
    Step.TAKE_LEASE: (1, 2),  # the second gives it back
    Step.PUT_SEGMENT: (2,),
    Step.CREATE_MULTIPART: (1,),
    Step.PUT_PART: (2,),
    Step.COMPLETE_MULTIPART: (1,),
    Step.DELETE_SEGMENTS: (2,),
    Step.QUARANTINE: (1,),
    Step.THIN_GENERATIONS: (1,),
}
GC: Mapping[Step, tuple[int, ...]] = {
    Step.TAKE_LEASE: (1, 2),
    Step.RECORD_GAP: (2,),
    Step.REMOVE_GAPS: (1,),
    Step.EXPIRE_SEGMENTS: (2,),
    Step.ABORT_UPLOADS: (1,),
    Step.THIN_GENERATIONS: (1,),
    Step.DELETE_SEGMENTS: (1,),
    Step.QUARANTINE: (1,),
}

# Of an egress that finds that its source's log has forked (tests/faults/test_fork_killed.py).
FORK: Mapping[Step, int] = {Step.RECORD_FORK: 1}
# Of an ingress that keeps the source's offsets (tests/faults/test_preserving_killed.py).
PRESERVE: Mapping[Step, int] = {
    Step.TAKE_OVER: 1,
    Step.TAKE_PARTITION: 1,
    Step.PRODUCE_RECORDS: 2,
    Step.BEGIN_TRANSACTION: 2,
    Step.FILL_HOLE: 2,
    Step.END_HOLE: 2,
    Step.PRODUCE_CHECKPOINT: 2,
}
# Of one whose source's log begins later: it fills what is before, in several transactions, and removes it.
PRESERVE_PREFIX: Mapping[Step, tuple[int, ...]] = {
    Step.TAKE_OVER: (1,),
    Step.BEGIN_TRANSACTION: (1, 2),
    Step.FILL_HOLE: (1, 2),
    Step.END_HOLE: (1, 2),
    Step.DELETE_RECORDS: (1,),
    Step.PRODUCE_RECORDS: (1,),
    Step.PRODUCE_OFFSET_MAP: (1,),
    Step.PRODUCE_CHECKPOINT: (1,),
}
SYNC: Mapping[Step, tuple[int, ...]] = {
    Step.COPY_OBJECT: (1, 4),
    Step.CREATE_MULTIPART: (1,),
    Step.PUT_PART: (2,),
    Step.COMPLETE_MULTIPART: (1,),
}

# Of a backfill: which of the times, in which of its scenes (tests/faults/test_backfill_killed.py).
BACKFILL: Mapping[Step, tuple[int, ...]] = {
    Step.PROBE_STORE: (1,),
    Step.TAKE_LEASE: (1, 2),
    Step.CLAIM_PATH: (1,),
    Step.RECORD_BEGIN: (1, 2),  # of each partition
    Step.PUT_SEGMENT: (1, 3),
}
BACKFILL_EARLIER: Mapping[Step, tuple[int, ...]] = {
    Step.PUT_SEGMENT: (2,),
    Step.RECORD_GAP: (1, 2),
    Step.LOWER_BEGIN: (1, 2),
}
BACKFILL_LARGE: Mapping[Step, tuple[int, ...]] = {
    Step.SPOOL_SEGMENT: (1,),
    Step.CREATE_MULTIPART: (1,),
    Step.PUT_PART: (2,),
    Step.COMPLETE_MULTIPART: (1,),
}

# Of a failover, of the handover of its groups, and of taking them back (tests/faults/test_failover_killed.py).
FAILOVER: Mapping[Step, tuple[int, ...]] = {
    Step.RECORD_OWNERSHIP: (1, 2, 3, 4),  # begun, snapshot chosen, offsets about to be committed, active
    Step.COMMIT_GROUP: (1,),
}
# Of one whose destinations only ingress may write to, until it is through.
RELEASE: Mapping[Step, tuple[int, ...]] = {
    Step.DELETE_ACLS: (1,),
    Step.RECORD_OWNERSHIP: (4, 5),  # the ACL is ours no more, active
}
HANDOVER: Mapping[Step, tuple[int, ...]] = {Step.PUT_GENERATION: (1,), Step.RECORD_OWNERSHIP: (1,)}
TAKE_BACK: Mapping[Step, tuple[int, ...]] = {Step.RECORD_OWNERSHIP: (1, 2), Step.COMMIT_GROUP: (1,)}

_OPERATOR = "an operator's command writes one acknowledged record and ends; repeated it changes nothing"
_DIFFERENCE = "wants a source that changes meanwhile; what is not done is a difference still, at each of these steps: "
_DIFFERENCE += "tests/ingress/catalog/test_killed_applier.py"
_REPAIR = "an operator's command, which goes on from what it finds; ended before and after each of its steps: "
_REPAIR += "tests/infra/archive/test_segment_repair.py"
_SCHEMAS = "wants a schema registry; ended before and after each of these: tests/replicator/test_schema_restore.py"
_DOCTOR = "only a doctor reads it, and its next run removes what is left; ended before and after each of these: "
_DOCTOR += "tests/infra/archive/test_notification_probes.py"
ELSEWHERE: Mapping[Step, str] = {
    Step.THAW: "asking again is harmless, and nothing of ours depends on it "
    "(tests/replicator/commands/test_restore_commands.py)",
    # egress's and operators', that is
    Step.RECORD_GAP: "wants records deleted from the source: the judge of lost records would have to know them",
    Step.WITHDRAW_CLAIM: "wants two groups that start at once; a claim that is left behind says nothing "
    "(tests/stateful/test_group_claims.py)",
    Step.GROW_TOPIC: _DIFFERENCE,
    Step.DELETE_TOPIC: "wants a topic that is deleted at its source meanwhile; ended before and after it, the next one "
    "deletes it: tests/ingress/catalog/test_removals.py",
    Step.CREATE_ACLS: _DIFFERENCE,
    Step.DELETE_ACLS: _DIFFERENCE,
    Step.TRIM_OFFSET_MAP: "wants a target that deletes records meanwhile; pages that stay are removed by the next one, "
    "ended before and after each step: tests/ingress/groups/test_killed_trimmer.py",
    Step.COPY_OFFSET_MAP: "what is not copied is copied by the next one, ended before and after each step: "
    "tests/infra/archive/test_offset_maps.py",
    Step.HEARTBEAT: "only status believes it, and of a process that died until it is over (tests/compaction)",
    Step.RECORD_RUN: "only status and a metric believe it; a run that is not recorded counts as missed until the next "
    "(tests/compaction/test_missed_runs.py)",
    Step.WRITE_HEARTBEAT: "a record that was not written, or twice, is followed by the next one; no position depends "
    "on it (tests/ingress/test_heartbeats.py)",
    Step.WRITE_CHECKPOINTS: "the topic is read before each write, and what is not in it is due still, in any process "
    "(tests/ingress/groups/test_mirror_records.py)",
    Step.COMMIT_GROUP: "recorded before; what is recorded and not committed is due still, and never moved back "
    "(tests/ingress/groups/test_target_groups.py)",
    Step.LEAVE_PARTITION: "the last that an owner does; without it the next one waits, as after a kill: "
    "tests/infra/kafka/producer/test_preserving.py",
    Step.RECORD_PROOF: "only status reads it; without it the proof before is shown "
    "(tests/infra/archive/test_proofs.py)",
    Step.SET_ASIDE: _REPAIR,
    Step.REMOVE_DAMAGED: _REPAIR,
    Step.END_QUARANTINE: _REPAIR,
    Step.SEND_PROBE: _DOCTOR,
    Step.ANSWER_PROBE: _DOCTOR,
    Step.REMOVE_PROBE: _DOCTOR,
    Step.SEED_CHECKPOINT: _OPERATOR,
    Step.RECORD_SKIP: _OPERATOR,
    Step.EXPORT_POSITIONS: "written while both programs are stopped, and repeated without harm "
    "(tests/integration/test_operator_commands.py)",
    Step.SET_SCHEMA_MODE: _SCHEMAS,
    Step.REGISTER_SCHEMA: _SCHEMAS,
    Step.DELETE_SCHEMA: _SCHEMAS,
    Step.SET_COMPATIBILITY: _SCHEMAS,
}
"""Steps that product code makes and that no process gets to here, each with the reason."""


@cache
def made(root: Path = ROOT) -> Mapping[Step, str]:
    """Every step that product code makes: `durable(Step.X)`, with the place of one."""
    found: dict[Step, str] = {}
    for package in PRODUCT:
        for path in sorted((root / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "durable(" in text else ():
                match node:
                    case ast.Call(
                        func=ast.Name(id="durable"),
                        args=[ast.Attribute(value=ast.Name(id="Step"), attr=name)],
                    ):
                        found[Step[name]] = f"{path.relative_to(root)}:{node.lineno}"
    return found
