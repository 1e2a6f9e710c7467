"""Forks of a source's log: which of them wait for an operator, and how the archive goes on behind one.

A log forks when it loses records that had been archived and gives their offsets to others. One archive cannot hold
both logs, so the partition is held until an operator chooses one of two ways:

    a new place     {topic}@{topic id}-fork1, then -fork2 …; it begins with the new log, where the two differ.
                    Footers there keep the topic id, since it is the same topic
    the same place  the offsets that are contested are accepted as a recorded gap: the place keeps the old log's
                    records there, and goes on behind them with those of the new one

What is known by comparing records alone may also be a stray object in the archive: once it is removed, nothing is
contested any more.
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
    """Those that wait for an operator, in order of `next_offset`. All three are of one partition; `covered`: what
    segments of its place cover."""
    accepted, stored = [gap.offsets for gap in gaps if gap.is_accepted], list(covered)
    waiting = [
        fork
        for fork in forks
        if uncovered(accepted, fork.contested)
        and (not fork.is_by_records or any(offsets.overlaps(fork.contested) for offsets in stored))
    ]
    return sorted(waiting, key=lambda fork: (fork.next_offset, fork.contested.start))


def accepted_until(forks: Iterable[LogFork], gaps: Iterable[RecordedGap]) -> int:
    """Behind the contested offsets that an operator accepted, of which the archive holds another log's records; −1 when
    there are none."""
    accepted = [gap.offsets for gap in gaps if gap.is_accepted]
    return max((fork.next_offset for fork in forks if not uncovered(accepted, fork.contested)), default=-1)


def agreed_point(forks: Collection[LogFork], gaps: Iterable[RecordedGap]) -> LogPoint | None:
    """The last point at which, by what accepted forks say, the log was still the archived one: a loss that goes deeper
    makes it untrue. None when nothing says so: of a fork that was found by comparing records no epoch is known."""
    accepted = [gap.offsets for gap in gaps if gap.is_accepted]
    points = [
        LogPoint(fork.end_offset, fork.leader_epoch)
        for fork in forks
        if fork.end_offset and fork.leader_epoch is not None and not uncovered(accepted, fork.contested)
    ]
    true = [p for p in points if not any(p.next_offset - 1 in fork.contested for fork in forks)]
    return max(true, key=lambda point: point.next_offset, default=None)


def explain(fork: LogFork) -> str:
    """What happened, what it means, and both ways on."""
    source, contested = fork.source, fork.contested
    return (
        f"the log of {source.topic}/{source.partition} has forked: {fork.evidence}, but its archive in "
        f"{source.region}/{source.path} has come to {fork.next_offset}. Whatever that holds at {contested} is no "
        "longer what the log holds, and one archive cannot hold both. Nothing more of this partition is archived until "
        f"you choose: `{adopt_command(fork)}` goes on in a new place of the archive, which holds the log as it is now "
        f"from {contested.start} on; `{accept_command(fork)}` goes on at {fork.next_offset} in the same place, and "
        f"never archives what the log holds now at {contested}"
    )


def adopt_command(fork: LogFork) -> str:
    return f"replicator adopt --fork {fork.source.topic}"


def accept_command(fork: LogFork) -> str:
    contested = fork.contested
    return f"replicator gaps accept {fork.source} {contested.start}-{contested.end} --reason TEXT --yes"
