"""Forks of a source's log: which of them wait for an operator, and how the archive goes on after one.

A log forks when it loses archived records and assigns their offsets to other records. One archive path cannot hold both
logs, so archiving of the partition stops until an operator chooses one of two ways:

    a new path      {topic}@{topic id}-fork1, then -fork2 …; it begins with the new log, where the two differ.
                    Footers there keep the topic id, since it is the same topic
    the same path   the contested offsets are accepted as a recorded gap: the path keeps the old log's records there,
                    and continues after them with those of the new log

A fork that was found only by comparing records may also be a stray object in the archive: once the object is removed,
nothing is contested any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from formats.control.fork import LogFork
from formats.control.gap import RecordedGap
from formats.coverage import uncovered
from formats.log_point import LogPoint
from formats.segment import OffsetRange


def unresolved(
    forks: Iterable[LogFork], gaps: Iterable[RecordedGap], covered: Iterable[OffsetRange]
) -> Sequence[LogFork]:
    """The forks that wait for an operator, in order of `next_offset`. All arguments are of one partition; `covered`:
    the offsets that segments of its archive path cover."""
    accepted, stored = [gap.offsets for gap in gaps if gap.is_accepted], list(covered)
    waiting = [
        fork
        for fork in forks
        if uncovered(accepted, fork.contested)
        and (not fork.is_by_records or any(offsets.overlaps(fork.contested) for offsets in stored))
    ]
    return sorted(waiting, key=lambda fork: (fork.next_offset, fork.contested.start))


def accepted_until(forks: Iterable[LogFork], gaps: Iterable[RecordedGap]) -> int:
    """The next offset after the contested offsets that an operator accepted, where the archive holds the old log's
    records; −1 when there are none."""
    accepted = [gap.offsets for gap in gaps if gap.is_accepted]
    return max((fork.next_offset for fork in forks if not uncovered(accepted, fork.contested)), default=-1)


def agreed_point(forks: Collection[LogFork], gaps: Iterable[RecordedGap]) -> LogPoint | None:
    """The last point up to which, by the accepted forks, the current log equals the archived one; a fork that contests
    the offset before a point invalidates it. None when there is none: a fork by records has no epoch."""
    accepted = [gap.offsets for gap in gaps if gap.is_accepted]
    points = [
        LogPoint(fork.end_offset, fork.leader_epoch)
        for fork in forks
        if fork.end_offset and fork.leader_epoch is not None and not uncovered(accepted, fork.contested)
    ]
    valid = [p for p in points if not any(p.next_offset - 1 in fork.contested for fork in forks)]
    return max(valid, key=lambda point: point.next_offset, default=None)


def explain(fork: LogFork) -> str:
    """A message for operators: what happened, what it means, and both ways to continue."""
    source, contested = fork.source, fork.contested
    return (
        f"the log of {source.topic}/{source.partition} has forked: {fork.evidence}, but its archive in "
        f"{source.region}/{source.path} continues at {fork.next_offset}. Any records archived at {contested} are no "
        "longer those of the log, and one archive path cannot hold both. Nothing more of this partition is archived "
        f"until an operator chooses: `{adopt_command(fork)}` continues in a new archive path, which holds the current "
        f"log from {contested.start} on; `{accept_command(fork)}` continues at {fork.next_offset} in the same path, "
        f"and never archives the current records of the log at {contested}"
    )


def adopt_command(fork: LogFork) -> str:
    return f"replicator adopt --fork {fork.source.topic}"


def accept_command(fork: LogFork) -> str:
    contested = fork.contested
    return f"replicator gaps accept {fork.source} {contested.start}-{contested.end} --reason TEXT --yes"
