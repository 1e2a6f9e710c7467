"""Records of the event log and the checkpoint topic: they round-trip, and garbage is a typed error."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.archive_begin import ArchiveBegin, decode_begin, encode_begin
from formats.control.fork import LogFork, decode_fork, encode_fork
from formats.control.gap import RecordedGap, decode_gap, encode_gap
from formats.errors import MalformedEvent
from formats.messages import delivery_checkpoint, segment_events
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.messages.segment_events import Created, Removed
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition

TIMES = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
NAME = st.text("abcXYZ019._-", min_size=1, max_size=12).filter(lambda n: n not in (".", "..", "_control"))
SOURCES = st.builds(
    SourcePartition, NAME, NAME, st.integers(0, 2**31 - 1), st.just("") | st.text("abz09_-", min_size=1, max_size=30)
)
RANGES = st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)).map(lambda t: OffsetRange(min(t), max(t)))
SEGMENTS = st.builds(Segment, SOURCES, st.integers(0, 9), RANGES)
EVENTS = st.builds(Created, st.builds(SegmentInfo, SEGMENTS, st.integers(0, 2**40), TIMES)) | st.builds(
    Removed, SEGMENTS, TIMES
)

CHECKPOINTS = st.builds(
    Checkpoint,
    st.integers(0, 2**62),
    NAME,
    TIMES,
    st.sampled_from(delivery_checkpoint.Author),
    given_at=st.none() | st.integers(0, 2**62),
    begun_at=st.none() | st.integers(0, 2**62),
)


@given(EVENTS)
def test_event_round_trip(event: Created | Removed) -> None:
    assert segment_events.decode(segment_events.encode(event)) == event
    assert segment_events.encode_key(event) == str(event.segment).encode()


@given(st.builds(CheckpointKey, SOURCES, NAME), CHECKPOINTS)
def test_checkpoint_round_trip(key: CheckpointKey, value: Checkpoint) -> None:
    assert delivery_checkpoint.decode_key(delivery_checkpoint.encode_key(key)) == key
    assert delivery_checkpoint.decode(delivery_checkpoint.encode(value)) == value


def test_a_checkpoint_without_begun_at_is_decoded() -> None:
    at = "2026-01-01T00:00:00+00:00"
    encoded = f'{{"at":"{at}","author":"exactly-once","destination_topic_id":"x","next_offset":5,"v":1}}'.encode()
    found = delivery_checkpoint.decode(encoded)
    assert (found.next_offset, found.begun_at) == (5, None)
    assert delivery_checkpoint.encode(found) == encoded


@given(st.builds(CheckpointKey, SOURCES, NAME), st.builds(CheckpointKey, SOURCES, NAME))
def test_one_key_has_one_encoding(a: CheckpointKey, b: CheckpointKey) -> None:
    assert (delivery_checkpoint.encode_key(a) == delivery_checkpoint.encode_key(b)) == (a == b)


OFFSETS = st.integers(0, 2**62)
FORK_FIELDS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "source": SOURCES,
        "next_offset": st.integers(1, 2**62),
        "leader_epoch": st.integers(0, 2**31 - 1),
        "end_offset": st.none() | OFFSETS,
        "found_at": TIMES,
    }
)
FORKS = FORK_FIELDS.filter(lambda d: d["end_offset"] is None or d["end_offset"] < d["next_offset"]).map(
    lambda d: LogFork(**d)
)
GAPS = st.builds(
    RecordedGap,
    source=SOURCES,
    offsets=RANGES,
    reason=st.text(max_size=20),
    low=OFFSETS,
    high=OFFSETS,
    recorded_at=TIMES,
    is_accepted=st.booleans(),
)


@given(st.builds(ArchiveBegin, offset=OFFSETS, reason=st.text(max_size=20), recorded_at=TIMES), FORKS, GAPS)
def test_control_object_round_trips(begin: ArchiveBegin, fork: LogFork, gap: RecordedGap) -> None:
    assert decode_begin(encode_begin(begin)) == begin
    assert decode_fork(fork.source, encode_fork(fork)) == fork
    assert decode_gap(gap.source, gap.offsets, encode_gap(gap)) == gap


@pytest.mark.parametrize("data", [b"", b"\xff", b"null", b"[]", b"{}", b'{"v":1}', b'{"v":2,"offset":1}', b"1" * 5000])
def test_garbage_is_not_a_control_object(data: bytes) -> None:
    source = SourcePartition("r", "t", 0)
    for decode in (decode_begin, lambda d: decode_fork(source, d)):
        with pytest.raises(MalformedEvent, match=r"not (a|the begin)"):
            decode(data)


def test_a_fork_that_contests_nothing_is_malformed() -> None:
    data = encode_fork(
        LogFork(
            source=SourcePartition("r", "t", 0), next_offset=9, leader_epoch=0, end_offset=3, found_at=datetime.now(UTC)
        )
    )
    with pytest.raises(MalformedEvent, match="contests nothing below 9"):
        decode_fork(SourcePartition("r", "t", 0), data.replace(b'"end_offset":3', b'"end_offset":9'))


@pytest.mark.parametrize("decode", [segment_events.decode, delivery_checkpoint.decode, delivery_checkpoint.decode_key])
@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"null", b"[]", b"{}", b'{"v":1}', b'{"v":2,"type":"created"}', b"1" * 5000]
)
def test_garbage_is_malformed(decode: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(MalformedEvent, match="not a"):
        decode(data)


def test_newer_versions_are_named_in_the_error() -> None:
    with pytest.raises(MalformedEvent, match="version 2, this program reads 1"):
        segment_events.decode(b'{"v":2}')
