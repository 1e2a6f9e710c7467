"""Where reading a partition begins: committed offset, else the archive, else the start policy. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from replicator.commit_note import Note, read_note
from replicator.coverage import uncovered
from replicator.protocols import Committed, Watermarks
from replicator.segment import OffsetRange, Segment


def is_of(committed: Committed, life: str, *, is_first: bool) -> bool:
    """Whether the offset belongs to this life of the topic. One without a note is an operator's or the ancestor's word
    for the topic as it is; a note without a life is older than later lives are."""
    note = read_note(committed)
    return note is None or note.life == life or (not note.life and is_first)


@dataclass(frozen=True, slots=True)
class Start:
    next_offset: int
    note: Note  # for every commit of this partition
    why: str
    lost: tuple[OffsetRange, ...] = ()  # nowhere any more: written down as gaps before anything behind them is stored


@dataclass(frozen=True, slots=True)
class Hold:
    """Reading would lose or mix records without anybody noticing: an operator decides."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What group, archive and source say of one partition of one life of a topic."""

    committed: Committed | None
    archived: Collection[Segment]
    recorded: Collection[OffsetRange]  # gaps written down before
    marks: Watermarks
    policy_offset: int  # of a partition that is neither committed nor archived
    partition_count: int
    life: str

    @property
    def covered(self) -> list[OffsetRange]:
        """Archived, or known to be nowhere."""
        return [*(s.offsets for s in self.archived), *self.recorded]

    def note(self, begun_at: int) -> Note:
        return Note(begun_at, self.partition_count, self.life)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What an operator decided beforehand."""

    accept_missing_archive: bool = False  # `on_archive_behind`
    record_gaps: bool = False  # `on_gap`


def added_later(partition: int, notes: Collection[Note]) -> bool:
    """Whether the topic had been positioned before this partition existed. `notes` are of all its partitions."""
    return bool(notes) and partition >= min(n.partition_count for n in notes)


def choose_start(facts: Facts, rules: Rules) -> Start | Hold:
    if facts.committed is not None:
        return _from_commit(facts.committed, facts, rules)
    if facts.covered:
        return _from_archive(facts, rules)
    policy_offset = facts.policy_offset
    return _begin(Start(policy_offset, facts.note(policy_offset), "start policy"), policy_offset, facts, rules)


def _from_commit(committed: Committed, facts: Facts, rules: Rules) -> Start | Hold:
    next_offset, told = committed.next_offset, read_note(committed)
    note = facts.note(next_offset if told is None else told.begun_at)
    if told is not None:
        note = replace(note, partition_count=told.partition_count)
    archive_end = max((o.next_offset for o in facts.covered), default=None)
    nothing_expected = told is not None and told.begun_at == next_offset
    # set by an operator to where the source begins now: nothing before it can be archived any more
    gone = told is None and archive_end is not None and next_offset <= facts.marks.low
    if not (nothing_expected or gone) and (archive_end is None or archive_end < next_offset):
        what = "the archive holds nothing" if archive_end is None else f"the archive ends before {archive_end}"
        if not rules.accept_missing_archive:
            return Hold(
                f"the group committed {next_offset}, but {what}: another bucket or prefix, or objects were "
                "removed. Point s3.bucket and s3.prefix at the archive, or set the group's offset back to archive "
                "again from there, or accept the loss with egress.on_archive_behind = 'continue'"
            )
    known_until = next_offset
    if gone and archive_end is not None and rules.record_gaps:
        known_until = min(archive_end, next_offset)  # what the operator skipped is written down all the same
    # What is stored beyond the commit was stored just before a crash, or contradicts us and was refused: it is read
    # again, and a key that is taken tells the one from the other. Skipping it would believe both.
    return _begin(Start(next_offset, note, "committed offset"), known_until, facts, rules)


def _from_archive(facts: Facts, rules: Rules) -> Start | Hold:
    """Behind the archive, but not over a hole in it that the source can still fill."""
    covered, low = facts.covered, facts.marks.low
    begun, end = min(o.start for o in covered), max(o.end for o in covered)
    holes = uncovered(covered, OffsetRange(max(begun, low), end)) if low <= end else []
    why, next_offset = ("first gap of the archive", holes[0].start) if holes else ("end of the archive", end + 1)
    return _begin(Start(next_offset, facts.note(begun), why), begun, facts, rules)


def _begin(wanted: Start, known_until: int, facts: Facts, rules: Rules) -> Start | Hold:
    """As wanted, or where the source begins if that is later; nothing from `known_until` on is passed over in
    silence."""
    next_offset, why = wanted.next_offset, wanted.why
    low, high = facts.marks.low, facts.marks.high
    lost = uncovered(facts.covered, OffsetRange(known_until, low - 1)) if known_until < low else []
    if lost and not rules.record_gaps:
        which = ", ".join(map(str, lost))
        return Hold(
            f"{why} says {next_offset}, but the topic now begins at {low}: retention, or a deletion of records, "
            f"overtook the egress and {which} is gone at the source. To go on without it, set on_gap = 'record' for "
            f"this topic, which writes down what is missing; or set the group's offset to {low}"
        )
    if next_offset > high:
        return Hold(
            f"{why} says {next_offset}, but the topic ends at {high}: it was truncated. Records that were archived are "
            f"no longer in the log, and their offsets will be given to others. Find out which of them count; then give "
            f"the topic another prefix, or set the group's offset"
        )
    return replace(wanted, next_offset=max(next_offset, low), lost=tuple(lost))
