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
    """The offsets that unresolved forks contest, then those between the archive's begin and end that neither a segment
    nor a recorded gap covers."""
    contested = [fork.contested for fork in unresolved(forks, recorded, covered.runs)]
    if covered.start is None or covered.next_offset is None:
        return contested
    start = covered.start if begin is None else min(begin.offset, covered.start)
    explained = [*covered.runs, *(gap.offsets for gap in recorded)]
    return [*contested, *uncovered(explained, OffsetRange(start, covered.next_offset - 1))]
