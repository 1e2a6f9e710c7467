"""Delete segments whose records a merged segment holds: prove, then delete. Stateless, so it can be repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from compaction.planner import CleanPlan
from compaction.proof import digests_of
from compaction.replicas import ReplicaCheck
from formats.errors import CorruptSegment, SegmentNotFound
from formats.footer import Digest, SegmentFooter
from formats.records.compare import compare
from formats.records.statistics import records_within
from formats.registry import SegmentReader
from formats.segment import Segment
from infra.archive.archive import Archive
from infra.runtime.crash_points import Step, durable


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    deleted: tuple[Segment, ...]
    deleted_records: int = 0
    kept: Mapping[Segment, str]  # with the reason
    corrupt: Mapping[Segment, str]  # also kept: they do not match their key or footer


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaner:
    """Safe to call from several threads."""

    archive: Archive
    replicas: ReplicaCheck

    def clean(self, plan: CleanPlan) -> Cleaned:
        """Raises CorruptSegment and SegmentNotFound for the keeper only, and the store's errors; then nothing was
        deleted, or only segments that had been proved."""
        if why := self.replicas.why_not_ready(plan.keeper):
            return Cleaned(deleted=(), kept=dict.fromkeys(plan.inside, why), corrupt={})
        proved: dict[Segment, int] = {}  # with the record counts of their footers
        kept: dict[Segment, str] = {}
        footers, corrupt = self._footers(plan.inside)
        with self.archive.open(plan.keeper) as keeper:
            found = digests_of(keeper.batches(), [footer.offsets for footer in footers])
            for footer, digest in zip(footers, found, strict=True):
                segment = footer.segment
                try:
                    why = self._unproved(keeper, footer, digest)
                except SegmentNotFound:
                    continue  # another process deleted it
                except CorruptSegment as error:
                    if error.name.startswith(str(plan.keeper)):
                        raise
                    corrupt[segment] = error.what
                    continue
                if why:
                    kept[segment] = why
                else:
                    proved[segment] = footer.count
        kept |= self.replicas.missing(plan.keeper, proved)
        proved = {segment: count for segment, count in proved.items() if segment not in kept}
        if proved:
            # prove, then delete: every record of these was decoded from the keeper as stored
            with durable(Step.DELETE_SEGMENTS):
                self.archive.segments.delete_many(proved.keys())
        return Cleaned(deleted=tuple(proved), deleted_records=sum(proved.values()), kept=kept, corrupt=corrupt)

    def _footers(self, segments: Iterable[Segment]) -> tuple[list[SegmentFooter], dict[Segment, str]]:
        """Footers of the segments that still exist, and the reason for each that cannot be read."""
        footers: list[SegmentFooter] = []
        corrupt: dict[Segment, str] = {}
        for segment in segments:
            try:
                footers.append(self.archive.footer(segment))
            except SegmentNotFound:
                continue  # another process deleted it
            except CorruptSegment as error:
                corrupt[segment] = error.what
        return footers, corrupt

    def _unproved(self, keeper: SegmentReader, footer: SegmentFooter, digest: Digest) -> str:
        """Why the keeper is not proved to hold all records of `footer`'s segment; empty if it is. `digest`: of the
        keeper's records in that range."""
        ids = {keeper.footer.origin.topic_id, footer.origin.topic_id} - {""}
        if len(ids) > 1:
            return f"it is of another incarnation of the topic: {' and '.join(sorted(ids))}"
        if footer.digest == digest:
            return ""
        # it lost an overlap and may hold fewer records than the winner, or it is the ancestor's, without a digest
        with self.archive.open(footer.segment) as reader:
            ours = records_within(keeper.batches(footer.offsets.start), footer.offsets)
            result = compare(ours, reader.batches())
        if result.offset is not None:
            return f"its record {result.offset} differs in {keeper.footer.segment}: {result.detail}"
        if result.only_second:
            return f"{result.only_second} of its records are not in {keeper.footer.segment}"
        return ""
