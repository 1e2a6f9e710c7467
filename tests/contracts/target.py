"""What every TargetWriter does, seen by a consumer of the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from formats.errors import BrokerUnavailable
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey, Skipped
from formats.segment import OffsetRange, SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, TargetRun, TargetWriter
from tests.fakes.kafka_target import TargetRecord, target_records
from tests.formats.sample_records import Row, batch_of, raw_bytes

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
STAMP = 1_700_000_000_000


def row(offset: int, value: bytes | None = b"v", *, stamp: int = STAMP, **others: object) -> Row:
    return {
        "offset": offset,
        "timestamp": stamp,
        "timestamp_type": 0,
        "key": None,
        "value": value,
        "headers": None,
    } | others


def run_of(partition: TopicPartition, *batches: Sequence[Row]) -> TargetRun:
    """Delivered from the source partition of the same number; ends behind its last row."""
    rows = [each for batch in batches for each in batch]
    return TargetRun(
        partition,
        [batch_of(list(batch)) for batch in batches],
        len(rows),
        sum(map(raw_bytes, rows)),
        key_of(partition),
        Checkpoint(rows[-1]["offset"] + 1, "topic-id", AT),
        position=rows[0]["offset"],
        epoch=1,
    )


def run_to(partition: TopicPartition, offsets: Sequence[int], *, position: int, next_offset: int) -> TargetRun:
    """A run of records whose values are their offsets."""
    if offsets:
        run = run_of(partition, [row(offset, b"%d" % offset) for offset in offsets])
    else:
        run = replace(run_of(partition, [row(0)]), batches=(), count=0, size_bytes=0)
    return replace(run, position=position, checkpoint=replace(run.checkpoint, next_offset=next_offset))


def key_of(partition: TopicPartition) -> CheckpointKey:
    return CheckpointKey(SourcePartition("eu-1", "orders", partition.partition), partition.topic)


def expected(*runs: TargetRun) -> list[TargetRecord]:
    return [record for run in runs for batch in run.batches for record in target_records(batch)]


def never() -> bool:
    return False


class TargetContract:
    """Every TargetWriter passes these. Subclasses give the fixtures `writer` and `partitions` (three of one empty
    topic), and read past the writer."""

    def read(self, partition: TopicPartition, count: int) -> list[TargetRecord]:
        """All records of the partition; waits for `count`, and checks whether there are more."""
        raise NotImplementedError

    def checkpoints(self) -> Mapping[CheckpointKey, Checkpoint]:
        raise NotImplementedError

    def skipped(self) -> Sequence[Skipped]:
        """In order of their partitions."""
        raise NotImplementedError

    def refused(self, run: TargetRun) -> TargetRun:
        """The run, made such that the target refuses it for good and takes no record of it."""
        raise NotImplementedError

    def away(self) -> AbstractContextManager[None]:
        """The target does not answer."""
        raise NotImplementedError

    def test_records_arrive_as_they_are_and_in_order(
        self, writer: TargetWriter, partitions: Sequence[TopicPartition]
    ) -> None:
        pairs = [("a", b"1"), ("b", None), ("a", b""), ("", b"\x00"), ("é", b"2")]
        run = run_of(
            partitions[0],
            [
                row(5, b"plain"),
                row(6, None, key=b"deleted"),
                row(7, b"", key=b"", headers=[]),
                row(9, b"\x00\xff", key=b"k", headers=pairs),
            ],
            [
                row(10, b"after", stamp=1),
                row(11, b"none", stamp=-1, timestamp_type=-1),
                row(20, b"far", stamp=STAMP + 1),
            ],
        )
        assert writer.deliver([run], should_stop=never) == []
        assert self.read(partitions[0], run.count) == expected(run)

    def test_the_checkpoint_of_each_run_is_recorded(
        self, writer: TargetWriter, partitions: Sequence[TopicPartition]
    ) -> None:
        first, second = run_of(partitions[0], [row(0)]), run_of(partitions[1], [row(7), row(9)])
        assert writer.deliver([first, second], should_stop=never) == []
        assert self.checkpoints() == {first.key: first.checkpoint, second.key: second.checkpoint}
        assert writer.author in Author
        later = run_of(partitions[0], [row(1), row(2)])
        writer.deliver([later], should_stop=never)
        assert self.checkpoints() == {first.key: later.checkpoint, second.key: second.checkpoint}
        assert self.read(partitions[0], 3) == expected(first, later)

    def test_a_run_without_records_still_records_its_checkpoint(
        self, writer: TargetWriter, partitions: Sequence[TopicPartition]
    ) -> None:
        """A transform may leave out all of them: alone, and beside runs with records."""
        first, second = run_of(partitions[0], [row(0)]), run_of(partitions[1], [row(7)])
        empty = replace(first, batches=(), count=0, size_bytes=0, checkpoint=replace(first.checkpoint, dropped=1))
        assert writer.deliver([empty], should_stop=never) == []
        assert self.checkpoints() == {first.key: empty.checkpoint}
        later = replace(empty, checkpoint=replace(empty.checkpoint, next_offset=9, dropped=9))
        assert writer.deliver([later, second], should_stop=never) == []
        assert self.checkpoints() == {first.key: later.checkpoint, second.key: second.checkpoint}
        assert self.read(partitions[1], 1) == expected(second)

    def test_what_was_skipped_is_written_down_with_the_checkpoint(
        self, writer: TargetWriter, partitions: Sequence[TopicPartition]
    ) -> None:
        first, bad = run_of(partitions[0], [row(0)]), run_of(partitions[1], [row(5)])
        passed = [Skipped(key=run.key, offsets=OffsetRange(1, 4), reason="missing", at=AT) for run in (first, bad)]
        runs = [replace(first, skipped=passed[:1]), run_of(partitions[0], [row(5)])]
        assert writer.deliver(runs, should_stop=never) == []
        assert self.skipped() == passed[:1], "of a run that is not the last of its partition, too"
        writer.deliver([self.refused(replace(bad, skipped=passed[1:]))], should_stop=never)
        assert self.skipped() == passed[:1]
        assert writer.deliver([replace(bad, skipped=passed[1:])], should_stop=never) == []
        assert self.skipped() == passed

    def test_a_failed_run_has_no_checkpoint_and_the_next_call_works(
        self, writer: TargetWriter, partitions: Sequence[TopicPartition]
    ) -> None:
        before = run_of(partitions[0], [row(0)])
        assert writer.deliver([before], should_stop=never) == []
        bad, good = self.refused(run_of(partitions[1], [row(0)])), run_of(partitions[0], [row(1)])
        failures = {f.partition: f for f in writer.deliver([bad, good], should_stop=never)}
        assert failures.pop(partitions[1]).kind is FailureKind.REJECTED
        assert all(failure.kind in (FailureKind.RETRY_LATER, FailureKind.RETRY_NOW) for failure in failures.values())
        delivered = expected(before) if failures else expected(before, good)
        assert self.checkpoints()[good.key] == (before if failures else good).checkpoint
        assert bad.key not in self.checkpoints()
        assert self.read(partitions[0], len(delivered))[: len(delivered)] == delivered
        assert self.read(partitions[1], 0) == []
        again, fine = run_of(partitions[0], [row(1)]), run_of(partitions[1], [row(0, b"fits")])
        assert list(writer.deliver([again, fine], should_stop=never)) == []
        assert self.checkpoints() == {again.key: again.checkpoint, fine.key: fine.checkpoint}
        assert self.read(partitions[1], 1) == expected(fine)

    def test_several_runs_of_a_partition_in_one_call(
        self, writer: TargetWriter, partitions: Sequence[TopicPartition]
    ) -> None:
        runs = [run_of(partitions[0], [row(o), row(o + 1)]) for o in (0, 2, 4)]
        assert writer.deliver(iter(runs), should_stop=never) == []
        assert self.read(partitions[0], 6) == expected(*runs)
        assert self.checkpoints() == {runs[-1].key: runs[-1].checkpoint}

    def test_two_sources_share_a_partition(self, writer: TargetWriter, partitions: Sequence[TopicPartition]) -> None:
        one, other = run_of(partitions[0], [row(0), row(1)]), run_of(partitions[0], [row(70, b"other")])
        other = replace(other, key=CheckpointKey(SourcePartition("us-1", "orders", 0), partitions[0].topic))
        again = run_of(partitions[0], [row(2)])
        assert writer.deliver([one, other, again], should_stop=never) == []
        assert self.read(partitions[0], 4) == expected(one, other, again)
        assert self.checkpoints() == {one.key: again.checkpoint, other.key: other.checkpoint}
        bad = self.refused(run_of(partitions[0], [row(3)]))
        [failure] = writer.deliver([replace(other, checkpoint=bad.checkpoint), bad], should_stop=never)
        assert (failure.partition, failure.kind) == (partitions[0], FailureKind.REJECTED)
        assert self.checkpoints() == {one.key: again.checkpoint, other.key: other.checkpoint}

    def test_nothing_to_deliver(self, writer: TargetWriter) -> None:
        assert writer.deliver([], should_stop=never) == []

    def test_waiting_for_the_target_ends_on_should_stop(
        self, writer: TargetWriter, partitions: Sequence[TopicPartition]
    ) -> None:
        run = run_of(partitions[0], [row(0)])
        with self.away(), pytest.raises(BrokerUnavailable):
            writer.deliver([run], should_stop=_after(3))
        assert run.key not in self.checkpoints()
        assert writer.deliver([run], should_stop=never) == []
        arrived = self.read(partitions[0], 1)
        assert arrived in (expected(run), expected(run, run)), arrived  # at least once
        assert self.checkpoints() == {run.key: run.checkpoint}

    def test_close_is_final_and_may_be_repeated(
        self, writer: TargetWriter, partitions: Sequence[TopicPartition]
    ) -> None:
        run = run_of(partitions[0], [row(0)])
        writer.deliver([run], should_stop=never)
        writer.close(timedelta(seconds=5))
        writer.close(timedelta(seconds=5))
        assert self.read(partitions[0], 1) == expected(run)


def _after(calls: int) -> Callable[[], bool]:
    """True from the given call on."""
    left = iter([False] * calls)
    return lambda: next(left, True)
