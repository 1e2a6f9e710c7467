"""History of topics from Kafka into the archive: the API of the command and of Python users.

with Backfill(load("replicator.toml"), BackfillRequest(topics=[TopicPattern("orders")])) as backfill:
    plan = backfill.plan()
    report = backfill.run(plan)

    plan ──> claim, begin of an empty archive ──> tasks store segments ──> nothing missing? ──> gap, earlier begin

Whatever ends it, the same request plans what is left. The begin of an archive is lowered last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import TYPE_CHECKING

from egress.settings import EgressTopicSettings
from egress.topics.claims import Blocked, TopicClaims
from formats.control.archive_begin import ArchiveBegin
from formats.control.gap import RecordedGap
from formats.errors import TargetError
from formats.segment import SourcePartition
from infra.archive.forward_listing import covered
from infra.archive.lease import BACKFILL, hold_lease, this_process
from infra.contracts.cluster import TopicPartition
from infra.kafka.cluster.groups import KafkaGroups
from infra.kafka.cluster.log_probe import KafkaLogProbe
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Closing, Stop, SystemClock
from infra.runtime.progress import Progress, no_progress
from replicator.absent_topics import absent_from_cluster
from replicator.backfill.estimate import estimated_bytes
from replicator.backfill.facts import EARLIER, FIRST, FactFinder, TopicArchive
from replicator.backfill.log_check import changed_log
from replicator.backfill.plan import PartitionBackfill, PartitionFacts, Wanted, is_joined, plan_partition, split
from replicator.backfill.range_writer import BackfillStopped
from replicator.backfill.request import (
    BackfillPlan,
    BackfillReport,
    BackfillRequest,
    PartitionResult,
    RangeOutcome,
    RangeTask,
)
from replicator.backfill.spark_task import BackfillTask
from replicator.backfill.topics import require_partitions, selected_topics
from replicator.backfill.worker import BackfillWorker, failed
from replicator.config import Config
from replicator.services.egress import isolation_level
from replicator.services.spark_jobs import SparkJobs
from replicator.services.wiring import for_workers, require_conditional_writes

if TYPE_CHECKING:
    from infra.spark.driver import SparkSettings

__all__ = ["Backfill", "BackfillRequest"]

LOOKUPS = 8  # partitions at a time whose archive is looked up
SEGMENTS_OF_A_TASK = 10
_Execute = Callable[[Sequence[RangeTask], Progress], Sequence[RangeOutcome]]


class Backfill(Closing):
    """A context manager, for one thread."""

    def __init__(
        self,
        config: Config,
        request: BackfillRequest,
        *,
        spark: SparkSettings | None = None,
        stop: Stop | None = None,
    ) -> None:
        """`stop` may be set at any time: the same request goes on later. `spark`: run the tasks there. Raises
        ConfigError when the configuration has no [egress]."""
        self.request, self.stop = request, stop or Stop()
        self._config = config
        self.spark = SparkJobs(spark)
        self._opened, self._clock = ExitStack(), SystemClock()
        self._worker = BackfillWorker.open(config, self.stop, self._opened, share=request.parallelism)
        self._settings = self._worker.settings
        properties = config.cluster.properties("consumer")
        self._probe = KafkaLogProbe(properties, admin=config.cluster.properties("admin"))
        self._pool = ThreadPoolExecutor(LOOKUPS, "lookup")
        self._opened.callback(self._pool.shutdown, wait=False, cancel_futures=True)
        self._finder = FactFinder(
            region=config.region,
            group_id=self._settings.group_id,
            admin=self._worker.admin,
            groups=KafkaGroups(config.cluster.properties("admin"), properties),
            probe=self._probe,
            archive=self._worker.archive,
            is_committed_only=isolation_level(config) == "read_committed",
        )

    @property
    def tasks_at_once(self) -> int | None:
        """None: as many as Spark has cores."""
        return None if self.spark.settings is not None else self.request.parallelism

    def plan(self) -> BackfillPlan:
        """Changes nothing. Raises ConfigError for a topic that egress does not archive and for partitions that no topic
        has, BrokerUnavailable, StoreUnavailable and TargetError."""
        settings = selected_topics(self._worker.admin, self.request.topics, self._config)
        topics = self._finder.topics(list(settings))
        counts = {name: topic.facts.partition_count for name, topic in topics.items()}
        require_partitions(self.request.topics, self.request.partitions, counts, self._config)
        gone: dict[str, str] = {}
        if absent := sorted(settings.keys() - topics.keys()):
            existing = self._worker.admin.topics()
            gone = {name: f"{name}: {absent_from_cluster(name, existing)}" for name in absent}
        by_source = {
            source: topic
            for topic in topics.values()
            for number in range(topic.facts.partition_count)
            if self.request.partitions is None or number in self.request.partitions
            for source in [SourcePartition.of(self._config.region, topic.incarnation, number)]
        }
        facts = self._finder.partitions(by_source, self._pool)
        wanted = self._wanted(list(facts.values()))
        partitions = [plan_partition(one, wanted[source]) for source, one in facts.items()]
        cluster_id = self._worker.admin.cluster_id()
        tasks = [
            task
            for partition in partitions
            for task in self._tasks(partition, by_source[partition.source], settings, cluster_id)
        ]
        size_bytes, is_known = estimated_bytes(self._config.cluster.properties("consumer"), partitions, self._pool)
        return BackfillPlan(
            region=self._config.region,
            partitions=partitions,
            tasks=tasks,
            size_bytes=size_bytes,
            is_size_known=is_known,
            refused=gone,
        )

    def run(self, plan: BackfillPlan, progress: Progress = no_progress) -> BackfillReport:
        """Carry out a plan of `plan`. `progress`: (tasks done, tasks), on this thread.

        A partition that failed is named in the report, and does not affect the others. Raises TargetError when the plan
        has conflicts, LeaseTaken when another backfill works on the region's archive, ConfigError when the bucket lets
        objects be overwritten, PlanFailed and SparkUnavailable, StoreUnavailable and BrokerUnavailable.
        """
        if plan.conflicts:
            raise TargetError("; ".join(plan.conflicts))
        began = time.monotonic()
        require_conditional_writes(self._config.s3, self._config.region, self.stop)
        control = self._worker.archive.control
        with hold_lease(control.leases, plan.region, this_process(), self._clock, name=BACKFILL):
            problems = self._begun(plan)
            tasks = [task for task in plan.tasks if task.source not in problems]
            execute: _Execute = self._here if self.spark.settings is None else self._on_spark
            outcomes = list(execute(tasks, progress)) if tasks else []
            results = [self._finished(one, outcomes, problems.get(one.source, "")) for one in plan.partitions]
        return BackfillReport(
            region=plan.region,
            partitions=results,
            seconds=time.monotonic() - began,
            is_stopped=self.stop.is_set(),
        )

    def close(self) -> None:
        self.spark.close()
        self._opened.close()

    # --- planning

    def _wanted(self, facts: Sequence[PartitionFacts]) -> Mapping[SourcePartition, Wanted]:
        request = self.request
        partitions = {one.source: TopicPartition(one.source.topic, one.source.partition) for one in facts}
        admin = self._worker.admin
        since = admin.offsets_at(list(partitions.values()), request.since) if request.since else {}
        until = admin.offsets_at(list(partitions.values()), request.until) if request.until else {}
        return {
            source: Wanted(
                start=max(request.offsets.low, since.get(partition, 0)),
                next_offset=min(request.offsets.high + 1, until.get(partition, request.offsets.high + 1)),
                fill_gaps=request.fill_gaps,
                leave_gap=request.leave_gap,
            )
            for source, partition in partitions.items()
        }

    def _tasks(
        self,
        partition: PartitionBackfill,
        topic: TopicArchive,
        settings: Mapping[str, EgressTopicSettings],
        cluster_id: str,
    ) -> Iterator[RangeTask]:
        chosen = settings[topic.facts.name]
        size = self.request.task_offsets or SEGMENTS_OF_A_TASK * chosen.max_segment_messages
        for offsets in split(partition.ranges, size):
            yield RangeTask(
                source=partition.source,
                offsets=offsets,
                topic_id=topic.facts.topic_id,
                cluster_id=cluster_id,
                partition_count=topic.facts.partition_count,
                max_messages=chosen.max_segment_messages,
                max_bytes=chosen.max_segment_size,
            )

    # --- running

    def _begun(self, plan: BackfillPlan) -> Mapping[SourcePartition, str]:
        """Claim the paths, and record the begin of archives that have none. Returns why partitions cannot be done."""
        control, admin = self._worker.archive.control, self._worker.admin
        claims, claimed = TopicClaims(plan.region, control, self._clock), control.claims.paths(plan.region)
        cluster_id = admin.cluster_id()
        work = [one for one in plan.partitions if not one.is_empty]
        facts = admin.describe({one.source.topic for one in work})
        topics = {name: claims.resolve(found, cluster_id, claimed) for name, found in facts.items()}
        problems: dict[SourcePartition, str] = {}
        for one in work:
            topic = topics.get(one.source.topic)
            if topic is None or isinstance(topic, Blocked):
                problems[one.source] = "the topic is gone" if topic is None else topic.reason
            elif topic.incarnation.path != one.source.path:
                problems[one.source] = "the topic was created again since the plan: plan again"
            elif one.is_first and one.new_begin is not None:
                # before the first segment, as egress does: a reader never sees one without the other
                begin = ArchiveBegin(offset=one.new_begin, reason=FIRST, recorded_at=self._clock.now())
                held = control.begins.record(one.source, begin)
                if held.offset != one.new_begin:
                    problems[one.source] = f"egress has begun its archive at {held.offset} since the plan: plan again"
        return problems

    def _here(self, tasks: Sequence[RangeTask], progress: Progress) -> Sequence[RangeOutcome]:
        def run(task: RangeTask) -> RangeOutcome:
            if self.stop.is_set():
                return failed(task, "stopped before it began")
            return self._worker.attempt(task)

        with ThreadPoolExecutor(self.request.parallelism, "range") as pool:
            futures = [pool.submit(run, task) for task in tasks]
            try:
                left = set(futures)
                while left:
                    progress(len(tasks) - len(left), len(tasks))
                    left = wait(left, timeout=1, return_when=FIRST_COMPLETED).not_done
                progress(len(tasks), len(tasks))
            except BaseException:
                self.stop.set()
                raise
        return [future.result() for future in futures]

    def _on_spark(self, tasks: Sequence[RangeTask], progress: Progress) -> Sequence[RangeOutcome]:
        def report(done: int, total: int) -> None:
            if self.stop.is_set():
                raise BackfillStopped("stopped; what is stored stays, and the same command goes on after it")
            progress(done, total)

        return self.spark.run(BackfillTask(for_workers(self._config, "kafka", "egress")), tasks, progress=report)

    def _finished(self, plan: PartitionBackfill, outcomes: Sequence[RangeOutcome], problem: str) -> PartitionResult:
        """Lower the begin of the partition's archive if all its ranges are stored."""
        mine = [one for one in outcomes if one.source == str(plan.source)]
        partition = TopicPartition(plan.source.topic, plan.source.partition)
        failed_range = next((one.failed for one in mine if one.failed), "")
        why = problem or failed_range or changed_log(self._probe, partition, mine)
        begin = plan.new_begin if plan.is_first and not problem else plan.begin
        if not why and plan.new_begin is not None and not plan.is_first:
            begin, why = self._joined(plan, plan.new_begin)
        return PartitionResult(
            source=str(plan.source),
            segments=sum(one.segments for one in mine),
            records=sum(one.records for one in mine),
            raw_bytes=sum(one.raw_bytes for one in mine),
            stored_bytes=sum(one.stored_bytes for one in mine),
            begin=begin,
            failed=why,
        )

    def _joined(self, plan: PartitionBackfill, new_begin: int) -> tuple[int | None, str]:
        """The begin of the archive, after it was lowered to `new_begin`; or why it was not."""
        control, source, now = self._worker.archive.control, plan.source, self._clock.now()
        for offsets in plan.left_out:
            gap = RecordedGap(
                source=source,
                offsets=offsets,
                reason="left out by a backfill",
                low=new_begin,
                high=offsets.next_offset,
                recorded_at=now,
                is_accepted=True,
            )
            with durable(Step.RECORD_GAP):
                control.gaps.record(gap)
        recorded = control.gaps.ranges(source)
        runs = covered(self._worker.archive.segments, source, before=plan.begin).runs
        if not is_joined(plan, runs, recorded):
            return plan.begin, "not all of it is stored: give the same command again"
        # last: until then readers begin where they did, and egress does not search for what is not there
        held = control.begins.lower(source, ArchiveBegin(offset=new_begin, reason=EARLIER, recorded_at=now))
        return held.offset, ""
