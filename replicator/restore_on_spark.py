"""Partitions of a restore as tasks of Spark: one each, and only what became of it comes back."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from ingress.restore_planner import listed_plan
from ingress.restored import Outcome
from replicator.config import Config
from replicator.lifecycle import Stop, SystemClock
from replicator.protocols import TopicPartition
from replicator.restore_worker import RestoreWorker, Task, Terms
from replicator.segment import parse_source


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker of Spark does with a row: the partition from its position to its end, whoever began it. It is
    pickled, credentials written in the configuration with it."""

    config: Config
    terms: Terms

    def __call__(self, row: str) -> str:
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
            plan = listed_plan(
                worker.control, worker.store, source, target, wanted=self.terms.scope.offsets, clock=SystemClock()
            )
            task = Task(plan=plan, topic_id=said["topic_id"], clamp=said["clamp"])
            (partition,) = worker.carry_out([task])
        return json.dumps(asdict(Outcome.of(partition)))


def row_of(task: Task) -> str:
    plan = task.plan
    said = {
        "source": str(plan.source),
        "topic": plan.target.topic,
        "topic_id": task.topic_id,
        "clamp": task.clamp,
    }
    return json.dumps(said)


def outcome_of(answer: str) -> Outcome:
    return Outcome(**json.loads(answer))
