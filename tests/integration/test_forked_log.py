"""The log of a topic of a real broker loses its tail: what leader epochs tell, and what only the records do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

from egress.start.commit_metadata import read_commit_metadata
from formats.control.fork import LogFork
from formats.log_point import LogPoint
from infra.contracts.cluster import Committed, TopicPartition
from infra.kafka.cluster.log_probe import KafkaLogProbe
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from tests.infra.log_files import lose_tails
from tests.integration.test_incarnations_and_gaps import PATIENCE, Source

pytestmark = pytest.mark.integration


class Forking(Source):
    """Reconnects soon after the broker was restarted."""

    def __init__(self, stack: LocalStack, unique: Callable[[str], str]) -> None:
        super().__init__(stack, unique)
        self.partition = TopicPartition(self.topic, 0)
        self.broker = stack.brokers["a"]

    def restart(self) -> None:
        """Another leader epoch."""
        self.broker.kill()
        self.broker.start()

    def lose_tail(self, end: int) -> None:
        lose_tails(self.broker, {self.partition: end})

    def abort(self, count: int) -> None:
        producer = Producer({**self.servers, "transactional.id": f"{self.topic}.tx", "linger.ms": 0})
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in range(count):
            producer.produce(self.topic, b"aborted %d" % number, partition=0)
        assert producer.flush(30) == 0
        producer.abort_transaction(60)

    def group_offset(self) -> Committed | None:
        with closing(Consumer({**self.servers, "group.id": self.group})) as consumer:
            try:
                [found] = consumer.committed([ClientPartition(self.topic, 0)], timeout=10)
            except KafkaException:
                return None  # the group's coordinator is not there yet
        return Committed(found.offset, found.metadata or "", found.leader_epoch) if found.offset >= 0 else None

    def commit(self, to: Committed) -> None:
        """What a restored snapshot of the cluster would say of the group."""
        epoch = to.leader_epoch or 0
        place = ClientPartition(self.topic, 0, to.next_offset, metadata=to.metadata, leader_epoch=epoch)

        def committed() -> bool:
            with closing(Consumer({**self.servers, "group.id": self.group})) as consumer:
                try:
                    consumer.commit(offsets=[place], asynchronous=False)
                except KafkaException:
                    return False  # the same
            return True

        assert wait_until(committed, PATIENCE)

    def forks(self) -> list[LogFork]:
        return list(self.control.forks.of(self.source_partition()))

    def forget_the_group(self) -> None:
        """As when its offsets expire. It must have no members."""

        def deleted() -> bool:
            [asked] = self.client_admin.delete_consumer_groups([self.group]).values()
            try:
                asked.result()
            except KafkaException as error:
                # a broker that was just restarted loads its groups first; one that answers late has deleted it before
                return bool(error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND)
            return True

        assert wait_until(deleted, PATIENCE)

    def await_archive(self, end: int) -> Committed:
        """Archived and committed up to there: the commit."""
        assert wait_until(lambda: (c := self.group_offset()) is not None and c.next_offset >= end, PATIENCE)
        assert max(last for _, last in self.ranges()) + 1 >= end
        found = self.group_offset()
        assert found is not None
        return found


@pytest.fixture
def source(stack: LocalStack, unique: Callable[[str], str]) -> Forking:
    return Forking(stack, unique)


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why partitions stopped."""
    return [str(r.__dict__["reason"]) for r in caplog.records if r.getMessage() == "partition_stopped"]


@pytest.mark.long
def test_aborted_records_behind_the_last_one_are_no_fork(source: Forking) -> None:
    """Nor are leaders that come and go: while it runs, when it is started again, and when the group knows nothing."""
    source.produce(b"one", b"two", b"three")
    with source.egress():
        source.await_archive(3)
        source.restart()
        source.abort(2)  # and a marker: [3,5]
        found = source.await_archive(6)
        assert found.leader_epoch not in (None, 0), "the epoch of the marker, not of the last record"
    source.restart()
    source.abort(1)  # [6,7]
    with source.egress():
        source.await_archive(8)
    source.restart()
    source.forget_the_group()
    with source.egress():
        source.produce(b"four")
        source.await_archive(9)
    assert source.forks() == []
    assert source.values() == [b"one", b"two", b"three", b"four"]


@pytest.mark.long
def test_a_restored_snapshot_is_seen_by_the_records(source: Forking, caplog: pytest.LogCaptureFixture) -> None:
    """The group's offsets went back with the log, so that every epoch the group knows of is true."""
    source.produce(*[b"old %d" % n for n in range(40)])
    with source.egress():
        early = source.await_archive(40)
        source.produce(*[b"old %d" % n for n in range(40, 50)])
        source.produce(*[b"lost %d" % n for n in range(50, 100)])
        source.await_archive(100)
    archive = source.ranges()
    source.lose_tail(50)
    source.commit(early)
    source.produce(*[b"new %d" % n for n in range(50, 130)])
    for _ in range(2):  # a restart gives the same answer
        caplog.clear()
        with source.egress(max_segment_messages=35):  # so that its segments end elsewhere
            assert wait_until(lambda: bool(reasons(caplog)), PATIENCE)
        (reason,) = reasons(caplog)
        assert "differ at offset 50: the record at 99 is of leader epoch 0" in reason
        assert f"replicator adopt --fork {source.topic}" in reason
        assert [(f.end_offset, f.next_offset, f.leader_epoch) for f in source.forks()] == [(50, 100, None)]
        assert [r for r in source.ranges() if r not in archive and r[1] >= 50] == []
    assert [v for v in source.values() if v.startswith(b"new")] == []


@pytest.mark.long
def test_the_probe_compares_epochs(source: Forking) -> None:
    source.produce(*[b"old"] * 5)
    source.produce(*[b"lost"] * 5)
    probe = KafkaLogProbe(source.servers, admin=source.servers)
    here, absent = source.partition, TopicPartition(source.topic, 7)
    assert probe.truncated({}) == {}
    assert probe.truncated({here: LogPoint(10, 0)}) == {}
    source.lose_tail(5)
    source.produce(*[b"new"] * 20)
    assert probe.compare_points({here: LogPoint(5, 0)}) == {here: None}
    found = probe.truncated({here: LogPoint(10, 0), absent: LogPoint(3, 0)})
    assert [(p, t.point, t.end_offset) for p, t in found.items()] == [(here, LogPoint(10, 0), 5)]
    source.admin.describe([source.topic])  # else its client asks in the name of the leader before
    marks = source.admin.watermarks([here])[here]
    assert marks.leader_epoch is not None
    assert marks.leader_epoch > 0
    assert probe.truncated({here: LogPoint(marks.high, marks.leader_epoch)}) == {}
    [unknown] = probe.truncated({here: LogPoint(10, 99)}).values()
    assert unknown.end_offset is None


def test_a_begin_outlives_the_groups_offsets(source: Forking) -> None:
    source.produce(b"before")
    with source.egress(start="latest"):
        assert wait_until(lambda: source.group_offset() is not None, PATIENCE)
    found = source.group_offset()
    assert found is not None
    note = read_commit_metadata(found)
    assert note is not None
    begin = source.control.begins.of(source.source_partition())
    assert begin is not None
    assert (begin.offset, note.begun_at, found.leader_epoch) == (1, 1, 0)
    source.forget_the_group()
    source.produce(b"meanwhile")
    with source.egress(start="latest"):
        assert wait_until(lambda: source.ranges() == [(1, 1)], PATIENCE), source.ranges()
