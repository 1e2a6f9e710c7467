"""Runs a verification as Spark tasks: one partition each. A task returns only its report entry and the proven
objects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from formats.int_range import IntRange
from formats.segment import Segment, SourcePartition, parse_source
from infra.runtime.progress import Progress
from replicator.config import Config
from replicator.selection import Selection
from replicator.services.spark_jobs import SparkJobs
from replicator.services.wiring import for_workers
from replicator.verify.proven import Proven, decode_proven, encode_proven, proven_by_source
from replicator.verify.scope import Found, VerifyScope
from replicator.verify.verify import Elsewhere, Verification, unverified

if TYPE_CHECKING:
    from infra.spark.driver import SparkSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCheck:
    """One partition to verify. `delivered`: the offsets that a restore delivered to a TARGET; None: all selected."""

    source: SourcePartition
    proven: Mapping[Segment, Proven]
    delivered: IntRange | None = None
    reported_end: int = 0  # next offset up to which it has to be stored, as egress reported; 0: no report


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """A `SparkTask`: verifies the partition of a row. It is pickled together with the configurations, which include
    credentials."""

    config: Config
    selection: Selection
    scope: VerifyScope

    def row(self, item: PartitionCheck) -> str:
        offsets = None if item.delivered is None else [item.delivered.low, item.delivered.high]
        proven, end = encode_proven(item.proven), item.reported_end
        return json.dumps({"source": str(item.source), "proven": proven, "delivered": offsets, "reported_end": end})

    def __call__(self, row: str) -> str:
        fields = json.loads(row)
        with Verification(self.config, self.selection) as verification:
            source, delivered = parse_source(fields["source"]), fields["delivered"]
            offsets = None if delivered is None else IntRange(*delivered)
            proven, end = decode_proven(fields["proven"]), fields["reported_end"]
            entry, read = verification.scan(self.scope, source, proven, offsets, reported_end=end)
        return json.dumps({"entry": entry, "proven": encode_proven(read)})

    def outcome(self, answer: str) -> Found:
        fields = json.loads(answer)
        return fields["entry"], decode_proven(fields["proven"])

    def failed(self, item: PartitionCheck, reason: str) -> Found:
        return unverified(self.selection, self.scope, item.source, reason, is_delivered=item.delivered is not None), {}


def sent(task: VerifyTask) -> VerifyTask:
    """`task` as it is pickled: of the other configurations only the cluster, and what ingress calls a copy there."""

    def cluster_of(config: Config | None) -> Config | None:
        if config is None:
            return None
        same = replace(config, s3=task.config.s3, encryption=task.config.encryption)  # no second bucket is read
        return for_workers(same, "kafka", "ingress")

    scope = replace(
        task.scope, cluster=cluster_of(task.scope.cluster), source_cluster=cluster_of(task.scope.source_cluster)
    )
    return replace(task, config=for_workers(task.config), scope=scope)


def tasks_on(settings: SparkSettings) -> Elsewhere:
    """The `elsewhere` argument of `Verification.run`."""

    def found(
        config: Config, selection: Selection, scope: VerifyScope, proven: Mapping[Segment, Proven], progress: Progress
    ) -> Iterator[Found]:
        return on_spark(settings, VerifyTask(config, selection, scope), proven, progress)

    return found


def on_spark(
    settings: SparkSettings,
    task: VerifyTask,
    proven: Mapping[Segment, Proven],
    progress: Progress,
    *,
    delivered: Mapping[SourcePartition, IntRange] | None = None,
) -> Iterator[Found]:
    """Verify partitions as Spark tasks. `delivered`: only these partitions, each with the offsets that a restore
    delivered to a TARGET; None: the whole selection. Raises ConfigError, PlanFailed, SparkUnavailable, and what
    `progress` raises, which ends the run."""
    if delivered is None:
        with Verification(task.config, task.selection) as verification:
            ends = verification.sources_of(task.scope)
    else:
        ends = dict.fromkeys(delivered, 0)
    by_source = proven_by_source(proven)
    checks = [
        PartitionCheck(
            source=source,
            proven=by_source.get(source, {}),
            delivered=None if delivered is None else delivered[source],
            reported_end=end,
        )
        for source, end in ends.items()
    ]
    with SparkJobs(settings) as jobs:
        found = jobs.run(sent(task), checks, progress=progress)
    yield from found
