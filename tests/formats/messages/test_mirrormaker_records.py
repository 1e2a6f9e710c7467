"""MirrorMaker 2's records: its own bytes, and nothing that is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import MalformedEvent
from formats.messages.mirrormaker import (
    LONGEST_STRING,
    MirrorCheckpoint,
    MirrorHeartbeat,
    OffsetSync,
    decode_checkpoint,
    decode_heartbeat,
    decode_offset_sync,
    encode_checkpoint,
    encode_heartbeat,
    encode_offset_sync,
)
from tests.examples import property_examples

words = st.text("ab.é€", max_size=6)
offsets = st.integers(-(2**63), 2**63 - 1)
BEAT = MirrorHeartbeat(source_alias="A", target_alias="B", timestamp_ms=1_700_000_000_000)
CHECKPOINT = MirrorCheckpoint(group="g", topic="A.t", partition=3, upstream_offset=10, downstream_offset=7)
SYNC = OffsetSync(topic="t", partition=3, upstream_offset=10, downstream_offset=7)


def test_m13_the_bytes_of_mirrormaker_2() -> None:
    assert encode_heartbeat(BEAT) == (
        bytes.fromhex("00 01 41 00 01 42"),
        bytes.fromhex("00 00 00 00 01 8B CF E5 68 00"),
    )
    assert encode_checkpoint(CHECKPOINT) == (
        bytes.fromhex("00 01 67 00 03 41 2E 74 00 00 00 03"),
        bytes.fromhex("00 00 00 00 00 00 00 00 00 0A 00 00 00 00 00 00 00 07 00 00"),
    )
    assert encode_offset_sync(SYNC) == (
        bytes.fromhex("00 01 74 00 00 00 03"),
        bytes.fromhex("00 00 00 00 00 00 00 0A 00 00 00 00 00 00 00 07"),
    )


def test_the_lines_of_mirrormaker_2s_formatters() -> None:
    assert str(BEAT) == "Heartbeat{sourceClusterAlias=A, targetClusterAlias=B, timestamp=1700000000000}"
    assert str(CHECKPOINT) == (
        "Checkpoint{consumerGroupId=g, topicPartition=A.t-3, upstreamOffset=10, downstreamOffset=7, metadata=}"
    )
    assert str(SYNC) == "OffsetSync{topicPartition=t-3, upstreamOffset=10, downstreamOffset=7}"


@property_examples()
@given(
    st.builds(MirrorHeartbeat, source_alias=words, target_alias=words, timestamp_ms=offsets),
    st.builds(
        MirrorCheckpoint,
        group=words,
        topic=words,
        partition=st.integers(0, 2**31 - 1),
        upstream_offset=offsets,
        downstream_offset=offsets,
        metadata=words,
    ),
    st.builds(
        OffsetSync,
        topic=words,
        partition=st.integers(0, 2**31 - 1),
        upstream_offset=offsets,
        downstream_offset=offsets,
    ),
)
def test_what_is_written_is_read(beat: MirrorHeartbeat, checkpoint: MirrorCheckpoint, sync: OffsetSync) -> None:
    assert decode_heartbeat(*encode_heartbeat(beat)) == beat
    assert decode_checkpoint(*encode_checkpoint(checkpoint)) == checkpoint
    assert decode_offset_sync(*encode_offset_sync(sync)) == sync


@property_examples()
@given(st.binary(max_size=30), st.binary(max_size=30))
def test_anything_else_is_refused_or_is_exactly_what_would_be_written(key: bytes, value: bytes) -> None:
    codecs: list[tuple[Callable[[bytes, bytes], Any], Callable[[Any], tuple[bytes, bytes]]]] = [
        (decode_heartbeat, encode_heartbeat),
        (decode_checkpoint, encode_checkpoint),
        (decode_offset_sync, encode_offset_sync),
    ]
    for decode, encode in codecs:
        try:
            found = decode(key, value)
        except MalformedEvent:
            continue
        assert encode(found) == (key, value)


@pytest.mark.parametrize("version", [1, -1])
def test_another_version_is_refused(version: int) -> None:
    key, value = encode_heartbeat(BEAT)
    with pytest.raises(MalformedEvent, match=f"version {version}"):
        decode_heartbeat(key, version.to_bytes(2, "big", signed=True) + value[2:])


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        encode_heartbeat(MirrorHeartbeat(source_alias="x" * (LONGEST_STRING + 1), target_alias="B", timestamp_ms=0))
