"""One run of `gc`: list everything, plan, refuse what is uncertain, then remove. Nothing goes before all is listed.

    list ── plan each partition ── copied? ── not too much? ──┬── record the gap ── delete     of each partition
                                                              ├── abort                        abandoned uploads
                                                              └── delete                       earlier generations

A run that dies may leave recorded gaps whose segments still exist: readers use the segments, and the next run plans
again, finds the gaps recorded and deletes the segments. Stateless, so it can be stopped and repeated at any point.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from compaction.generation_rules import SegmentHorizon
from compaction.retention import Expiry, ExpiryRefused, plan_expiry
from compaction.retention_settings import RetentionSettings
from compaction.thinning import GenerationThinner, ThinnedKind
from formats.control.gap import RETENTION, RecordedGap
from formats.control.lease import Lease
from formats.errors import MalformedKey, ReplicatorError
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition, parse_key, region_prefix
from formats.topic_selection import select
from infra.archive.control import ControlStore
from infra.archive.lease import clock_difference
from infra.archive.segments import SegmentStore
from infra.contracts.storage import UploadInfo, UploadStore
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Clock, Stop

log = logging.getLogger(__name__)

GENERATIONS = "generations"  # in a report's failures
STOPPED = "stopped before everything was removed; the next run plans the rest anew"


@dataclass(slots=True, kw_only=True)
class GcReport:
    """Findings and results. Keys of `refused` and `failed`: a partition, an archive path, or the region if all are
    affected."""

    region: str
    segments: int = 0  # listed
    size_bytes_by_path: Counter[str] = field(default_factory=Counter)  # of the listed segments
    plans: list[Expiry] = field(default_factory=list)
    kept: dict[Segment, str] = field(default_factory=dict)  # expired, but not copied; later segments stay, too
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # may work next time
    malformed: list[str] = field(default_factory=list)  # foreign keys: for an operator to check
    uploads: list[UploadInfo] = field(default_factory=list)  # abandoned
    generations: Mapping[str, ThinnedKind] = field(default_factory=dict)  # of control objects, by kind
    removed: list[Expiry] = field(default_factory=list)
    aborted: list[UploadInfo] = field(default_factory=list)
    thinned: Mapping[str, int] = field(default_factory=dict)  # generations, by kind
    horizon: datetime | None = None  # when the oldest segment was stored; None: not known

    @property
    def size_bytes(self) -> int:
        """Of all listed segments."""
        return self.size_bytes_by_path.total()


UncopiedOf = Callable[[Sequence[Segment]], Iterable[str]]
"""For each segment, in their order, why it may not expire, as `ReplicaCheck.uncopied` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """One thread."""

    region: str
    settings: RetentionSettings
    own_topics: Collection[str]
    store: SegmentStore
    control: ControlStore
    uploads: UploadStore
    uncopied: UncopiedOf
    clock: Clock
    stop: Stop
    is_copy: bool = False  # of another region's archive: when a segment was stored here says little of its records

    def run(self, lease: Lease | None, topics: Collection[str] = (), *, allow_large: bool = False) -> GcReport:
        """Without the lease, only reports what would be removed. Raises StoreUnavailable when not everything could be
        listed; then nothing was removed."""
        report = GcReport(region=self.region)
        now = self.clock.now()
        if lease is not None and (why := clock_difference(self.control.leases, self.region, lease, now)):
            report.refused[self.region] = why
            return report
        self._plan(topics, now, report)
        if not allow_large:
            self._refuse_too_much(report)
        if lease is not None and self.region not in report.refused:
            self._remove(report)
            if not topics:
                self._thin(now, report)
        return report

    @property
    def _thinner(self) -> GenerationThinner:
        return GenerationThinner(self.control.objects, self.control.prefix, self.region, self.stop)

    def _refuse_too_much(self, report: GcReport) -> None:
        """Checked by archive path: in the total, a large topic or an earlier incarnation would hide that a small one is
        nearly all removed."""
        limit = self.settings.max_delete_percent
        for path, size_bytes in report.size_bytes_by_path.items():
            planned = sum(plan.size_bytes for plan in report.plans if plan.source.path == path)
            if planned * 100 > size_bytes * limit:
                report.refused[f"{self.region}/{path}"] = (
                    f"{planned:,} of its {size_bytes:,} bytes would go, more than max_delete_percent, {limit}: read "
                    "them with --dry-run; if they are to go, add --allow-large"
                )

    def _is_refused(self, source: SourcePartition, report: GcReport) -> bool:
        return f"{self.region}/{source.path}" in report.refused

    # --- planning: nothing is changed ---

    def _plan(self, topics: Collection[str], now: datetime, report: GcReport) -> None:
        quarantined = self.control.quarantine.all(self.region)
        horizon, expiries = SegmentHorizon(), list[Expiry]()
        for source, infos in groupby(self._listed(topics, report), key=lambda info: info.segment.source):
            stored = list(infos)
            horizon.add(stored)
            report.segments += len(stored)
            report.size_bytes_by_path[source.path] += sum(info.size_bytes for info in stored)
            rule = select([source.topic], self.settings.topics, self.own_topics).get(source.topic)
            # by the time of its listing, which may be long after that of the first one
            plan = None if rule is None else plan_expiry(stored, rule, self.clock.now(), quarantined)
            if isinstance(plan, ExpiryRefused):
                report.refused[str(source)] = plan.reason
            elif plan is not None:
                expiries.append(plan)
        self._add_copied(expiries, report)
        self._list_uploads(topics, now, report)
        if not topics:  # else not every segment is known
            report.horizon = None if self.is_copy else horizon.stored_at(now)
            self._plan_thinning(now, report)

    def _listed(self, topics: Collection[str], report: GcReport) -> Iterator[SegmentInfo]:
        """Segments, partition by partition."""
        if topics:
            for incarnation in self.store.incarnations(self.region):
                if incarnation.topic in topics:
                    yield from self.store.walk(self.region, incarnation.path)
            return
        for found in self.store.scan(self.region):
            if isinstance(found, MalformedKey):
                report.malformed.append(str(found))
            else:
                yield found

    def _add_copied(self, plans: Sequence[Expiry], report: GcReport) -> None:
        """Add to the report the part of each plan whose segments have their copies, where copies are required."""
        segments = [segment for plan in plans for segment in plan.segments]
        kept = {segment: why for segment, why in zip(segments, self.uncopied(segments), strict=True) if why}
        report.kept |= kept
        for plan in plans:
            if copied := plan.without(segment for segment in plan.segments if segment in kept):
                report.plans.append(copied)

    def _list_uploads(self, topics: Collection[str], now: datetime, report: GcReport) -> None:
        """Only uploads to segment keys: no other upload is ours."""
        try:
            for upload in self.uploads.list(region_prefix(self.store.prefix, self.region)):
                try:
                    topic = parse_key(self.store.prefix, upload.key).source.topic
                except MalformedKey:
                    continue
                if upload.initiated_at <= now - self.settings.upload_grace and (not topics or topic in topics):
                    report.uploads.append(upload)
        except ReplicatorError as error:  # does not prevent the removal of segments
            report.failed["uploads"] = str(error)

    def _plan_thinning(self, now: datetime, report: GcReport) -> None:
        try:
            report.generations = self._thinner.plan(now, report.horizon)
        except ReplicatorError as error:
            report.failed[GENERATIONS] = str(error)

    # --- removing ---

    def _remove(self, report: GcReport) -> None:
        for plan in report.plans:
            if self._is_refused(plan.source, report):
                continue
            if self.stop.is_set():
                report.failed[self.region] = STOPPED
                return
            try:
                self._expire(plan, report)
            except ReplicatorError as error:
                report.failed[str(plan.source)] = str(error)
        for upload in report.uploads:
            if self._is_refused(parse_key(self.store.prefix, upload.key).source, report):
                continue
            try:
                with durable(Step.ABORT_UPLOADS):
                    self.uploads.abort(upload)
                report.aborted.append(upload)
            except ReplicatorError as error:
                report.failed[upload.key] = str(error)

    def _thin(self, now: datetime, report: GcReport) -> None:
        planned = sum(one.superseded for one in report.generations.values())
        try:
            if planned and not self.stop.is_set():
                report.thinned = self._thinner.remove(now, report.horizon)
        except ReplicatorError as error:
            report.failed[GENERATIONS] = str(error)
            return
        if self.stop.is_set() and sum(report.thinned.values()) < planned:
            report.failed[GENERATIONS] = STOPPED

    def _expire(self, plan: Expiry, report: GcReport) -> None:
        if self.store.stat(plan.newest) is None:
            why = f"{plan.newest}, which was to stay, is gone since it was listed; the next run plans again"
            report.refused[str(plan.source)] = why
            return
        self._end_losses(plan)
        for offsets in plan.unexplained(self.control.gaps.ranges(plan.source)):
            self._record(plan, offsets)
        self._join_gaps(plan)
        # record, then delete: no reader finds a gap that is not recorded
        with durable(Step.EXPIRE_SEGMENTS):
            self.store.delete_many(plan.segments)
        report.removed.append(plan)
        fields = {
            log_fields.REGION: plan.source.region,
            log_fields.TOPIC: plan.source.path,
            log_fields.PARTITION: plan.source.partition,
            log_fields.COUNT: len(plan.deletions),
            log_fields.STORED_BYTES: plan.size_bytes,
            log_fields.END: plan.deletions[-1].segment.offsets.end,
        }
        log.info("segments_expired", extra=fields)

    def _end_losses(self, plan: Expiry) -> None:
        """Remove the record of a loss that segments cover, so that it was archived after all: once they are gone, it
        would count as lost again. Until then they are there, and need no record."""
        removed = (segment.offsets for segment in plan.segments)
        if ended := self.control.gaps.losses_within(plan.source, [*removed, *plan.remaining.runs]):
            with durable(Step.REMOVE_GAPS):
                self.control.gaps.remove(ended)

    def _record(self, plan: Expiry, offsets: OffsetRange, *parts: RecordedGap) -> None:
        """`parts`: earlier records of the same offsets, whose watermarks are included."""
        gap = RecordedGap(
            source=plan.source,
            offsets=offsets,
            reason=RETENTION,
            low=min([plan.before.start, *(part.low for part in parts)]),
            high=max([plan.before.next_offset, *(part.high for part in parts)]),
            recorded_at=self.clock.now(),
        )
        with durable(Step.RECORD_GAP):
            self.control.gaps.record(gap)

    def _join_gaps(self, plan: Expiry) -> None:
        """Keep one record per contiguous range, even if several runs removed it: every reader lists all records."""
        for group in self.control.gaps.adjoining(plan.source, RETENTION):
            offsets = OffsetRange(group[0].offsets.start, max(gap.offsets.end for gap in group))
            narrower = [gap for gap in group if gap.offsets != offsets]
            if len(narrower) == len(group):
                self._record(plan, offsets, *group)
            # record the wider gap, then remove the narrower ones: every offset stays explained in between
            with durable(Step.REMOVE_GAPS):
                self.control.gaps.remove(narrower)
