"""Where reading a partition begins: committed offset, else the archive, else the start policy. Pure.

Each commit carries a note, `start=<offset> partitions=<count>`, which never changes again: where the archive of this
partition was begun, so that a partition that was positioned but never had a record is told from one whose archive is
missing; and how many partitions the topic had then, so that those added later are known as such.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from replicator.coverage import Gap, steps
from replicator.protocols import Committed, Watermarks
from replicator.segment import Segment


@dataclass(frozen=True, slots=True)
class Note:
    begun_at: int  # first offset this archive was ever meant to hold
    partition_count: int

    def __str__(self) -> str:
        return f"start={self.begun_at} partitions={self.partition_count}"


_NOTE = re.compile(r"start=(\d{1,19}) partitions=(\d{1,9})")


def read_note(committed: Committed) -> Note | None:
    """None when somebody else (the ancestor, an operator) made the commit."""
    match = _NOTE.fullmatch(committed.metadata)
    return Note(int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True, slots=True)
class Start:
    next_offset: int
    note: Note  # for every commit of this partition
    why: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Reading would lose or mix records without anybody noticing: an operator decides."""

    reason: str


def added_later(partition: int, notes: Collection[Note]) -> bool:
    """Whether the topic had been positioned before this partition existed. `notes` are of all its partitions."""
    return bool(notes) and partition >= min(n.partition_count for n in notes)


def choose_start(
    committed: Committed | None,
    archived: Collection[Segment],
    marks: Watermarks,
    policy_offset: int,
    partition_count: int,
    *,
    accept_missing_archive: bool,
) -> Start | Hold:
    """`policy_offset` is what the start policy says for a partition that is neither committed nor archived."""
    if committed is not None:
        note = read_note(committed) or Note(committed.next_offset, partition_count)
        return _from_commit(committed, note, archived, marks, accept_missing_archive=accept_missing_archive)
    if archived:
        return _from_archive(archived, marks, partition_count)
    return _checked(policy_offset, Note(policy_offset, partition_count), marks, "start policy")


def _from_commit(
    committed: Committed,
    note: Note,
    archived: Collection[Segment],
    marks: Watermarks,
    *,
    accept_missing_archive: bool,
) -> Start | Hold:
    archive_end = max((s.offsets.next_offset for s in archived), default=None)
    nothing_expected = read_note(committed) is not None and note.begun_at == committed.next_offset
    # set by an operator to where the source begins now: nothing before it can be archived any more
    gone = read_note(committed) is None and archive_end is not None and committed.next_offset <= marks.low
    if not (nothing_expected or gone) and (archive_end is None or archive_end < committed.next_offset):
        what = "the archive holds nothing" if archive_end is None else f"the archive ends before {archive_end}"
        if not accept_missing_archive:
            return Hold(
                f"the group committed {committed.next_offset}, but {what}: another bucket or prefix, or objects were "
                "removed. Point s3.bucket and s3.prefix at the archive, or set the group's offset back to archive "
                "again from there, or accept the loss with egress.on_archive_behind = 'continue'"
            )
    # What is stored beyond the commit was stored just before a crash, or contradicts us and was refused: it is read
    # again, and a key that is taken tells the one from the other. Skipping it would believe both.
    return _checked(committed.next_offset, note, marks, "committed offset")


def _from_archive(archived: Collection[Segment], marks: Watermarks, partition_count: int) -> Start | Hold:
    """Behind the archive, but not over a hole in it that the source can still fill."""
    next_offset = min(s.offsets.start for s in archived)
    note = Note(next_offset, partition_count)
    for step in steps(archived, next_offset):
        if isinstance(step, Gap) and step.offsets.end >= marks.low:
            return _checked(max(step.offsets.start, marks.low), note, marks, "first gap of the archive")
        next_offset = step.offsets.next_offset
    return _checked(next_offset, note, marks, "end of the archive")


def _checked(next_offset: int, note: Note, marks: Watermarks, why: str) -> Start | Hold:
    if next_offset < marks.low:
        return Hold(
            f"{why} says {next_offset}, but the topic now begins at {marks.low}: retention overtook the egress and "
            f"[{next_offset},{marks.low - 1}] is gone at the source. To go on without it, set the group's offset to "
            f"{marks.low}"
        )
    if next_offset > marks.high:
        return Hold(
            f"{why} says {next_offset}, but the topic ends at {marks.high}: it was truncated or created again. "
            f"If that is right, give the new topic another prefix, or set the group's offset"
        )
    return Start(next_offset, note, why)
