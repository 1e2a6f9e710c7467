"""Positions of other replicators. The ancestor's bytes are written here by an encoder of their own."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import MalformedEvent
from formats.messages.foreign_positions import (
    ForeignPartition,
    ancestor_highest,
    ancestor_position,
    ancestor_positions,
    ancestor_record,
    connect_keys,
    connect_position,
    connect_positions,
    connect_record,
)

WHERE = ForeignPartition("eu", "orders", 3)


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def text(field: int, value: str) -> bytes:
    data = value.encode()
    return varint(field << 3 | 2) + varint(len(data)) + data


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value) if value else b""  # proto3 writes no zeros


def ancestor(offset: int, *, region: str = "eu", topic: str = "orders", partition: int = 3) -> bytes:
    stamp = number(1, 1_700_000_000) + number(2, 5)
    return (
        text(1, region)
        + text(2, topic)
        + number(3, partition)
        + number(4, offset)
        + (varint(5 << 3 | 2) + varint(len(stamp)) + stamp)
    )


def test_as_the_ancestor_wrote_it() -> None:
    assert ancestor_position(b"\n\x02eu\x12\x06orders\x18\x03 \xac\x02") == (WHERE, 301)


@settings(deadline=None)
@given(
    st.text(min_size=1, max_size=9), st.text(min_size=1, max_size=9), st.integers(0, 2**32 - 1), st.integers(0, 2**63)
)
def test_the_last_produced_offset_becomes_the_next_offset(region: str, topic: str, partition: int, offset: int) -> None:
    data = ancestor(offset, region=region, topic=topic, partition=partition)
    assert ancestor_position(data) == (ForeignPartition(region, topic, partition), offset + 1)


@settings(deadline=None)
@given(st.binary(max_size=30))
def test_garbage_is_a_typed_error(data: bytes) -> None:
    reads: tuple[Callable[[], object], ...] = (lambda: ancestor_position(data), lambda: connect_position(data, data))
    for read in reads:
        with contextlib.suppress(MalformedEvent):
            read()


@pytest.mark.parametrize("cut", range(len(ancestor(300))))
def test_a_truncated_value_never_names_another_source(cut: int) -> None:
    try:
        where, _ = ancestor_position(ancestor(300)[:cut])
    except MalformedEvent:
        return
    assert where.region == "eu"
    assert where.topic == "orders"


def test_the_last_record_of_a_key_wins() -> None:
    records = [(b"a", ancestor(1)), (b"b", ancestor(8, partition=0)), (b"a", ancestor(5)), (b"c", None)]
    assert ancestor_positions(records) == {WHERE: 6, ForeignPartition("eu", "orders", 0): 9}
    assert ancestor_positions([*records, (b"a", None)]) == {ForeignPartition("eu", "orders", 0): 9}
    with pytest.raises(MalformedEvent):
        ancestor_positions([(b"a", b"{}")])


def connect(name: str, offset: int | None, **where: object) -> tuple[bytes, bytes | None]:
    key = [name, where or {"cluster": "eu", "partition": 3, "topic": "orders"}]
    return json.dumps(key).encode(), None if offset is None else json.dumps({"offset": offset}).encode()


def test_connect_offsets_of_source_connectors() -> None:
    records = [
        connect("MirrorSourceConnector", 10),
        connect("MirrorSourceConnector", 99),
        connect("MirrorCheckpointConnector", 7, group="g", topic="orders", partition=3),
        connect("MirrorHeartbeatConnector", 0, sourceClusterAlias="eu", targetClusterAlias="us"),
        connect("MirrorSourceConnector", 4, cluster="eu", topic="other", partition=0),
    ]
    assert connect_positions(records) == {WHERE: 100, ForeignPartition("eu", "other", 0): 5}
    assert connect_positions([*records, connect("MirrorSourceConnector", None)]) == {
        ForeignPartition("eu", "other", 0): 5
    }


def test_the_lower_of_two_connectors_offsets_is_used() -> None:
    assert connect_positions([connect("one", 10), connect("two", 4), connect("three", 7)]) == {WHERE: 5}


@pytest.mark.parametrize(
    ("key", "value"), [(b"{}", b"{}"), (b"x", b""), (connect("c", 1)[0], b"[]"), (connect("c", 1)[0], b"{}")]
)
def test_records_that_are_not_connect_offsets(key: bytes, value: bytes) -> None:
    with pytest.raises(MalformedEvent):
        connect_position(key, value)


@pytest.mark.parametrize("offset", [b"-2", b"1.5", b'"7"', b"true", b"null", b"1e400", str(2**63 - 1).encode()])
def test_an_offset_that_is_none_is_no_position(offset: bytes) -> None:
    """A seed of it would be a position that no log has."""
    assert connect_position(connect("c", 1)[0], b'{"offset":-1}') == (WHERE, 0)
    with pytest.raises(MalformedEvent, match="not an offset of Kafka Connect"):
        connect_position(connect("c", 1)[0], b'{"offset":' + offset + b"}")


@pytest.mark.parametrize("partition", [-1, 2**31, 1.5, "3", True])
def test_a_partition_that_is_none_is_no_position(partition: object) -> None:
    key, value = connect("c", 1, cluster="eu", topic="orders", partition=partition)
    with pytest.raises(MalformedEvent, match="not an offset of Kafka Connect"):
        connect_position(key, value or b"")


# --- written for them

AT = datetime(2023, 11, 14, 22, 13, 20, 7, UTC)
NAMES = st.text(alphabet="abz09._-", min_size=1, max_size=12)


def test_a_position_as_the_ancestor_writes_it() -> None:
    key, value = ancestor_record(WHERE, 301, AT)
    stamp = number(1, 1_700_000_000) + number(2, 7000)
    written = b"\n\x02eu\x12\x06orders\x18\x03 \xac\x02" + varint(5 << 3 | 2) + varint(len(stamp)) + stamp
    assert (key, value) == (b"eu:orders:3", written)


def test_the_ancestor_has_no_position_before_its_first_record() -> None:
    with pytest.raises(ValueError, match="no record was produced before 0"):
        ancestor_record(WHERE, 0, AT)


@settings(deadline=None)
@given(
    NAMES,
    NAMES,
    st.integers(0, 2**31 - 1),
    st.integers(1, 2**63 - 1),
    st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 -- of the strategy
)
def test_a_position_for_the_ancestor_reads_back(
    region: str, topic: str, partition: int, next_offset: int, at: datetime
) -> None:
    where = ForeignPartition(region, topic, partition)
    assert ancestor_positions([ancestor_record(where, next_offset, at)]) == {where: next_offset}


def test_the_ancestor_continues_from_the_highest_of_its_records() -> None:
    records = [(b"a", ancestor(1)), (b"a", ancestor(9)), (b"a", ancestor(5)), (b"a", None), (b"a", b"")]
    assert ancestor_highest(records) == {WHERE: 10}
    with pytest.raises(MalformedEvent):
        ancestor_highest([(b"a", b"{}")])


def test_a_position_as_kafka_connect_writes_it() -> None:
    key = b'["MirrorSourceConnector",{"cluster":"eu","partition":3,"topic":"orders"}]'
    assert connect_record(WHERE, 301, "MirrorSourceConnector") == (key, b'{"offset":300}')
    assert connect_record(WHERE, 0, "MirrorSourceConnector") == (key, None)


@settings(deadline=None)
@given(st.text(min_size=1, max_size=9), NAMES, NAMES, st.integers(0, 2**31 - 1), st.integers(1, 2**63 - 1))
def test_a_position_for_kafka_connect_reads_back(
    connector: str, alias: str, topic: str, partition: int, next_offset: int
) -> None:
    where = ForeignPartition(alias, topic, partition)
    record = connect_record(where, next_offset, connector)
    assert connect_positions([record]) == {where: next_offset}
    assert connect_keys([record]) == {where: {connector: record[0]}}


def test_the_keys_of_source_connectors() -> None:
    records = [connect("one", 10), connect("two", None), connect("MirrorCheckpointConnector", 7, group="g", topic="t")]
    assert connect_keys(records) == {WHERE: {"one": records[0][0], "two": records[1][0]}}
    with pytest.raises(MalformedEvent):
        connect_keys([(b"x", None)])
