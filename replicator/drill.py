"""A disaster recovery drill: restores into a scratch cluster, verifies it, and measures duration and data loss.

archive ── restore ──> scratch cluster ── verify ──> equal?     RTO: from the command to the last record
source cluster, if it can be reached                            RPO: age of the oldest record not archived yet
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats.coverage import uncovered
from formats.errors import BrokerUnavailable, MalformedEvent, ReplicatorError, TargetError
from formats.int_range import IntRange
from formats.segment import OffsetRange, SourcePartition
from infra.archive.archive import Archive
from infra.contracts.cluster import ClusterAdmin, TopicFacts
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.log_probe import KafkaLogProbe
from infra.runtime.lifecycle import Stop, SystemClock
from infra.runtime.prometheus import PrometheusMetrics
from replicator.config import Config
from replicator.egress_topics import egress_topics
from replicator.recovery_point import RecoveryPoint, archived_ends, recovery_point
from replicator.restore.progress import RestoreOutcome
from replicator.restore.restore import ConflictKind, Options, Restore, TargetOptions
from replicator.restore.sources import sources_of
from replicator.scratch_cluster import claimed_from, cluster_id_of, open_scratch
from replicator.selection import TOPIC_SIGN, Renaming, Selection, restored_offset_map
from replicator.services.archive import open_archive
from replicator.verify.report import entry_of, line_of
from replicator.verify.scope import TARGET, VerifyScope
from replicator.verify.spark_task import VerifyTask, on_spark
from replicator.verify.verify import Verification

if TYPE_CHECKING:
    from infra.spark.driver import SparkSettings
    from replicator.restore.plan import RestorePlan

READ_WITHIN = timedelta(seconds=30)  # the timestamps of the first records that wait
LISTINGS = 4  # partitions at a time


class DrillStopped(ReplicatorError):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Drilled:
    """The result of a drill. `behind_seconds`: None if it is not known; `behind_unknown` then holds the reason."""

    region: str
    at: datetime  # UTC, when it began
    partitions: int
    records: int
    size_bytes: int
    restore_seconds: float
    verify_seconds: float
    behind_seconds: float | None
    behind_unknown: str
    bad: int  # partitions that were not restored, or not equal
    differences: Sequence[str]
    warnings: Sequence[str] = ()  # of the plan, and of topics that could not be deleted

    @classmethod
    def failed(cls, region: str, at: datetime, error: str) -> Drilled:
        """Of a drill that measured nothing: a restore would fail, as far as is known."""
        return cls(
            region=region,
            at=at,
            partitions=0,
            records=0,
            size_bytes=0,
            restore_seconds=0.0,
            verify_seconds=0.0,
            behind_seconds=None,
            behind_unknown="the drill failed",
            bad=1,
            differences=[f"the drill failed: {error}"],
        )

    @property
    def is_good(self) -> bool:
        return not self.differences

    def to_json(self) -> Mapping[str, Any]:
        return {**asdict(self), "at": self.at.isoformat(), "good": self.is_good}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """`config`: the configuration of the archive; `source`: that of the source cluster, None: `config`, if it is of
    that region; `scratch`: that of the disposable cluster to restore into. `sample`: number of partitions, chosen at
    random; None: all. `renames`: topics get names of this drill, since the cluster may have topics of theirs.
    `as_stored`: what egress reported and is not stored is no difference: the bucket gets a part of the archive."""

    config: Config
    scratch: Config
    selection: Selection
    source: Config | None = None
    sample: int | None = None
    spark: SparkSettings | None = None
    renames: bool = True
    as_stored: bool = False

    def run(self, stop: Stop) -> Drilled:
        """Raises what a restore raises, and TargetError when the scratch cluster is one that the archive is of, or that
        a file names as a source. What it created there is deleted, whatever happens."""
        at = SystemClock().now()
        scratch = open_scratch(self.scratch.cluster, self.scratch.source)
        scratch.require_none_of(self._known_clusters(stop))
        created: list[str] = []
        try:
            found = self._measured(at, created, stop)
        except ReplicatorError as error:
            if left := scratch.delete(created):
                raise TargetError("; ".join([str(error), *left])) from error
            raise
        except BaseException:
            scratch.delete(created)
            raise
        return replace(found, warnings=[*found.warnings, *scratch.delete(created)])

    def _known_clusters(self, stop: Stop) -> Mapping[str, str]:
        """What clusters are, by their ids, into which nothing is restored."""
        with ExitStack() as opened:
            claims = open_archive(self.config, stop, opened).control.claims
            pool = opened.enter_context(ThreadPoolExecutor(LISTINGS, "claims"))
            region = self.selection.region
            paths = [path for path in claims.paths(region) if self.selection.matches(path.partition("@")[0])]
            found = dict.fromkeys(claimed_from(claims, region, paths, pool), "which this archive is of")
        for file in (self.config, *([] if self.source is None else [self.source])):
            if known := cluster_id_of(file):
                found.setdefault(known, f"that of {file.source}")
        return found

    def _measured(self, at: datetime, created: list[str], stop: Stop) -> Drilled:
        """`created`: gets the names of topics before they are created."""
        behind = self._behind(stop)
        selection = self._apart(self._sampled(stop))
        into = replace(self.config, kafka=self.scratch.cluster)
        # gaps are reported as differences: they must not prevent the rest from being restored
        target_options = TargetOptions(accept=[ConflictKind.MISSING, ConflictKind.FORKED, ConflictKind.PARTITION_COUNT])
        # an id of its own: drills that cron starts in the same second would share, or refuse, each other's checkpoints
        options = Options(restore_id=f"drill-{at:%Y%m%d%H%M%S}-{uuid.uuid4().hex[:8]}", spark=self.spark)
        began = time.monotonic()
        with Restore(into, selection, target_options, options, stop=stop) as restore:
            plan = restore.plan()
            created += [topic.destination for topic in plan.topics if topic.facts is None]
            created += [plan.checkpoint_topic, restored_offset_map(plan.checkpoint_topic)]
            outcomes = restore.run(plan)
        if stop.is_set():
            raise DrillStopped("stopped before everything was restored: nothing was measured")
        restored = time.monotonic()
        differences = list(_differences(outcomes))
        lacking = [] if self.as_stored else plan.lacking
        differences += [f"{source}: missing {one}, which egress reported as archived" for source, one in lacking]
        # the archive may hold more by now: compare only the planned offsets, which were restored
        planned = {p.source: IntRange(p.offsets.start, p.offsets.end) for p in plan.partitions if p.offsets is not None}
        entries = self._compared(into, selection, planned, stop)
        unequal = [entry for entry in entries if not entry["equal"]]
        removed = self._removed(plan, outcomes, stop) if unequal else {}
        differences += [removed.get(entry["source"]) or line_of(entry) for entry in unequal]
        bad = {o.source for o in outcomes if not (o.is_whole and o.is_done)} | {entry["source"] for entry in unequal}
        bad |= {str(source) for source, _ in lacking}
        if bad:  # offsets missing in the middle of the archive are lost, too, and have no age
            behind = RecoveryPoint(None, f"{len(bad)} partitions would not be back, or not as they were")
        return Drilled(
            region=selection.region,
            at=at,
            partitions=len(outcomes),
            records=sum(outcome.records for outcome in outcomes),
            size_bytes=sum(outcome.size_bytes for outcome in outcomes),
            restore_seconds=restored - began,
            verify_seconds=time.monotonic() - restored,
            behind_seconds=behind.seconds,
            behind_unknown=behind.unknown,
            bad=len(bad),
            differences=differences,
            warnings=list(plan.warnings),
        )

    def _apart(self, selection: Selection) -> Selection:
        """Under names of its own, unless the selection renames: a topic that exists there is none of this drill."""
        if selection.renaming != Renaming() or not self.renames:
            return selection
        return replace(selection, renaming=Renaming(template=f"drill-{uuid.uuid4().hex[:8]}.{TOPIC_SIGN}"))

    def _compared(
        self, into: Config, selection: Selection, planned: Mapping[SourcePartition, IntRange], stop: Stop
    ) -> Sequence[Mapping[str, Any]]:
        """Compare the restored records with the archive: in this process or as Spark tasks, as they were restored."""
        if self.spark is None:
            with Verification(into, selection, stop=stop) as verification:
                verdicts = verification.each(
                    lambda s: verification.same_as_target(s, into, selection.renaming(s.topic), offsets=planned[s]),
                    of=planned,
                )
                return [entry_of(verdict) for verdict in verdicts]

        def raise_when_stopped(_done: int, _total: int) -> None:
            if stop.is_set():
                raise DrillStopped("stopped before everything was compared: nothing was measured")

        work = VerifyTask(into, selection, VerifyScope(kind=TARGET, cluster=into))
        return [entry for entry, _ in on_spark(self.spark, work, {}, raise_when_stopped, delivered=planned)]

    def _removed(self, plan: RestorePlan, outcomes: Sequence[RestoreOutcome], stop: Stop) -> Mapping[str, str]:
        """By partition, what retention removed from the archive after it was restored: the topic rightly has more."""
        expired = {o.source: [OffsetRange(start, end) for start, end in o.expired] for o in outcomes}
        found = {}
        with ExitStack() as opened:
            gaps = open_archive(self.config, stop, opened).control.gaps
            for one in plan.partitions:
                name = str(one.source)
                gone = [offsets for gap in gaps.ranges(one.source) for offsets in one.expired_in(gap)]
                if gone := [left for offsets in gone for left in uncovered(expired.get(name, ()), offsets)]:
                    found[name] = f"{name}: not compared: {gone[0]} was removed by retention since it was restored"
        return found

    def _sampled(self, stop: Stop) -> Selection:
        if self.sample is None:
            return self.selection
        with Verification(self.config, self.selection, stop=stop) as verification:
            sources = verification.sources()
        chosen = random.sample(list(sources), min(self.sample, len(sources)))
        return replace(self.selection, only=frozenset((s.topic, s.partition) for s in chosen))

    def _behind(self, stop: Stop) -> RecoveryPoint:
        """Of what egress selects, whether or not anything of it is stored."""
        file, region = self.source or self.config, self.selection.region
        if file.region != region:
            what = f"is of region {file.region}, and does not know {region}'s cluster: give its file"
            return RecoveryPoint(None, f"{file.source} {what}")
        if file.kafka is None:
            return RecoveryPoint(None, f"{file.source} names no cluster: add [kafka], or give another file")
        cluster = f"the cluster of {file.source} ({file.kafka.servers})"
        admin = file.kafka.properties("admin")
        probe = KafkaLogProbe(file.kafka.properties("consumer"), admin=admin, read_within=READ_WITHIN)
        with ExitStack() as opened:
            archive = open_archive(self.config, stop, opened)
            pool = opened.enter_context(ThreadPoolExecutor(LISTINGS, "rpo"))
            try:
                reach, claimed = KafkaAdmin(admin), archive.control.claims.paths(region)
                ends = archived_ends(
                    archive,
                    region,
                    self._topics(file, reach, archive, claimed),
                    cluster_id=reach.cluster_id(),
                    claimed=claimed,
                    wants=self.selection.wants,
                    pool=pool,
                )
                return recovery_point(probe, ends, SystemClock().now(), cluster)
            except (BrokerUnavailable, TargetError) as error:
                return RecoveryPoint(None, f"{cluster} was asked: {error}")
            except MalformedEvent as error:
                return RecoveryPoint(None, f"how far {region} is archived is not known: {error}")

    def _topics(
        self, file: Config, admin: ClusterAdmin, archive: Archive, claimed: Collection[str]
    ) -> Collection[TopicFacts]:
        """The selected topics that are stored, or that the egress of `file` archives. Raises BrokerUnavailable, and
        TargetError when one of them may not be described."""
        names = {source.topic for source in sources_of(archive, self.selection)}
        if file.egress is not None:
            selected = egress_topics(admin.topics(), claimed, file.egress, file.own_topics)
            names |= {name for name in selected if self.selection.matches(name)}
        return admin.describe(sorted(names)).values()


def append(history: Path, drilled: Drilled) -> None:
    """One line of JSON."""
    with history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(drilled.to_json(), separators=(",", ":")) + "\n")


def write_metrics(file: Path, drilled: Drilled) -> None:
    """For the textfile collector of Prometheus' node exporter: a drill ends before it could be scraped."""
    metrics = PrometheusMetrics()
    labels = {"region": drilled.region}
    ended = drilled.at.timestamp() + drilled.restore_seconds + drilled.verify_seconds
    metrics.gauge("drill_timestamp_seconds", ended, **labels)
    metrics.gauge("drill_restore_seconds", drilled.restore_seconds, **labels)
    if drilled.behind_seconds is not None:
        metrics.gauge("drill_behind_seconds", drilled.behind_seconds, **labels)
    metrics.gauge("drill_records", drilled.records, **labels)
    metrics.gauge("drill_differences", drilled.bad, **labels)
    metrics.write(file)


def _differences(outcomes: Sequence[RestoreOutcome]) -> Sequence[str]:
    found = [f"{o.source}: {o.failed}" for o in outcomes if o.failed]
    found += [f"corrupt: {what}" for o in outcomes for what in o.corrupt]
    found += [
        f"{o.source}: removed by retention meanwhile: [{low},{high}]" for o in outcomes for low, high in o.expired
    ]
    # given up by an earlier attempt of a Spark task: no other process restores with the id of this drill
    return found + [f"{o.source}: missing [{low},{high}]" for o in outcomes for low, high in (*o.missing, *o.given_up)]
