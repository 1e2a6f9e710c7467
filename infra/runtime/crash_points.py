"""Durable steps: named points at which state that outlives the process changes.

A crash may happen before or after any of them without losing or duplicating records. Code marks such a step:

    with durable(Step.COMMIT_OFFSETS):
        consumer.commit(...)

In production there is no observer. The fault suite installs one, and ends the process at a chosen step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class Step(StrEnum):
    # egress
    PROBE_STORE = "probe-store"
    SPOOL_SEGMENT = "spool-segment"
    PUT_SEGMENT = "put-segment"
    CREATE_MULTIPART = "create-multipart"
    PUT_PART = "put-part"
    COMPLETE_MULTIPART = "complete-multipart"
    CLAIM_PATH = "claim-path"
    RECORD_BEGIN = "record-begin"
    LOWER_BEGIN = "lower-begin"  # of an archive whose earlier offsets a backfill has stored
    RECORD_FORK = "record-fork"
    RECORD_GAP = "record-gap"
    PUT_GENERATION = "put-generation"
    COMMIT_OFFSETS = "commit-offsets"
    # sync
    COPY_OBJECT = "copy-object"
    # ingress
    CREATE_INTERNAL_TOPIC = "create-internal-topic"
    CREATE_TOPIC = "create-topic"
    RECORD_OWNERSHIP = "record-ownership"
    GROW_TOPIC = "grow-topic"
    CHANGE_CONFIGS = "change-configs"
    DELETE_TOPIC = "delete-topic"
    CREATE_ACLS = "create-acls"
    DELETE_ACLS = "delete-acls"
    PUBLISH_EVENT = "publish-event"
    DELETE_MESSAGE = "delete-message"
    ANSWER_PROBE = "answer-probe"  # of the doctor
    BEGIN_TRANSACTION = "begin-transaction"
    PRODUCE_RECORDS = "produce-records"
    PRODUCE_OFFSET_MAP = "produce-offset-map"
    PRODUCE_CHECKPOINT = "produce-checkpoint"
    SEND_OFFSETS = "send-offsets"
    COMMIT_TRANSACTION = "commit-transaction"
    ABORT_TRANSACTION = "abort-transaction"
    FILL_HOLE = "fill-hole"  # of a partition that keeps the source's offsets
    END_HOLE = "end-hole"
    TAKE_PARTITION = "take-partition"
    LEAVE_PARTITION = "leave-partition"
    PARK = "park"
    RECORD_WAITING = "record-waiting"
    CLAIM_GROUP = "claim-group"
    WITHDRAW_CLAIM = "withdraw-claim"
    COMMIT_GROUP = "commit-group"
    WRITE_CHECKPOINTS = "write-checkpoints"  # of groups, to MirrorMaker 2's topics
    TRIM_OFFSET_MAP = "trim-offset-map"
    COPY_OFFSET_MAP = "copy-offset-map"  # or note in the bucket what was trimmed
    WRITE_HEARTBEAT = "write-heartbeat"  # to a topic, of egress too
    # compaction
    DELETE_SEGMENTS = "delete-segments"
    REMOVE_GAPS = "remove-gaps"
    EXPIRE_SEGMENTS = "expire-segments"
    ABORT_UPLOADS = "abort-uploads"
    THIN_GENERATIONS = "thin-generations"
    QUARANTINE = "quarantine"
    TAKE_LEASE = "take-lease"
    HEARTBEAT = "heartbeat"
    RECORD_RUN = "record-run"
    # restore, beside those of ingress
    TAKE_OVER = "take-over"
    RECORD_CUT = "record-cut"  # where a restore to a moment ends
    THAW = "thaw"
    DELETE_RECORDS = "delete-records"
    # operator
    SEND_PROBE = "send-probe"
    REMOVE_PROBE = "remove-probe"
    RECORD_PROOF = "record-proof"
    SET_ASIDE = "set-aside"  # a copy of a damaged segment's bytes
    REMOVE_DAMAGED = "remove-damaged"
    END_QUARANTINE = "end-quarantine"
    SEED_CHECKPOINT = "seed-checkpoint"
    RECORD_SKIP = "record-skip"
    EXPORT_POSITIONS = "export-positions"
    SET_SCHEMA_MODE = "set-schema-mode"
    REGISTER_SCHEMA = "register-schema"
    DELETE_SCHEMA = "delete-schema"
    SET_COMPATIBILITY = "set-compatibility"


BEFORE, AFTER = "before", "after"
StepObserver = Callable[[Step, str], None]

_observer: StepObserver | None = None


def observe(observer: StepObserver | None) -> None:
    """Set the observer, which is called with each step and BEFORE or AFTER, on the step's thread. None: remove it."""
    global _observer  # noqa: PLW0603 -- a process has one observer
    _observer = observer


@contextmanager
def durable(step: Step) -> Iterator[None]:
    """Mark a durable step. The observer gets AFTER only when the block ends without an exception."""
    if _observer is not None:
        _observer(step, BEFORE)
    yield
    if _observer is not None:
        _observer(step, AFTER)
