"""The state of the archive of one partition, with the problems that are visible from outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from egress.start.commit_metadata import read_commit_metadata
from formats.control.fork import LogFork
from formats.coverage import Extent, joined, uncovered
from formats.forks import explain
from formats.segment import OffsetRange, SourcePartition
from infra.archive.proofs import Proof
from infra.contracts.cluster import Committed, LogEnds, LogTruncated

NO_END = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPartitionStatus:
    source: SourcePartition
    ends: LogEnds
    committed: int | None
    archive_end: int | None
    open_since: datetime | None  # of the oldest open transaction, if its first record could be read
    recorded_gaps: int
    losses: int = 0  # of them, those that an operator has to accept
    proof: Proof | None  # recorded by `verify`; None: none is recorded
    problems: tuple[str, ...]

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open: nothing from `ends.stable` on can be archived yet."""
        return self.ends.stable < self.ends.high

    @property
    def lag(self) -> int:
        """Offsets in the log that are not known to be archived."""
        return max(self.ends.high - self.next_offset, 0)

    @property
    def next_offset(self) -> int:
        """The first one in the log that is not known to be archived."""
        done = self.committed if self.committed is not None else self.archive_end
        return max(self.ends.low if done is None else done, self.ends.low)


def settled_below(committed: Committed | None, *, is_worked_on: bool) -> int | None:
    """The offset where segments that are being uploaded may begin: they are stored in any order, and committed in
    offset order. None: anywhere."""
    if committed is not None:
        return committed.next_offset
    return None if is_worked_on else NO_END


def unrecorded_gaps(
    archived: Extent, gaps: Sequence[OffsetRange], settled: int, begin: int | None = None
) -> Sequence[OffsetRange]:
    """Offsets below `settled`, from the begin of the archive to its end, that are in no segment and no recorded gap.
    `begin`: the recorded one; None: it is that of the first segment."""
    if archived.start is None or archived.next_offset is None:
        return ()
    start = archived.start if begin is None else min(begin, archived.start)
    end = min(archived.next_offset, settled) - 1
    return uncovered([*archived.runs, *gaps], OffsetRange(start, end)) if start <= end else ()


def partition_status(
    source: SourcePartition,
    *,
    ends: LogEnds,
    committed: Committed | None,
    archived: Extent,
    gaps: Sequence[OffsetRange],
    forks: Sequence[LogFork] = (),
    truncated: LogTruncated | None = None,
    open_since: datetime | None,
    now: datetime,
    stuck_after: timedelta,
    settled: int | None = None,
    proof: Proof | None = None,
    begin: int | None = None,
) -> EgressPartitionStatus:
    """The status of a partition with the problems that are visible from outside. `forks` wait for an operator;
    `settled`: no upload below it is in flight; None: not known; `begin`: the recorded one of the archive, if it may be
    earlier than what is stored."""
    problems = [explain(fork) for fork in forks]
    if truncated is not None:
        point = truncated.point
        problems.append(
            f"the log has forked: it reached {point.next_offset} in leader epoch {point.leader_epoch}, which ends at "
            f"{truncated.end_offset} now; an egress process that owns this partition reports how to continue"
        )
    is_forked = bool(problems)
    problems += [
        f"offsets {gap} of the archive are in no segment, and no gap was recorded for them: restore the objects from "
        "a copy of the bucket"
        for gap in (unrecorded_gaps(archived, gaps, settled, begin) if settled is not None else ())
    ]
    if proof is not None and not proof.is_whole:
        problems.append(
            f"verify found it not whole at {proof.at.isoformat(timespec='seconds')}: repair what it names, and run it "
            "again"
        )
    if not is_forked:  # otherwise these are consequences of the fork
        problems += _of_offsets(ends, committed, archived, gaps)
    if ends.stable < ends.high and open_since is not None and now - open_since > stuck_after:
        problems.append(
            f"a transaction has been open since {open_since.isoformat(timespec='seconds')} and holds everything from "
            f"{ends.stable} back: find its producer, or abort it (kafka-transactions.sh abort)"
        )
    return EgressPartitionStatus(
        source=source,
        ends=ends,
        committed=committed.next_offset if committed else None,
        archive_end=archived.next_offset,
        open_since=open_since if ends.stable < ends.high else None,
        recorded_gaps=len(gaps),
        proof=proof,
        problems=tuple(problems),
    )


def _of_offsets(
    ends: LogEnds, committed: Committed | None, archived: Extent, gaps: Sequence[OffsetRange]
) -> Iterator[str]:
    if archived.next_offset is not None and archived.next_offset > ends.high:
        yield f"the archive ends before {archived.next_offset}, but the topic at {ends.high}: truncated"
    if committed is None:
        return
    at, metadata = committed.next_offset, read_commit_metadata(committed)
    begun_here = metadata is not None and metadata.begun_at == at  # nothing was archived before this position
    known = joined([*archived.runs, *gaps])
    # a commit with metadata is of egress, which stores first: it was archived, even if Kafka has removed it since
    was_archived = at > ends.low or metadata is not None
    if at > ends.high:
        yield f"the group committed {at}, but the topic ends at {ends.high}: truncated, or created again"
    elif not begun_here and was_archived and (known.next_offset is None or known.next_offset < at):
        end = "holds nothing" if known.next_offset is None else f"ends before {known.next_offset}"
        yield f"the group committed {at}, but the archive {end}: another bucket, or objects were removed"
    elif at < ends.low and ((known.next_offset or 0) < ends.low or known.missing_at(at)):
        yield (
            f"the group committed {at}, but the topic now begins at {ends.low}: retention, or a deletion of "
            "records, overtook the egress"
        )
