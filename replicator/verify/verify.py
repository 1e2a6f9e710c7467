"""The verification of an archive: the API of the command and of Python users.

with Verification(load("replicator.toml"), Selection(region="us-east-1", topics=[TopicPattern("^.*")])) as verification:
    report = verification.run()
    print(report.is_equal, json.dumps(report.content))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from formats.coverage import joined
from formats.errors import MalformedEvent, TargetError
from formats.int_range import IntRange
from formats.records.compare import compare
from formats.records.scope import RecordFilter
from formats.segment import OffsetRange, Segment, SourcePartition, parse_source
from infra.archive.proofs import Proof, ProofStore
from infra.contracts.cluster import TopicPartition
from infra.contracts.storage import ObjectStore
from infra.kafka.client.topic_configs import TopicConfigs
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.consumer.partition_reader import read_partition
from infra.runtime.lifecycle import Closing, Stop, SystemClock
from infra.runtime.progress import Progress, no_progress
from replicator.config import Config
from replicator.restore.reported_ends import lost_partitions, reported_ends, without_topics
from replicator.restore.sources import of_all_incarnations, sources_of
from replicator.selection import Selection
from replicator.services.archive import archive_in
from replicator.services.wiring import archive_objects, program
from replicator.verify.proven import Proven, ProvenObjects, proven_by_source
from replicator.verify.report import Report, entry_of, report
from replicator.verify.scope import (
    ARCHIVE,
    DIRECT,
    SOURCE,
    Found,
    VerifyScope,
    copied_as,
    lineage_header_of,
    transform_of,
)
from replicator.verify.unarchived import beyond, unarchived
from replicator.verify.verifier import ArchiveVerdict, SourceVerdict, TargetVerdict, Verifier, compared_through

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["Report", "Selection", "Verification", "VerifyScope", "copied_as"]

OTHER_NAME = "if it has another name there, pass --rename"
WRONG_FILE = "is it the file of the region that writes this archive?"
THREADS = 2  # each decodes; more would only use more memory

T = TypeVar("T")
Elsewhere = Callable[[Config, Selection, VerifyScope, Mapping[Segment, Proven], Progress], Iterator[Found]]


class Verification(Closing):
    """A context manager, for one thread. Nothing is cached: every call reads the archive."""

    def __init__(
        self, config: Config, selection: Selection, *, stop: Stop | None = None, objects: ObjectStore | None = None
    ) -> None:
        """`config`: the configuration of the archive; `objects`: its bucket, default: a client by `config`."""
        self.selection, self._config = selection, config
        self._opened, self._clock = ExitStack(), SystemClock()
        self._objects = objects or archive_objects(config, stop or Stop(), self._opened)
        self._archive = archive_in(self._objects, config)
        self._verifier = Verifier(stored=self._archive, clock=self._clock)
        self._pool = ThreadPoolExecutor(THREADS, "verify")
        self._opened.callback(self._pool.shutdown, wait=False, cancel_futures=True)

    def sources(self) -> Sequence[SourcePartition]:
        """The selected partitions. Raises ConfigError when nothing of the selection is stored."""
        return sources_of(self._archive, self.selection)

    def all_sources(self, *, as_reported: bool = True) -> Mapping[SourcePartition, int]:
        """The partitions of scope ARCHIVE: `sources`, plus the earlier incarnations of topics, and, with
        `as_reported`, those of which nothing is stored although egress reported so. Each with the next offset that it
        reported; 0: none. Raises as `sources` does."""
        archive, selection = self._archive, self.selection
        if not as_reported:
            return dict.fromkeys(of_all_incarnations(archive, selection), 0)
        ends = reported_ends(archive, selection, self._clock.now(), self._pool)
        there = {one.topic for one in archive.segments.incarnations(selection.region)}
        gone = lost_partitions(archive, {s: end for s, end in ends.items() if s.topic not in there}, self._pool)
        stored = without_topics(selection, {source.topic for source in gone}, there)
        found = dict.fromkeys(of_all_incarnations(archive, stored, may_be_none=bool(ends)) if stored.topics else ())
        absent = {s: end for s, end in ends.items() if s.topic in there and s not in found}
        lost = [*gone, *lost_partitions(archive, absent, self._pool)]
        return {source: ends.get(source, 0) for source in (*found, *lost)} or dict.fromkeys(self.sources(), 0)

    def run(
        self,
        scopes: Sequence[VerifyScope] = (VerifyScope(kind=ARCHIVE),),
        *,
        proven: ProvenObjects | None = None,
        elsewhere: Elsewhere | None = None,
        key: bytes = b"",
        progress: Callable[[VerifyScope], Progress] = lambda _: no_progress,
        on_entry: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> Report:
        """Verify `scopes` one after the other.

        `proven`: objects proven before; new ones are added. `elsewhere`: runs partitions as Spark tasks
        (`spark_task.tasks_on`); None: in this process. `key`: signs the report. `on_entry`: called with the entry of
        each partition as soon as it is known. Raises ConfigError when nothing of the selection is stored,
        StoreUnavailable, BrokerUnavailable.
        """
        proven = ProvenObjects() if proven is None else proven
        begun_at = self._clock.now()
        entries: list[Mapping[str, Any]] = []
        with proven.kept():
            for scope in scopes:
                for entry, read in self._found(scope, proven.objects, elsewhere, progress(scope)):
                    entries.append(entry)
                    proven.add(entry, read)
                    on_entry(entry)
                    if read:
                        proven.save_if_due()  # keeps the progress of a long run that is stopped
        content = report(entries, self._clock.now(), program=program(), key=key)
        return Report(content=content, begun_at=begun_at)

    def record(self, found: Report) -> None:
        """Store what was proven of the archive in the bucket, for `status`. Raises StoreUnavailable."""
        proofs = {
            parse_source(entry["source"]): Proof(
                at=found.begun_at,
                next_offset=entry["offsets"][1] + 1 if entry["offsets"] else 0,
                is_whole=entry["equal"],
            )
            for entry in found.entries
            if entry["kind"] == ARCHIVE and not entry.get("failed")  # which proves nothing, also not that it is damaged
        }
        store = ProofStore(self._objects, self._config.s3.prefix, self._config.region)
        store.record(proofs, self._clock.now())

    def _found(
        self, scope: VerifyScope, proven: Mapping[Segment, Proven], elsewhere: Elsewhere | None, progress: Progress
    ) -> Iterator[Found]:
        if elsewhere is not None:
            return elsewhere(self._config, self.selection, scope, proven, progress)
        by_source = proven_by_source(proven)
        ends = self.sources_of(scope)
        return self.each(
            lambda s: self.scan(scope, s, by_source.get(s, {}), reported_end=ends[s]), progress, of=[*ends]
        )

    def sources_of(self, scope: VerifyScope) -> Mapping[SourcePartition, int]:
        """The partitions of `scope`, each with its reported end, of ARCHIVE. Raises as `sources` does."""
        if scope.kind == ARCHIVE:
            return self.all_sources(as_reported=scope.as_reported)
        stored = self.sources()
        return dict.fromkeys([*stored, *self._beyond(scope, stored)], 0)

    def _beyond(self, scope: VerifyScope, stored: Sequence[SourcePartition]) -> Iterator[SourcePartition]:
        """Partitions of the topics in `stored` that have records in a cluster of `scope`, and none in the archive."""
        first = {one.topic: one for one in reversed(stored)}
        seen = [*stored]
        for cluster, is_source in ((scope.source_cluster, True), (scope.cluster, scope.kind == SOURCE)):
            if cluster is None:
                continue
            admin = KafkaAdmin(cluster.cluster.properties("admin"))
            names = {one: one.topic if is_source else copied_as(self.selection, one, cluster) for one in first.values()}
            for found in beyond(admin, names, seen, self.selection.wants):
                seen.append(found)
                yield found

    def scan(
        self,
        scope: VerifyScope,
        source: SourcePartition,
        proven: Mapping[Segment, Proven],
        delivered: IntRange | None = None,
        *,
        reported_end: int = 0,
    ) -> Found:
        """Verify one partition. `delivered`: the offsets that a restore of the selection delivered to a TARGET; None:
        the selected offsets, whichever process delivered them. `reported_end`: as in `all_sources`."""
        if scope.cluster is None:
            verdict = self.archived_whole(source, proven, scope.read_again_after, reported_end)
            return entry_of(verdict), verdict.read
        if scope.kind == SOURCE:
            return entry_of(self.same_as_source(source, scope.cluster)), {}
        if delivered is not None:
            topic, transform, header = self.selection.renaming(source.topic), "", ""
        else:
            topic = copied_as(self.selection, source, scope.cluster)
            transform = transform_of(self.selection, source, scope.cluster)
            header = lineage_header_of(self.selection, source, scope.cluster)
        if scope.source_cluster is not None:
            direct = self.source_as_target(
                source, scope.source_cluster, scope.cluster, topic, transform=transform, without_header=header
            )
            return {**entry_of(direct), "kind": DIRECT}, {}
        found = self.same_as_target(
            source, scope.cluster, topic, offsets=delivered, transform=transform, without_header=header
        )
        return entry_of(found), {}

    def archive(
        self,
        proven: Mapping[Segment, Proven] | None = None,
        *,
        read_again_after: timedelta | None = None,
        progress: Progress = no_progress,
    ) -> Iterator[ArchiveVerdict]:
        """Verify the archive alone, by partition. `proven`: objects that are not read again before
        `read_again_after`."""
        by_source, ends = proven_by_source(proven or {}), self.all_sources()
        return self.each(
            lambda s: self.archived_whole(s, by_source.get(s, {}), read_again_after, ends[s]), progress, of=[*ends]
        )

    # --- one partition ---

    def archived_whole(
        self,
        source: SourcePartition,
        proven: Mapping[Segment, Proven],
        read_again_after: timedelta | None,
        reported_end: int = 0,
    ) -> ArchiveVerdict:
        return self._verifier.archive(source, proven, read_again_after=read_again_after, reported_end=reported_end)

    def same_as_source(self, source: SourcePartition, cluster: Config) -> SourceVerdict:
        """Raises StoreUnavailable, BrokerUnavailable. A request that the cluster refuses makes the verdict unequal."""
        topic = TopicPartition(source.topic, source.partition)
        try:
            return self._same_as_source(source, cluster)
        except (TargetError, MalformedEvent) as error:
            why = _refused(cluster, error) if isinstance(error, TargetError) else str(error)
            return self._verifier.compare_with_source(
                source, topic, None, iter(()), source_compacted=False, unreadable=why
            )

    def _same_as_source(self, source: SourcePartition, cluster: Config) -> SourceVerdict:
        admin = KafkaAdmin(cluster.cluster.properties("admin"))
        topic = TopicPartition(source.topic, source.partition)
        marks = admin.watermarks([topic]).get(topic)
        if marks is None:
            why = _absent(admin, cluster, topic, WRONG_FILE)
            return self._verifier.compare_with_source(
                source, topic, None, iter(()), source_compacted=False, unreadable=why
            )
        extent = joined(info.segment.offsets for info in self._archive.segments.list(source))
        compacted = TopicConfigs(admin.configs(source.topic)).is_compacted
        read = partial(read_partition, cluster.cluster.properties("consumer"))
        if extent.start is None:
            control, now = self._archive.control, self._clock.now()
            offsets = unarchived(source, marks, control=control, admin=admin, read=read, now=now)
            if offsets is not None:
                why = f"the archive has nothing of it, and {topic} has records from {offsets.start} to {offsets.end}"
                return self._verifier.compare_with_source(
                    source, topic, None, iter(()), source_compacted=compacted, unreadable=why
                )
        common = None
        if extent.start is not None and extent.next_offset is not None:
            begin = self._archive.control.begins.of(source)  # the first segments may be missing, too
            start = extent.start if begin is None else min(begin.offset, extent.start)
            low, end = max(marks.low, start), min(marks.high, extent.next_offset) - 1
            common = OffsetRange(low, end) if low <= end else None
        bounds = (common.start, common.next_offset) if common is not None else (0, 0)
        records = read(topic, *bounds)
        return self._verifier.compare_with_source(source, topic, common, records, source_compacted=compacted)

    def same_as_target(
        self,
        source: SourcePartition,
        cluster: Config,
        topic: str,
        *,
        offsets: IntRange | None = None,
        transform: str = "",
        without_header: str = "",
    ) -> TargetVerdict:
        """`topic`: its name in `cluster`. `offsets`: the delivered ones; None: those of the selection. `transform`: the
        function that they were delivered through. `without_header`: name of the header that they got. Raises as
        `same_as_source` does."""
        target = TopicPartition(topic, source.partition)
        scope = RecordFilter(offsets=offsets or self.selection.offsets, timestamps=self.selection.timestamps)
        try:
            records, why = _from_its_beginning(cluster, target, OTHER_NAME)
            if not why:
                return self._verifier.compare_with_target(
                    source, target, scope, records, transform, without_header=without_header
                )
        except TargetError as error:
            why = _refused(cluster, error)
        return TargetVerdict(source=source, target=target, result=None, unreadable=why)

    def source_as_target(
        self,
        source: SourcePartition,
        cluster: Config,
        copied_to: Config,
        copy: str,
        *,
        transform: str = "",
        without_header: str = "",
    ) -> TargetVerdict:
        """Compare the topic of `cluster` with `copy`, without the archive. Records not copied yet count as a
        difference. `transform`, `without_header`: as in `same_as_target`. Raises BrokerUnavailable."""
        topic = TopicPartition(source.topic, source.partition)
        target = TopicPartition(copy, source.partition)
        try:
            ours, why = _from_its_beginning(cluster, topic, WRONG_FILE)
            theirs, why_theirs = _from_its_beginning(copied_to, target, OTHER_NAME)
            if not why and not why_theirs:
                return compared_through(transform, source, target, ours, theirs, without_header=without_header)
        except TargetError as error:
            why, why_theirs = _refused(copied_to, error), ""
        return TargetVerdict(source=source, target=target, result=None, unreadable=why or why_theirs)

    def close(self) -> None:
        self._opened.close()

    def each(
        self,
        verdict: Callable[[SourcePartition], T],
        progress: Progress = no_progress,
        *,
        of: Collection[SourcePartition] | None = None,
    ) -> Iterator[T]:
        """Verdicts of partitions, computed in parallel, in order. `of`: the partitions; None: all of the selection."""
        sources = self.sources() if of is None else of
        for done, answer in enumerate(self._pool.map(verdict, sources), start=1):
            progress(done, len(sources))
            yield answer


def unverified(
    selection: Selection, scope: VerifyScope, source: SourcePartition, reason: str, *, is_delivered: bool
) -> Mapping[str, Any]:
    """The entry of a partition of which nothing was found out. `is_delivered`: by a restore of `selection`."""
    entry: Mapping[str, Any]
    if scope.cluster is None:
        entry = entry_of(
            ArchiveVerdict(source=source, offsets=None, objects=0, size_bytes=0, read={}, unreadable=reason)
        )
    elif scope.kind == SOURCE:
        topic, nothing = TopicPartition(source.topic, source.partition), compare(iter(()), iter(()))
        entry = entry_of(
            SourceVerdict(
                source=source,
                topic=topic,
                offsets=None,
                comparison=nothing,
                source_compacted=False,
                unreadable=reason,
            )
        )
    else:
        name = selection.renaming(source.topic) if is_delivered else copied_as(selection, source, scope.cluster)
        target = TopicPartition(name, source.partition)
        entry = {
            **entry_of(TargetVerdict(source=source, target=target, result=None, unreadable=reason)),
            "kind": scope.kind,
        }
    return {**entry, "failed": reason}


def _from_its_beginning(
    cluster: Config, partition: TopicPartition, if_absent: str
) -> tuple[Iterator[RecordBatch], str]:
    """All records of a partition; or none, and why its first record is not known."""
    admin = KafkaAdmin(cluster.cluster.properties("admin"))
    marks = admin.watermarks([partition]).get(partition)
    if marks is None:
        return iter(()), _absent(admin, cluster, partition, if_absent)
    if marks.low > 0:
        return iter(()), f"the first {marks.low} offsets of {partition} were deleted: which records were they?"
    return read_partition(cluster.cluster.properties("consumer"), partition, marks.low, marks.high), ""


def _named(cluster: Config) -> str:
    return f"the cluster of {cluster.source} ({cluster.cluster.servers})"


def _refused(cluster: Config, error: TargetError) -> str:
    return f"{_named(cluster)}: {error}"


def _absent(admin: KafkaAdmin, cluster: Config, partition: TopicPartition, remedy: str) -> str:
    """The message about a partition that does not exist: the cluster that was asked, and the remedy."""
    where = _named(cluster)
    facts = admin.describe([partition.topic]).get(partition.topic)
    if facts is not None:
        return f"{where} has {facts.partition_count} partitions of {partition.topic}, and not {partition.partition}"
    return f"{where} has no topic {partition.topic}: {remedy}"
