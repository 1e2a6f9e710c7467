"""Runs a restore as Spark tasks: one partition each. A task returns only its outcome.

Spark may run a task twice at the same time: it assumed the first attempt lost, or slow (`spark.speculation`). The later
attempt takes over the partition's transactional id, so that the earlier one can no longer write. The earlier one
neither fails nor returns. If it raised, Spark would count a failure and start a third attempt, which fences the second,
and so on until the job fails. If it returned, Spark would take its result for the partition's and end the attempt that
does the work. So it waits:

    superseded ─> the position moves ────────────> Spark ends this attempt when the other one has returned
        ^             └ no progress for long ─> take the id back, and resume at the position of the other
        └ superseded again: wait twice as long
"""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from datetime import timedelta

from formats.errors import BrokerUnavailable, CheckpointConflict, OwnershipLost
from formats.int_range import IntRange
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.segment import OffsetRange, parse_source
from infra.archive.archive import Archive
from infra.contracts.cluster import TopicPartition
from infra.kafka.client.properties import for_bounded_reads
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore
from infra.runtime import log_fields
from infra.runtime.lifecycle import Clock, Deadline, Stop, SystemClock
from replicator.config import Config
from replicator.restore.partition_plan import PartitionPlan
from replicator.restore.planner import listed_plan
from replicator.restore.progress import RestoreOutcome, RestoringPartition
from replicator.restore.worker import PartitionTask, RestoreSettings, RestoreWorker

log = logging.getLogger(__name__)

# Limit without progress of the attempt that took over: longer than the time between two checkpoints of a healthy one.
PATIENCE = timedelta(minutes=1)
POLL = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class RestoreTask:
    """A `SparkTask`: restores the partition of a row from its position to its end, whichever attempt began it. It is
    pickled together with the configuration, which includes credentials."""

    config: Config
    settings: RestoreSettings

    def row(self, item: PartitionTask) -> str:
        fields = {
            "source": str(item.plan.source),
            "topic": item.plan.target.topic,
            "topic_id": item.topic_id,
            "clamp": item.clamp,
            "wanted": [item.plan.wanted_from, item.plan.wanted_until],
            "offsets": None if (planned := item.plan.offsets) is None else [planned.start, planned.end],
            "position": item.plan.next_offset,
            "gaps": [[gap.start, gap.end] for gap in item.plan.gaps],
        }
        return json.dumps(fields)

    def __call__(self, row: str) -> str:
        patience = PATIENCE
        while True:
            try:
                return self._restored(row)
            except OwnershipLost as error:
                log.warning("attempt_superseded", extra={log_fields.REASON: str(error)})
                self._wait_while_it_moves(row, patience)
                patience *= 2  # two slow attempts must not fence each other forever

    def outcome(self, answer: str) -> RestoreOutcome:
        return RestoreOutcome(**json.loads(answer))

    def failed(self, item: PartitionTask, reason: str) -> RestoreOutcome:
        """As if no attempt had delivered anything: see `with_position`."""
        return RestoreOutcome(
            source=str(item.plan.source),
            target=str(item.plan.target),
            records=0,
            size_bytes=0,
            next_offset=item.plan.next_offset or 0,
            is_done=False,
            failed=reason,
        )

    def _wait_while_it_moves(self, row: str, patience: timedelta) -> None:
        """Return when the position of the partition has not moved for `patience`."""
        fields = json.loads(row)
        key = CheckpointKey(parse_source(fields["source"]), fields["topic"])
        consumer = for_bounded_reads(self.config.cluster.properties("consumer"))
        last, left, stop = None, Deadline(patience), Stop()
        with closing(KafkaCheckpointStore(consumer, self.settings.checkpoint_topic)) as checkpoints:
            while not left.expired:
                try:
                    now = checkpoints.read().get(key)
                except BrokerUnavailable as error:
                    log.warning("checkpoints_unknown", extra={log_fields.ERROR: str(error)})
                else:
                    if now != last:
                        last, left = now, Deadline(patience)
                stop.wait(min(POLL, left.left))

    def _restored(self, row: str) -> str:
        fields = json.loads(row)
        source = parse_source(fields["source"])
        target = TopicPartition(fields["topic"], source.partition)
        stop = Stop()
        with ExitStack() as opened:
            worker = RestoreWorker(
                self.config,
                self.settings,
                f"{self.settings.checkpoint_topic}.{target.topic}.{target.partition}",
                stop,
                opened,
            )
            worker.take_over()
            plan = plan_of(row, worker.archive, SystemClock())
            task = PartitionTask(plan=plan, topic_id=fields["topic_id"], clamp=fields["clamp"])
            (partition,) = worker.restore([task])
        return json.dumps(asdict(outcome_of(row, partition)))


def outcome_of(row: str, partition: RestoringPartition) -> RestoreOutcome:
    """Says whether an earlier attempt delivered a part of the row: its counts ended with it."""
    planned, resumed_at = json.loads(row)["position"], partition.resumed_at
    outcome = RestoreOutcome.of(partition)
    return replace(outcome, is_partial=resumed_at is not None and resumed_at > (planned or 0))


def with_position(outcome: RestoreOutcome, position: Checkpoint | CheckpointConflict | None) -> RestoreOutcome:
    """`outcome`, with what attempts delivered that returned none. `position`: of its partition, as it is now."""
    if not outcome.failed or not isinstance(position, Checkpoint) or position.next_offset <= outcome.next_offset:
        return outcome
    return replace(outcome, next_offset=position.next_offset, is_partial=True)


def plan_of(row: str, archive: Archive, clock: Clock) -> PartitionPlan:
    """The plan of a row, listed again on the worker: no segment names pass through the driver."""
    fields = json.loads(row)
    source = parse_source(fields["source"])
    target = TopicPartition(fields["topic"], source.partition)
    return listed_plan(
        archive,
        source,
        target,
        wanted=IntRange(*fields["wanted"]),  # those of the scope, up to the cut
        clock=clock,
        planned=None if fields["offsets"] is None else OffsetRange(*fields["offsets"]),
        gaps_before=[OffsetRange(*gap) for gap in fields["gaps"]],
    )
