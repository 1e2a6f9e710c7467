"""The restore of topics from the archive: the API of the command and of Python users.

with Restore(load("replicator.toml"), Selection(region="us-east-1", topics=[TopicPattern("sensor.events")])) as restore:
    plan = restore.plan()
    for outcome in restore.run(plan):
        print(outcome.target, outcome.records, outcome.failed)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from formats.errors import ConfigError, ReplicatorError, SegmentNotFound, TargetError
from formats.int_range import INT64_MAX
from formats.records.scope import RecordFilter
from formats.segment import format_key
from formats.topic_selection import explain
from infra.contracts.cluster import TopicPartition
from infra.kafka.internal_topics.ensure import ensure_checkpoint_topic, ensure_offset_map_topic
from infra.runtime.lifecycle import Closing, Deadline, Stop, SystemClock
from infra.runtime.progress import no_progress
from ingress.settings import HOLE_LIMIT
from replicator.config import Config
from replicator.restore.acl_restore import AclRestore
from replicator.restore.conflicts import ConflictKind
from replicator.restore.control_archive import acl_restore, control_archive
from replicator.restore.group_restore import GroupOutcomes, set_groups
from replicator.restore.lacking import ReportedEnds
from replicator.restore.moment import archived_cut, restored_topics, with_groups
from replicator.restore.new_partitions import NewPartitions, Settling
from replicator.restore.plan import RestorePlan, conflicts_text, first_marked
from replicator.restore.planner import RestorePlanner
from replicator.restore.progress import RestoreOutcome
from replicator.restore.request import (
    DryRun,
    Empty,
    Options,
    Preparation,
    Ready,
    Refused,
    RestoreRequest,
    Thawing,
)
from replicator.restore.sources import sources_of
from replicator.restore.spark_task import RestoreTask, with_position
from replicator.restore.target_options import TargetOptions
from replicator.restore.target_topics import TargetTopics
from replicator.restore.topic_setup import TopicSetup
from replicator.restore.worker import PartitionTask, RestoreProgress, RestoreSettings, RestoreWorker
from replicator.selection import Selection, checkpoint_topic, restored_offset_map
from replicator.services.spark_jobs import SparkJobs
from replicator.services.wiring import for_workers, s3_cold

__all__ = ["ConflictKind", "Options", "Restore", "RestoreRequest", "Selection", "TargetOptions"]

EMPTY = "no stored record lies within the selected partitions, offsets and times"
MARKERS_WITHIN, MARKERS_POLL = timedelta(seconds=10), timedelta(milliseconds=20)


class RestoreStopped(ReplicatorError):
    pass


class Restore(Closing):
    """A context manager, for one thread."""

    def __init__(
        self,
        config: Config,
        selection: Selection,
        target_options: TargetOptions | None = None,
        options: Options | None = None,
        *,
        stop: Stop | None = None,
    ) -> None:
        """`stop` may be set at any time: the same restore resumes later. Raises ConfigError."""
        if selection.at is not None and options is not None and options.follow is not None:
            raise ConfigError(["a restore to a moment ends there: --follow goes on"], source="restore")
        if (
            selection.preserves_offsets
            and options is not None
            and (options.spark is not None or options.follow is not None)
        ):
            what = "--spark" if options.spark is not None else "--follow"
            why = f"--preserve-offsets brings each log to an end, by one process: leave {what} out"
            raise ConfigError([why], source="restore")
        if selection.at is None and options is not None and options.groups:
            raise ConfigError(["positions of groups are those of a moment: --groups needs --at"], source="restore")
        self._config, self._target_options, self._options = (
            config,
            target_options or TargetOptions(),
            options or Options(),
        )
        self.stop = stop or Stop()
        # a restore started on Spark cannot be resumed without Spark, nor the reverse: each fences only its own
        # processes
        self.selection = replace(selection, on_spark=self._options.spark is not None)
        self.id = self._options.restore_id or self.selection.digest
        try:
            topic = checkpoint_topic(self.selection, self.id)
        except ValueError as error:
            raise ConfigError([str(error)], source="restore") from error
        self._opened, self._clock = ExitStack(), SystemClock()
        self._settings = RestoreSettings(
            checkpoint_topic=topic,
            offset_map_topic=restored_offset_map(topic),
            scope=RecordFilter(offsets=selection.offsets, timestamps=selection.timestamps),
            keep=self._options.keep,
            change=self._options.change,
            max_rate=self._options.max_rate,
            follow=self._options.follow,
            skip_missing=ConflictKind.MISSING in self._target_options.accept,
            preserves_offsets=selection.preserves_offsets,
            hole_limit=INT64_MAX if ConflictKind.LONG_HOLES in self._target_options.accept else hole_limit(config),
        )
        self._worker = RestoreWorker(config, self._settings, topic, self.stop, self._opened)
        self._cold = s3_cold(config.s3, self.stop, self._opened)
        self._setup = TopicSetup(
            admin=self._worker.admin,
            acls=self._acls(),
            replication_factor=self._target_options.replication_factor,
            is_whole=self.selection.is_whole,
        )
        self._settling = Settling()
        self.spark = SparkJobs(self._options.spark)

    def _acls(self) -> AclRestore:
        return acl_restore(self._config, self._worker.admin)

    def plan(self) -> RestorePlan:
        """Changes nothing. Raises ConfigError, StoreUnavailable, BrokerUnavailable, MalformedEvent."""
        worker, checkpoints = self._worker, self._worker.checkpoints if self._has_begun() else None
        cut = None
        if self.selection.at is not None:
            cut = archived_cut(worker.archive.control, self.selection, checkpoints, self._clock.now())
        planner = RestorePlanner(
            archive=worker.archive,
            admin=worker.admin,
            clock=self._clock,
            pool=worker.pool,
            cold=self._cold,
            control=control_archive(
                self._config,
                self.selection,
                self._target_options,
                worker.archive.control,
                self._acls(),
                moment=None if cut is None else cut.cut.moment,
            ),
            cut=cut,
            hole_limit=hole_limit(self._config),
        )
        plan = planner.plan(self.selection, self.id, self._target_options, checkpoints)
        if self._options.groups:
            plan = with_groups(plan, worker.archive.control, self.selection)
        if cut is None and self._options.follow is None:  # with `follow`, the rest may still come
            is_accepted = ConflictKind.NOT_ARCHIVED in self._target_options.accept
            plan = self._reported_ends().with_lacking(plan, accepted=is_accepted)
        return replace(plan, warnings=[*plan.warnings, *egress_warnings(self._config, plan)])

    def _reported_ends(self) -> ReportedEnds:
        return ReportedEnds(
            archive=self._worker.archive, selection=self.selection, now=self._clock.now(), pool=self._worker.pool
        )

    def set_groups(self, plan: RestorePlan) -> GroupOutcomes:
        """Set the positions of the plan's groups, after `run` when every partition is done. Given again, it moves no
        group back. Raises BrokerUnavailable, TargetError."""
        if plan.groups is None or plan.cut is None:
            return {}
        return set_groups(
            self._config,
            self._worker.admin,
            plan.groups,
            restored_topics(plan, plan.cut, self.selection),
            checkpoints=self._worker.checkpoints,
            offset_map_topic=self._settings.offset_map_topic,
            destinations={topic.destination for topic in plan.topics},
            preserves_offsets=plan.preserves_offsets,
            pool=self._worker.pool,
            now=self._clock.now(),
        )

    def prepare(self, *, dry_run: bool = False, thaw_days: int | None = None) -> Preparation:
        """Plan the restore and decide what happens next.

        `dry_run`: change nothing. `thaw_days`: request archived objects, if there are any, readable for this many days.
        Without either, an earlier process of this restore is fenced first. Raises as `take_over`, `plan` and `thaw`.
        """
        if not dry_run and thaw_days is None:
            self.take_over()
        plan = self.plan()
        if dry_run:
            return DryRun(plan)
        if thaw_days is not None and any(topic.frozen for topic in plan.topics):
            return Thawing(plan, self.thaw(plan, thaw_days))
        if self.is_empty(plan):
            return Empty(plan)
        return Refused(plan) if plan.refused else Ready(plan)

    def is_empty(self, plan: RestorePlan) -> bool:
        """Whether there is nothing to restore. False with `follow`, which waits for new segments."""
        return plan.is_empty and self._options.follow is None

    def thaw(self, plan: RestorePlan, days: int) -> int:
        """Request every archived object of the plan that is still stored. Returns their number. Raises
        StoreUnavailable."""
        requested = 0
        for info in (info for topic in plan.topics for info in topic.frozen):
            with suppress(SegmentNotFound):  # removed since, as by a merge: the restore plans again
                self._cold.thaw(format_key(self._config.s3.prefix, info.segment), days)
                requested += 1
        return requested

    def take_over(self) -> None:
        """Abort the open transaction of an earlier process of this restore, and fence that process if it still runs.

        Planning then need not wait for it. Raises BrokerUnavailable.
        """
        if self._has_begun():
            self._worker.take_over()

    def run(
        self,
        plan: RestorePlan,
        on_progress: RestoreProgress = lambda _: None,
        on_spark_progress: Callable[[int, int], None] = no_progress,
    ) -> Sequence[RestoreOutcome]:
        """Execute `plan`. Raises ConfigError when nothing is selected, TargetError when a conflict is not accepted,
        OwnershipLost when the same restore was started elsewhere, BrokerUnavailable, StoreUnavailable; on Spark
        PlanFailed, SparkUnavailable, JavaMissing."""
        if self.is_empty(plan):
            raise ConfigError([f"{EMPTY}: nothing was created"], source="archive")
        if plan.refused:
            raise TargetError("this restore has conflicts:\n" + "\n".join(conflicts_text(plan)))
        self.spark.need_java()  # before topics are created
        if self._options.follow is not None:
            plan = self._settling.settled(plan, self._clock.now())
        outcomes: dict[str, RestoreOutcome] = {}
        while True:
            new_partitions = self._new_partitions(plan)
            found = self._run(plan, on_progress, on_spark_progress, new_partitions)
            outcomes |= {outcome.source: outcome.behind(outcomes.get(outcome.source)) for outcome in found}
            if new_partitions is None or new_partitions.found is None or self.stop.is_set():
                return list(outcomes.values())
            plan = new_partitions.found  # executed from its beginning: the checkpoints show what is done

    def _has_begun(self) -> bool:
        """Whether a process of this restore ran before, or runs now."""
        topic = self._settings.checkpoint_topic
        return topic in self._worker.admin.describe([topic])

    def _new_partitions(self, plan: RestorePlan) -> NewPartitions | None:
        if self._options.follow is None:
            return None
        worker = self._worker
        return NewPartitions(
            plan=plan,
            stored=lambda: sources_of(worker.archive, self.selection),
            make_plan=lambda: self._settling.settled(self.plan(), self._clock.now()),
            pool=worker.pool,
            clock=self._clock,
            interval=self._options.follow,
        )

    def _run(
        self,
        plan: RestorePlan,
        on_progress: RestoreProgress,
        on_spark_progress: Callable[[int, int], None],
        new_partitions: NewPartitions | None,
    ) -> Sequence[RestoreOutcome]:
        ids = self._setup.create(plan)
        replicas = self._target_options.replication_factor
        ensure_checkpoint_topic(self._worker.admin, plan.checkpoint_topic, replication_factor=replicas)
        ensure_offset_map_topic(self._worker.admin, self._settings.offset_map_topic, replication_factor=replicas)
        self._worker.take_over()
        if plan.cut is not None:
            self._worker.pin(plan.cut)
        tasks = [
            PartitionTask(plan=partition, topic_id=ids[topic.destination], clamp=topic.clamps)
            for topic in plan.topics
            for partition in topic.partitions
            if partition.target.partition < topic.partition_count
        ]
        # Mark the topics as written by this restore before their first record: an aborted transaction leaves offsets
        # in the log, and the next run must not take them for records of another writer.
        known = set(self._worker.checkpoints.read())
        self._setup.prepare(plan, {key.destination_topic for key in known})
        marked = set(first_marked(plan, known))
        first = [task for task in tasks if task.plan.key in marked]
        if first:
            self._worker.begin(first)
        outcomes = (
            [
                RestoreOutcome.of(p)
                for p in self._worker.restore(tasks, on_progress, new_partitions.turn if new_partitions else _never)
            ]
            if self._options.spark is None
            else self._on_spark(tasks, on_spark_progress)
        )
        self._wait_for_markers([task.plan.target for task in tasks])
        # checked last: everything acknowledged is in these topics only if they are still the same
        replaced = TargetTopics(self._worker.admin, ids, self._worker.pool).replaced()
        return [o.void(replaced[o.topic]) if o.topic in replaced else o for o in outcomes]

    def sample(self, plan: RestorePlan, count: int) -> Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
        """The first records of the first partition that has any, each with its transformed form; None: filtered out.
        Empty when the restore has no transforms."""
        if not self._options.keep and not self._options.change:
            return []
        return self._worker.sample([partition for partition in plan.partitions if not partition.is_done], count)

    def close(self) -> None:
        self.spark.close()
        self._opened.close()

    def _on_spark(
        self, tasks: Sequence[PartitionTask], on_progress: Callable[[int, int], None]
    ) -> Sequence[RestoreOutcome]:
        def report_progress(done: int, total: int) -> None:
            if self.stop.is_set():
                raise RestoreStopped("stopped before the end; run the same restore again to resume it")
            on_progress(done, total)

        task = RestoreTask(for_workers(self._config, "kafka"), replace(self._settings, follow=None))
        outcomes = self.spark.run(task, tasks, progress=report_progress)
        if not any(outcome.failed for outcome in outcomes):
            return outcomes
        positions = self._worker.checkpoints.read()
        return [with_position(o, positions.get(t.plan.key)) for t, o in zip(tasks, outcomes, strict=True)]

    def _wait_for_markers(self, targets: Sequence[TopicPartition]) -> None:
        """Wait until readers see every record: a commit may be answered before its marker is in the log."""
        deadline = Deadline(MARKERS_WITHIN)
        while not deadline.expired and not self.stop.is_set():
            ends = self._worker.admin.ends(targets)
            if all(end.stable == end.high for end in ends.values()):
                return
            self.stop.wait(MARKERS_POLL)


def egress_warnings(config: Config, plan: RestorePlan) -> Sequence[str]:
    """Warn of a destination that this file's egress selects: it would be archived as one more topic, and delivered."""
    egress, own = config.egress, config.own_topics
    if egress is None:
        return []
    verdicts = [explain(topic.destination, egress.rules, own) for topic in plan.topics]
    return [
        f"[egress] of this file selects {verdict.topic} {verdict.why}: what is restored is archived as a topic of "
        "its own, and delivered wherever that archive goes. Choose another name (--rename), or keep egress from "
        "selecting it"
        for verdict in verdicts
        if verdict.selected
    ]


def hole_limit(config: Config) -> int:
    """As in ingress."""
    return HOLE_LIMIT if config.ingress is None else config.ingress.preserve_hole_limit


def _never() -> bool:
    return False
