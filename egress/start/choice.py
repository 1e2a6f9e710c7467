"""Decides where reading a partition begins: at the committed offset, else at the archive's end, else where the archive
begins. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from egress.start.commit_metadata import CommitMetadata, read_commit_metadata
from egress.topics.claims import Blocked
from formats.control.fork import LogFork
from formats.control.gap import RecordedGap
from formats.coverage import uncovered
from formats.forks import accepted_until, explain, unresolved
from formats.log_point import LogPoint
from formats.segment import OffsetRange
from infra.contracts.cluster import Committed, Watermarks

ARCHIVE_END = "end of the archive"


def is_of(committed: Committed, incarnation_id: str, *, is_first: bool) -> bool:
    """Whether the offset belongs to this incarnation of the topic. An offset without our metadata was committed by an
    operator or by the ancestor, for the topic as it is now. Metadata without a topic id is older than every later
    incarnation."""
    metadata = read_commit_metadata(committed)
    return metadata is None or metadata.incarnation_id == incarnation_id or (not metadata.incarnation_id and is_first)


@dataclass(frozen=True, slots=True)
class Start:
    next_offset: int
    metadata: CommitMetadata  # for every commit of this partition
    why: str
    lost: tuple[OffsetRange, ...] = ()  # gone at the source: recorded as gaps before anything after them is stored
    point: LogPoint | None = None  # of the archived log; the log that is read has to be the same one


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last record archived before a start."""

    offset: int
    leader_epoch: int | None  # None: the footer does not have it

    @property
    def point(self) -> LogPoint | None:
        return None if self.leader_epoch is None else LogPoint(self.offset + 1, self.leader_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFacts:
    """What the group, the archive and the source know of one partition of one incarnation of a topic."""

    committed: Committed | None
    archived: Collection[OffsetRange]  # covered by segments: all, or those around and after the committed offset
    recorded: Collection[OffsetRange]  # recorded gaps
    marks: Watermarks
    policy_offset: int  # start of a partition without a recorded begin of its archive
    partition_count: int
    incarnation_id: str
    begun: int | None = None  # where its archive begins: as recorded, or as the path before the fork implies
    forks: Collection[LogFork] = ()
    gaps: Collection[RecordedGap] = ()  # records of the gaps; only where there is a fork
    accepted_before: int = -1  # the next offset after the forks accepted in the path before; −1: none

    @property
    def covered(self) -> list[OffsetRange]:
        """Archived ranges and recorded gaps."""
        return [*self.archived, *self.recorded]

    @property
    def fork_until(self) -> int:
        """No archived point up to this offset says anything about the current log. Never below 0: no record lies before
        a point at 0, so it proves nothing."""
        return max(accepted_until(self.forks, self.gaps), 0)

    def metadata(self, begun_at: int) -> CommitMetadata:
        return CommitMetadata(begun_at, self.partition_count, self.incarnation_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What an operator decided in the settings."""

    accept_missing_archive: bool = False  # `on_archive_behind`
    record_gaps: bool = False  # `on_gap`


def added_later(partition: int, commits: Collection[CommitMetadata]) -> bool:
    """Whether the topic was already archived before this partition existed. `commits`: of all its partitions."""
    return bool(commits) and partition >= min(n.partition_count for n in commits)


def choose_start(facts: StartFacts, rules: Rules) -> Start | Blocked:
    if waiting := unresolved(facts.forks, facts.gaps, facts.archived):
        return Blocked(explain(waiting[0]))
    if facts.committed is not None:
        return _from_commit(facts.committed, facts, rules)
    if facts.covered:
        return _from_archive(facts, rules)
    begin, why = (facts.policy_offset, "start policy") if facts.begun is None else (facts.begun, "begin of the archive")
    return _begin(Start(begin, facts.metadata(begin), why), begin, facts, rules)


def read_last_again(start: Start, last: LastRecord | None, facts: StartFacts) -> Start:
    """Without a commit, begin at the last archived record and read it once more. Since it is stored after the start
    then, it is compared, which detects a fork that no leader epoch shows."""
    is_there = last is not None and last.offset >= max(facts.marks.low, facts.fork_until)
    if last is None or not is_there or facts.committed is not None or start.why != ARCHIVE_END:
        return start
    return replace(start, next_offset=last.offset)


def on_the_same_log(start: Start, archived: LogPoint | None, facts: StartFacts) -> Start | Blocked:
    """`archived`: the point of the log that the commit or the archive knows at `start`, or near it. The consumer reads
    on only if the broker confirms that point, however long the log is by then."""
    high = facts.marks.high
    if archived is not None and facts.fork_until < archived.next_offset:
        # when the last record is read once more, its leader epoch applies at that offset, too
        return replace(start, point=replace(archived, next_offset=min(archived.next_offset, start.next_offset)))
    if start.next_offset <= high:
        epoch = facts.marks.leader_epoch
        return start if epoch is None else replace(start, point=LogPoint(start.next_offset, epoch))
    if start.next_offset <= max(facts.fork_until, facts.accepted_before):
        return Blocked(
            f"the fork of its log was accepted up to {start.next_offset}, where the archive continues; the log ends "
            f"at {high} now: this waits until it has grown there"
        )
    return Blocked(
        f"{start.why} says {start.next_offset}, but the topic ends at {high}: it was truncated. Records that were "
        "archived are no longer in the log, and their offsets will be given to others; no leader epoch of them is "
        "known, so once the log has grown nothing will distinguish them. Find out which of them count; then give the "
        "topic another prefix, or set the group's offset"
    )


def _from_commit(committed: Committed, facts: StartFacts, rules: Rules) -> Start | Blocked:
    next_offset, found = committed.next_offset, read_commit_metadata(committed)
    begun = found.begun_at if found is not None else facts.begun
    if begun is None:
        begun = min((o.start for o in facts.covered), default=next_offset)
    metadata = facts.metadata(begun)
    if found is not None:
        metadata = replace(metadata, partition_count=found.partition_count)
    archive_end = max((o.next_offset for o in facts.covered), default=None)
    if next_offset < begun:
        return Blocked(
            f"the group committed {next_offset}, but the archive of this partition begins at {begun}, and its readers "
            f"begin there: nothing below would be delivered. Set the group's offset to {begun} or later"
        )
    nothing_expected = begun == next_offset and (found is not None or facts.begun is not None)
    # an operator set the offset to the source's log start: nothing before it can be archived any more
    gone = found is None and archive_end is not None and next_offset <= facts.marks.low
    if not (nothing_expected or gone) and (archive_end is None or archive_end < next_offset):
        what = "the archive holds nothing" if archive_end is None else f"the archive ends before {archive_end}"
        if not rules.accept_missing_archive:
            return Blocked(
                f"the group committed {next_offset}, but {what}: another bucket or prefix, or objects were "
                "removed. Point s3.bucket and s3.prefix at the archive, or set the group's offset back to archive "
                "again from there, or accept the loss with egress.on_archive_behind = 'continue'"
            )
    known_until = next_offset
    if gone and archive_end is not None and rules.record_gaps:
        known_until = min(archive_end, next_offset)  # the range that the operator skipped is recorded as well
    # Segments after the commit were stored just before a crash, or are of another log: their records are read again and
    # compared before anything that overlaps them is stored. Skipping them would accept either.
    return _begin(Start(next_offset, metadata, "committed offset"), known_until, facts, rules)


def _from_archive(facts: StartFacts, rules: Rules) -> Start | Blocked:
    """Begin after the archive, or at its first hole that the source can still fill."""
    covered, low = facts.covered, facts.marks.low
    begun = min(o.start for o in covered) if facts.begun is None else facts.begun
    end = max(o.end for o in covered)
    first = max(begun, low)
    holes = uncovered(covered, OffsetRange(first, end)) if first <= end else []
    why, next_offset = ("first gap of the archive", holes[0].start) if holes else (ARCHIVE_END, end + 1)
    return _begin(Start(max(next_offset, begun), facts.metadata(begun), why), begun, facts, rules)


def _begin(wanted: Start, known_until: int, facts: StartFacts, rules: Rules) -> Start | Blocked:
    """Begin as `wanted`, or after an accepted fork, or at the source's log start, whichever is latest. Nothing from
    `known_until` on is skipped silently."""
    next_offset, why = wanted.next_offset, wanted.why
    if next_offset < facts.fork_until:
        next_offset, why = facts.fork_until, "accepted fork"
    low = facts.marks.low
    lost = uncovered(facts.covered, OffsetRange(known_until, low - 1)) if known_until < low else []
    if lost and not rules.record_gaps:
        which = ", ".join(map(str, lost))
        return Blocked(
            f"{why} says {next_offset}, but the topic now begins at {low}: retention, or a deletion of records, "
            f"overtook the egress and {which} is gone at the source. To continue without it, set on_gap = 'record' for "
            f"this topic, which records what is missing; or set the group's offset to {low}"
        )
    return replace(wanted, next_offset=max(next_offset, low), why=why, lost=tuple(lost))
