"""Records in a topic of MirrorMaker 2's that another program may write to, too."""

from __future__ import annotations

import pytest

from formats.errors import BrokerUnavailable, TargetError
from formats.messages.mirrormaker import OffsetSync, encode_offset_sync
from ingress.groups.flows import GroupFlow
from ingress.groups.mirror_records import MirrorTable, MirrorTables
from tests.fakes.mirror_records import FakeMirrorRecords

Table = MirrorTable[tuple[str, int], OffsetSync]
TOPIC = "mm2-offset-syncs.us.internal"


def sync(upstream: int, downstream: int, topic: str = "orders") -> OffsetSync:
    return OffsetSync(topic=topic, partition=0, upstream_offset=upstream, downstream_offset=downstream)


@pytest.fixture
def log() -> FakeMirrorRecords:
    return FakeMirrorRecords()


FLOW = GroupFlow(region="us", checkpoints="us.checkpoints.internal", offset_syncs=TOPIC)


@pytest.fixture
def table(log: FakeMirrorRecords) -> Table:
    return MirrorTables.of(FLOW, log).offset_syncs


def test_what_is_written_is_read_with_what_was_there(log: FakeMirrorRecords, table: Table) -> None:
    log.records[TOPIC] += [encode_offset_sync(sync(1, 1)), encode_offset_sync(sync(2, 2, "others")), (b"odd", b"?")]
    assert table.write([sync(5, 4)]) == 1
    assert table.read() == {("orders", 0): sync(5, 4), ("others", 0): sync(2, 2, "others")}


def test_a_record_that_was_deleted_is_due_again(log: FakeMirrorRecords, table: Table) -> None:
    """Compaction may leave it in the topic, before its deletion, for long."""
    key, value = encode_offset_sync(sync(1, 1))
    log.records[TOPIC] += [(key, value), (key, None), encode_offset_sync(sync(2, 2, "others"))]
    assert table.read() == {("others", 0): sync(2, 2, "others")}
    log.records[TOPIC].append((key, value))
    assert table.read()["orders", 0] == sync(1, 1)


def test_another_writer_is_noticed_once_and_then_its_records_count(log: FakeMirrorRecords, table: Table) -> None:
    table.write([sync(5, 4)])
    log.records[TOPIC].append(encode_offset_sync(sync(6, 9)))
    with pytest.raises(TargetError, match="somebody else writes to"):
        table.read()
    assert table.read() == {("orders", 0): sync(6, 9)}


def test_a_record_whose_acknowledgement_was_lost_is_no_other_writers(log: FakeMirrorRecords, table: Table) -> None:
    table.write([sync(5, 4)])
    log.fails_after = True
    with pytest.raises(BrokerUnavailable):
        table.write([sync(6, 5)])
    assert table.read() == {("orders", 0): sync(6, 5)}


def test_after_another_process_of_ours_had_the_topic(log: FakeMirrorRecords, table: Table) -> None:
    table.write([sync(5, 4)])
    table = MirrorTables.of(FLOW, log).offset_syncs
    log.records[TOPIC].append(encode_offset_sync(sync(6, 5)))
    assert table.read() == {("orders", 0): sync(6, 5)}
