"""What egress and operators recorded of partitions in the bucket: gaps and forks.

One that cannot be decoded is a problem of its partition alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from formats.control.fork import LogFork
from formats.control.gap import RecordedGap
from formats.coverage import Extent
from formats.errors import MalformedEvent
from formats.forks import unresolved
from formats.gap_acceptance import losses
from formats.segment import OffsetRange, SourcePartition
from infra.archive.control import ControlStore


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPartition:
    gaps: tuple[OffsetRange, ...] = ()
    forks: Sequence[LogFork] = ()  # that wait for an operator
    losses: Sequence[OffsetRange] = ()  # gaps that an operator has to accept
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordReader:
    """`with_gaps`, `with_forks`: the partitions of which any is recorded."""

    control: ControlStore
    with_gaps: Collection[SourcePartition]
    with_forks: Collection[SourcePartition]

    def read(
        self, sources: Iterable[SourcePartition], archived: Mapping[SourcePartition, Extent], pool: Executor
    ) -> Mapping[SourcePartition, RecordedPartition]:
        """Those of `sources` of which any is recorded: one request for each gap and fork. Raises StoreUnavailable."""
        some = [source for source in sources if source in self.with_gaps or source in self.with_forks]
        return dict(
            zip(some, pool.map(lambda source: self._of(source, archived.get(source, Extent())), some), strict=True)
        )

    def _of(self, source: SourcePartition, archived: Extent) -> RecordedPartition:
        problems: list[str] = []
        recorded: Sequence[RecordedGap] = ()
        gaps: Sequence[OffsetRange] = ()
        forks: Sequence[LogFork] = ()
        if source in self.with_gaps:
            try:
                recorded = self.control.gaps.of(source)
                gaps = [gap.offsets for gap in recorded]
            except MalformedEvent as error:  # its key has the offsets
                problems.append(f"what is missing is not known: {error}")
                gaps = self.control.gaps.ranges(source)
        if source in self.with_forks:
            try:
                forks = unresolved(self.control.forks.of(source), recorded, archived.runs)
            except MalformedEvent as error:
                problems.append(f"a fork of its log is recorded, and where is not known: {error}")
        if lost := losses(recorded, forks, archived):
            problems.insert(0, explain_losses(source, lost))
        return RecordedPartition(gaps=tuple(gaps), forks=forks, losses=lost, problems=tuple(problems))


def explain_losses(source: SourcePartition, lost: Sequence[OffsetRange]) -> str:
    """The problem of a partition with recorded gaps that are a loss: the first of them, and how to accept it."""
    first, more = lost[0], len(lost) - 1
    others = f" and {more} more gaps" if more > 1 else " and 1 more gap" if more else ""
    return (
        f"offsets {first}{others} were lost before they were archived: `replicator gaps` says why; once the users of "
        f"the topic know, `replicator gaps accept {source} {first.start}-{first.end} --reason TEXT --yes` accepts it"
    )
