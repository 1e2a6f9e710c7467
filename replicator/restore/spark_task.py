"""Partitions of a restore as tasks of Spark: one each, and only what became of it comes back.

Spark may run a task twice at the same time: it took the first attempt for lost, or for slow (`spark.speculation`). The
later attempt takes the partition's transactional id, so that the earlier one can write nothing more. That is no failure
of the earlier one: as an exception Spark would count it, begin a third attempt which ends the second, and so on until
the job fails; as an answer Spark would take it for the partition's, and end the attempt that does the work. It waits:

    superseded ─> the position moves ─────────────────> Spark ends this attempt when the other has answered
        ^             └ stands still for long ─> take the id back, and go on where the other one stood
        └ superseded again: twice as patient
"""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from datetime import timedelta

from formats.errors import BrokerUnavailable, OwnershipLost
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.segment import parse_source
from infra.contracts.cluster import TopicPartition
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore
from infra.runtime import log_fields
from infra.runtime.lifecycle import Deadline, Stop, SystemClock
from replicator.config import Config
from replicator.restore.planner import listed_plan
from replicator.restore.progress import RestoreOutcome
from replicator.restore.worker import PartitionTask, RestoreSettings, RestoreWorker

log = logging.getLogger(__name__)

# Without progress of the attempt that has taken over: longer than a healthy one needs from checkpoint to checkpoint.
PATIENCE = timedelta(minutes=1)
LOOK = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class RestoreTask:
    """What a worker of Spark does with a row: the partition from its position to its end, whoever began it. It is
    pickled, credentials written in the configuration with it."""

    config: Config
    terms: RestoreSettings

    def __call__(self, row: str) -> str:
        patience = PATIENCE
        while True:
            try:
                return self._carried_out(row)
            except OwnershipLost as error:
                log.warning("attempt_superseded", extra={log_fields.REASON: str(error)})
                self._wait_while_it_moves(row, patience)
                patience *= 2  # two attempts that are both slow must not take it from each other for ever

    def _wait_while_it_moves(self, row: str, patience: timedelta) -> None:
        """Returns when the position of the partition has stood still for `patience`."""
        said = json.loads(row)
        key = CheckpointKey(parse_source(said["source"]), said["topic"])
        consumer = self.config.cluster.properties("consumer")
        last, left, stop = None, Deadline(patience), Stop()
        with closing(KafkaCheckpointStore(consumer, self.terms.checkpoint_topic)) as checkpoints:
            while not left.expired:
                try:
                    now = checkpoints.read().get(key)
                except BrokerUnavailable as error:
                    log.warning("checkpoints_unknown", extra={log_fields.ERROR: str(error)})
                else:
                    if now != last:
                        last, left = now, Deadline(patience)
                stop.wait(min(LOOK, left.left))

    def _carried_out(self, row: str) -> str:
        said = json.loads(row)
        source = parse_source(said["source"])
        target = TopicPartition(said["topic"], source.partition)
        stop = Stop()
        with ExitStack() as opened:
            worker = RestoreWorker(
                self.config,
                self.terms,
                f"{self.terms.checkpoint_topic}.{target.topic}.{target.partition}",
                stop,
                opened,
            )
            worker.take_over()
            # listed here: no name of a segment passes through the driver
            plan = listed_plan(worker.archive, source, target, wanted=self.terms.scope.offsets, clock=SystemClock())
            task = PartitionTask(plan=plan, topic_id=said["topic_id"], clamp=said["clamp"])
            (partition,) = worker.carry_out([task])
        return json.dumps(asdict(RestoreOutcome.of(partition)))


def row_of(task: PartitionTask) -> str:
    plan = task.plan
    said = {
        "source": str(plan.source),
        "topic": plan.target.topic,
        "topic_id": task.topic_id,
        "clamp": task.clamp,
    }
    return json.dumps(said)


def outcome_of(answer: str) -> RestoreOutcome:
    return RestoreOutcome(**json.loads(answer))
