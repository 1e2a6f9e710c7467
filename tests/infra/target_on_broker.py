"""A target on a real broker, for tests of writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain
from operator import itemgetter

import pytest
from pyarrow import RecordBatch

from formats.messages.checkpoint_notes import CheckpointNotes
from formats.messages.delivery_checkpoint import (
    POSITION,
    Author,
    Checkpoint,
    CheckpointKey,
    Skipped,
    decode,
    decode_key,
    kind_of,
)
from formats.messages.offset_map import MapPage, decode_page
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, TargetRun, TargetWriter
from infra.local.stack import LocalStack
from infra.runtime.lifecycle import Deadline
from tests.contracts.target import STAMP, TargetContract, key_of, never, row, run_of
from tests.fakes.kafka_target import TargetRecord
from tests.formats.sample_records import batch_of
from tests.infra.cluster import PATIENCE, Cluster


class OnBroker:
    """Topics of a broker, and what is in them."""

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
    def offset_map_topic(self, cluster: Cluster, unique: Callable[[str], str]) -> str:
        self._offset_map_topic = unique("offsetmap")
        cluster.create(self._offset_map_topic, configs={"cleanup.policy": "compact"})
        return self._offset_map_topic

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

    def map_pages(self) -> Sequence[MapPage]:
        """As a compacted topic has them, in the order of their keys."""
        found = {m.key(): m for m in self._cluster.messages(TopicPartition(self._offset_map_topic, 0))}
        return [decode_page(key or b"", message.value() or b"") for key, message in sorted(found.items())]

    def mapped(self, partition: TopicPartition) -> list[tuple[int, int]]:
        """Offsets at source and target of each record, in the order of the target, as the map says."""
        runs = chain.from_iterable(p.runs.rows() for p in self.map_pages() if p.key.delivery == key_of(partition))
        pairs = ((source + n, target + n) for source, target, count in runs for n in range(count))
        return sorted(pairs, key=itemgetter(1))

    def offsets(self, partition: TopicPartition) -> list[int]:
        """Of the records of the partition at the target."""
        return [offset for m in self._cluster.messages(partition) if (offset := m.offset()) is not None]


class BrokerTargetContract(OnBroker, TargetContract):
    """Subclasses provide the fixture `writer`."""

    def test_the_map_has_the_offset_of_each_record(
        self, writer: TargetWriter, partitions: Sequence[TopicPartition]
    ) -> None:
        sources = {partitions[0]: [5, 6, 7, 9, 20, 21], partitions[1]: [0, 1, 2]}
        writer.deliver(
            [run_of(partitions[0], [row(5), row(6)], [row(7), row(9)]), run_of(partitions[1], [row(0)])],
            should_stop=never,
        )
        writer.deliver([run_of(partitions[0], [row(20), row(21)])], should_stop=never)
        writer.deliver([run_of(partitions[1], [row(1)]), run_of(partitions[1], [row(2)])], should_stop=never)
        for partition, source in sources.items():
            assert self.mapped(partition) == list(zip(source, self.offsets(partition), strict=True))

    def test_a_page_is_continued_within_one_ownership_only(
        self, writer: TargetWriter, partitions: Sequence[TopicPartition]
    ) -> None:
        def deliver(offset: int, *, position: int, epoch: int) -> int:
            run = run_of(partitions[0], [row(offset)])
            writer.deliver([replace(run, position=position, epoch=epoch)], should_stop=never)
            return len(self.map_pages())

        assert deliver(3, position=0, epoch=1) == 1
        assert deliver(6, position=4, epoch=1) == 1, "continued, although no record is at 4 and 5"
        assert deliver(9, position=8, epoch=1) == 2, "somebody else may have delivered 7"
        assert deliver(10, position=10, epoch=2) == 3, "others may have had the partition since"
        assert [page.position for page in self.map_pages()] == [0, 8, 10]
        assert self.mapped(partitions[0]) == list(zip([3, 6, 9, 10], self.offsets(partitions[0]), strict=True))

    def test_records_that_lie_before_the_last_page_begin_another(
        self, writer: TargetWriter, partitions: Sequence[TopicPartition]
    ) -> None:
        """The destination was created again, or its log lost its tail; delivery notices that later."""
        topic = partitions[0].topic
        writer.deliver([run_of(partitions[0], [row(0), row(1), row(2)])], should_stop=never)
        self._cluster.delete(topic)
        self._cluster.create(topic, len(partitions), self.topic_configs)
        again = run_of(partitions[0], [row(3)])
        deadline = Deadline(PATIENCE)
        while writer.deliver([again], should_stop=never) and not deadline.expired:
            pass  # a client may know the earlier topic for a moment
        assert self.mapped(partitions[0]) == [(3, offset) for offset in self.offsets(partitions[0])]

    def test_where_others_write_in_between_each_offset_is_mapped(
        self, writer: TargetWriter, partitions: Sequence[TopicPartition]
    ) -> None:
        """Exactly from the second delivery on, at the latest; before that, a record is never mapped further than
        it is."""
        source = list[int]()
        for n in range(0, 9, 3):
            run = run_of(partitions[0], [row(n), row(n + 1)], [row(n + 2)])
            while failures := writer.deliver([replace(run, batches=self._interrupted(run))], should_stop=never):
                assert [failure.kind for failure in failures] == [FailureKind.RETRY_NOW], failures
            source += [n, n + 1, n + 2]
        messages = self._cluster.messages(partitions[0])
        ours = [offset for m in messages if m.key() != b"foreign" and (offset := m.offset()) is not None]
        actual = list(zip(source, ours, strict=True))
        mapped = self.mapped(partitions[0])
        assert mapped[3:] == actual[3:]
        assert all(mapped_to <= is_at for (_, mapped_to), (_, is_at) in zip(mapped, actual, strict=True))
        if writer.author is Author.EXACTLY_ONCE:
            assert mapped == actual

    def _interrupted(self, run: TargetRun) -> Sequence[RecordBatch]:
        """The batches; another producer writes before the last one, once the target has the others."""
        cluster, partition = self._cluster, run.partition
        end = cluster.end(partition)

        class Interrupted(list[RecordBatch]):
            def __iter__(self) -> Iterator[RecordBatch]:
                yield from self[:-1]
                while cluster.end(partition) == end:  # the client sends on its own threads
                    pass
                with cluster.producer() as other:
                    other.produce(partition.topic, key=b"foreign", value=b"", partition=partition.partition)
                yield self[-1]

        return Interrupted(run.batches)

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
