"""At-least-once delivery: records first, then where they are, then the checkpoint that covers them.

    produce the runs ─> all acknowledged ─> offset map, acknowledged ─> checkpoints, acknowledged ─> return
         │ crash: some records, no checkpoint: the runs of this call are delivered again
         └ a run with a failed record gets no checkpoint; the others do

A rejected record is fatal to a gapless producer: it is drained and closed, and a new producer replaces it. Its unsent
records of other runs are delivered again at once; delivered runs stay delivered and are checkpointed. When the
checkpoint topic rejects checkpoints, or the target rejects the writer, no run is the cause, and WriterRefused is
raised.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from confluent_kafka import KafkaError

from formats.errors import BrokerUnavailable, WriterRefused
from formats.messages.delivery_checkpoint import (
    Author,
    CheckpointKey,
    Skipped,
)
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, RunFailed, TargetRun
from infra.kafka.client.idempotent_producer import SECONDARY, IdempotentProducer
from infra.kafka.producer.acknowledged import GRACE, AcknowledgedProducers
from infra.kafka.producer.offset_pages import SentRun, send_run
from infra.kafka.producer.own_topics import OwnTopics
from infra.runtime.crash_points import Step, durable
from infra.runtime.log_fields import DESTINATION, NEXT

UNKNOWN_OUTCOME = frozenset(KafkaError(code).name() for code in SECONDARY)
METADATA_WITHIN = timedelta(seconds=5)

log = logging.getLogger(__name__)


class AtLeastOnceWriter:
    """A TargetWriter. After a failure, records may be duplicated but are never lost, and the first copies keep their
    order."""

    author = Author.AT_LEAST_ONCE

    def __init__(
        self, properties: Mapping[str, object], *, checkpoint_topic: str, offset_map_topic: str, memory_bytes: int
    ) -> None:
        """Connects on first use. `memory_bytes`: limit of the unacknowledged records in the client, including its
        overhead. Raises ConfigError."""
        self._topics = OwnTopics(checkpoint_topic, offset_map_topic)
        self._producers = AcknowledgedProducers(properties, self._topics, memory_bytes=memory_bytes)
        self._interleaved: set[TopicPartition] = set()  # others write to them, too
        self._memory_bytes = memory_bytes

    def batch_size_class(self, topic: str) -> int:
        return self._producers.sizes.of(topic)

    def deliver(
        self,
        runs: Iterable[TargetRun],
        *,
        should_stop: Callable[[], bool],
        fence: object = None,  # noqa: ARG002 -- nothing is fenced here
    ) -> Sequence[RunFailed]:
        """See TargetWriter. With several runs to one partition, all of them fail when one does."""
        wait = partial(_check, should_stop)
        last: dict[CheckpointKey, TargetRun] = {}
        sent: list[SentRun] = []
        skipped: dict[CheckpointKey, list[Skipped]] = defaultdict(list)
        producer: IdempotentProducer[TopicPartition] | None = None
        try:
            # 1. Records, and their acknowledgement. A crash here repeats runs of this call and no others: their
            #    checkpoints are not written yet, those of earlier calls are.
            with durable(Step.PRODUCE_RECORDS):
                for run in runs:
                    if producer is None:
                        producer = self._producers.of(self.batch_size_class(run.partition.topic))
                        self._topics.check(partial(producer.topic_error, within=METADATA_WITHIN))
                    last[run.key] = run.without_records
                    skipped[run.key] += run.skipped
                    if producer.fatal is not None:
                        producer.fail(run.partition, producer.fatal)
                    elif run.partition not in producer.failures:
                        sent.append(
                            send_run(
                                producer,
                                run,
                                interleaved=self._interleaved,
                                memory_bytes=self._memory_bytes,
                                wait=wait,
                            )
                        )
                if producer is None:
                    return []
                failed = self._producers.failed(producer, wait)
            failed |= self._unmapped(sent, failed)
            # 2. Where the records are, and only then their checkpoints: a consumer group would be moved past records
            #    that are below a checkpoint and in no page.
            with durable(Step.PRODUCE_OFFSET_MAP):
                self._producers.record_pages([one for one in sent if one.run.partition not in failed], wait)
            # 3. Checkpoints of runs whose records are all acknowledged, and never earlier: a checkpoint ahead of its
            #    records would lose them. Acknowledged before this returns, so that a crash of the next call repeats
            #    none of this call's runs.
            with durable(Step.PRODUCE_CHECKPOINT):
                delivered = [replace(r, skipped=skipped[k]) for k, r in last.items() if r.partition not in failed]
                failed.update(self._producers.record_checkpoints(delivered, wait))
        except BrokerUnavailable:
            self.close(GRACE)  # queued records must not be delivered after this call has failed
            raise
        except WriterRefused:
            self.close(timedelta())
            raise
        partitions = {run.partition for run in last.values()}
        if partitions and all(p in failed and failed[p].code in UNKNOWN_OUTCOME for p in partitions):
            raise BrokerUnavailable(f"the outcome of all runs is unknown: {next(iter(failed.values())).reason}")
        return list(failed.values())

    def close(self, timeout: timedelta) -> None:
        """Drop records in flight and release everything. May be called twice; the next `deliver` connects again."""
        self._producers.close(timeout)

    def _unmapped(
        self, sent: Sequence[SentRun], failed: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, RunFailed]:
        """Partitions of which it is not known where any record of a run is: it is delivered again. Where others wrote
        in between, a run is mapped to where it begins, and from the next one on each offset is kept."""
        found = {}
        for one in sent:
            partition = one.run.partition
            if partition in failed or one.is_mapped:
                continue
            if not one.reports.is_interleaved:
                reason = "the target did not acknowledge every record with its offset"
                found[partition] = RunFailed(partition, "UNMAPPED", reason, FailureKind.RETRY_LATER)
            elif partition not in self._interleaved:
                self._interleaved.add(partition)
                following = "a group that is moved here may read some records of this moment again; from now on none"
                log.warning("others_write_to_destination", extra={DESTINATION: str(partition), NEXT: following})
        return found


def _check(should_stop: Callable[[], bool]) -> None:
    if should_stop():
        raise BrokerUnavailable("stopped before the target had acknowledged everything")
