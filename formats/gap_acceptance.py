"""Which offsets of a partition are lost, and which of them an operator may accept as missing. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from formats.control.archive_begin import ArchiveBegin
from formats.control.fork import LogFork
from formats.control.gap import RecordedGap
from formats.coverage import Extent, uncovered
from formats.forks import unresolved
from formats.segment import OffsetRange


def acceptable(
    forks: Collection[LogFork], recorded: Collection[RecordedGap], covered: Extent, begin: ArchiveBegin | None
) -> Sequence[OffsetRange]:
    """The offsets that unresolved forks contest, then recorded gaps that are a loss and that no such fork contests,
    then those between the archive's begin and end that neither a segment nor a recorded gap covers."""
    waiting = unresolved(forks, recorded, covered.runs)
    choices = [*(fork.contested for fork in waiting), *losses(recorded, waiting, covered)]
    if covered.start is None or covered.next_offset is None:
        return choices
    start = covered.start if begin is None else min(begin.offset, covered.start)
    explained = [*covered.runs, *(gap.offsets for gap in recorded)]
    return [*choices, *uncovered(explained, OffsetRange(start, covered.next_offset - 1))]


def losses(recorded: Iterable[RecordedGap], waiting: Collection[LogFork], covered: Extent) -> Sequence[OffsetRange]:
    """Recorded gaps that are a loss: not those that segments cover by now, which were archived later or put back, nor
    those that a fork contests that waits for an operator."""
    return [
        gap.offsets
        for gap in recorded
        if gap.is_loss
        and uncovered(covered.runs, gap.offsets)
        and not any(gap.offsets.overlaps(fork.contested) for fork in waiting)
    ]
