"""Positions of other replicators. The ancestor's bytes are written here by an encoder of their own."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import MalformedEvent
from formats.messages.foreign_positions import (
    ForeignPartition,
    ancestor_position,
    ancestor_positions,
    connect_position,
    connect_positions,
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
