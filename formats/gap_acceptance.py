"""Which offsets of a partition an operator may accept as missing. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

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
    contested = [fork.contested for fork in unresolved(forks, recorded, covered.runs)]
    lost = [gap.offsets for gap in recorded if gap.is_loss and not any(map(gap.offsets.overlaps, contested))]
    choices = [*contested, *lost]
    if covered.start is None or covered.next_offset is None:
        return choices
    start = covered.start if begin is None else min(begin.offset, covered.start)
    explained = [*covered.runs, *(gap.offsets for gap in recorded)]
    return [*choices, *uncovered(explained, OffsetRange(start, covered.next_offset - 1))]
