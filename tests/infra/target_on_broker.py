"""A target on a real broker, for tests of writers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from formats.messages.checkpoint_notes import CheckpointNotes
from formats.messages.delivery_checkpoint import (
    POSITION,
    Checkpoint,
    CheckpointKey,
    Skipped,
    decode,
    decode_key,
    kind_of,
)
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import TargetRun
from infra.local.stack import LocalStack
from tests.contracts.target import STAMP, TargetContract, row
from tests.fakes.kafka_target import TargetRecord
from tests.formats.sample_records import batch_of
from tests.infra.cluster import Cluster


class BrokerTargetContract(TargetContract):
    """Subclasses provide the fixture `writer`."""

    topic_configs: Mapping[str, str] = {"retention.ms": "-1"}

    @pytest.fixture
    def cluster(self, stack: LocalStack) -> Cluster:
        self._cluster = Cluster(stack.brokers["b"])
        return self._cluster

    @pytest.fixture
    def checkpoint_topic(self, cluster: Cluster, unique: Callable[[str], str]) -> str:
        self._checkpoint_topic = unique("checkpoint")
        cluster.create(self._checkpoint_topic, configs={"cleanup.policy": "compact"})
        return self._checkpoint_topic

    @pytest.fixture
    def partitions(self, cluster: Cluster, unique: Callable[[str], str]) -> Sequence[TopicPartition]:
        return cluster.create(unique("target"), 3, self.topic_configs)

    def read(self, partition: TopicPartition, count: int) -> list[TargetRecord]:
        return self._cluster.records(partition)

    def checkpoints(self) -> Mapping[CheckpointKey, Checkpoint]:
        return {
            decode_key(message.key() or b""): decode(message.value() or b"")
            for message in self._cluster.messages(TopicPartition(self._checkpoint_topic, 0))
            if kind_of(message.key() or b"") == POSITION
        }

    def skipped(self) -> Sequence[Skipped]:
        notes = CheckpointNotes()
        for message in self._cluster.messages(TopicPartition(self._checkpoint_topic, 0)):
            notes.put(message.key() or b"", message.value())
        return notes.skipped

    def refused(self, run: TargetRun) -> TargetRun:
        far_ahead = STAMP + 10**15  # the broker's limit is one hour
        return replace(run, batches=[batch_of([row(run.checkpoint.next_offset - 1, stamp=far_ahead)])])

    def away(self) -> AbstractContextManager[None]:
        return self._cluster.frozen()
