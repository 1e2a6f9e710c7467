"""Arrow records as calls of `produce`: which calls, in which order, and with a queue that is full at any moment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import example, given, settings
from hypothesis import strategies as st

from infra.contracts.cluster import TopicPartition
from infra.kafka.client.encode import (
    CUT_NAME,
    LATEST,
    DeliveryCallback,
    Header,
    clamp_timestamps,
    send,
    slices,
    unsupported_timestamps,
)
from tests.contracts.target import row
from tests.formats.sample_records import Row, batch_of

PLACE = TopicPartition("orders.copy", 3)
NOW_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
INT64 = st.integers(-(2**63), 2**63 - 1)
DATA = st.none() | st.binary(max_size=8)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3)
HEADERS = st.none() | st.lists(st.tuples(NAMES, DATA), max_size=3)


def report(_error: KafkaError | None, _message: object) -> None: ...


def first(_error: KafkaError | None, _message: object) -> None: ...


@st.composite
def rows(draw: st.DrawFn, *, most: int = 30) -> list[Row]:
    count = draw(st.integers(0, most))
    return [
        row(offset, draw(DATA), stamp=draw(INT64), key=draw(DATA), headers=draw(HEADERS)) for offset in range(count)
    ]


class Queue:
    """A client's queue that accepts a given number of records, and is then full until it is emptied."""

    def __init__(self, rooms: Sequence[int], *, refuses: int | None = None) -> None:
        self.taken: list[tuple[object, ...]] = []
        self.callbacks: list[DeliveryCallback] = []
        self.waits = 0
        self._rooms = iter(rooms)
        self._refuses = refuses
        self._room = next(self._rooms, 10**9)

    def produce(  # noqa: PLR0917
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        callback: DeliveryCallback,
        on_delivery: None,
        timestamp: int,
        headers: list[Header] | None,
        /,
    ) -> None:
        if len(self.taken) == self._refuses:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if self._room == 0:
            raise BufferError("Local: Queue full")
        self._room -= 1
        assert (topic, partition, on_delivery) == ("orders.copy", 3, None)
        self.callbacks.append(callback)
        self.taken.append((value, key, timestamp, headers or None))

    def wait_for_room(self) -> bool:
        self.waits += 1
        self._room = next(self._rooms, 10**9)
        return True


def calls(given_rows: Sequence[Row]) -> list[tuple[object, ...]]:
    return [(r["value"], r["key"], r["timestamp"], list(r["headers"]) if r["headers"] else None) for r in given_rows]


@settings(deadline=None)
@given(rows(), st.lists(st.integers(0, 6), max_size=10), st.integers(0, 10), st.integers(0, 1000))
def test_every_record_is_sent_once_and_in_order_with_any_queue(
    given_rows: list[Row], rooms: list[int], skip: int, slice_bytes: int
) -> None:
    queue = Queue(rooms)
    batch = batch_of(given_rows).slice(skip)  # a slice, whose offsets into the buffers are not zero
    callbacks: list[DeliveryCallback] = []
    for batch_slice in slices(batch, slice_bytes=slice_bytes):
        callbacks += [first, *[report] * (batch_slice.num_rows - 1)]
        assert send(
            batch_slice,
            produce=queue.produce,
            partition=PLACE,
            reports=(first, report),
            wait_for_room=queue.wait_for_room,
        )
    assert queue.taken == calls(given_rows[skip:])
    assert queue.callbacks == callbacks


def test_giving_up_leaves_the_first_records_queued() -> None:
    some = [row(n, b"%d" % n) for n in range(10)]
    queue = Queue([4])
    assert not send(
        batch_of(some), produce=queue.produce, partition=PLACE, reports=(first, report), wait_for_room=lambda: False
    )
    assert queue.taken == calls(some[:4])


def test_a_permanently_rejected_record_raises_and_no_record_follows() -> None:
    some = [row(n, b"%d" % n) for n in range(10)]
    queue = Queue([3, 2], refuses=7)
    with pytest.raises(KafkaException):
        send(
            batch_of(some),
            produce=queue.produce,
            partition=PLACE,
            reports=(first, report),
            wait_for_room=queue.wait_for_room,
        )
    assert queue.taken == calls(some[:7])


@pytest.mark.parametrize("begin", [0, 2])
def test_a_header_name_that_the_client_would_cut_is_rejected_before_any_record(begin: int) -> None:
    queue = Queue([])
    headers: list[list[tuple[str, bytes | None]] | None] = [
        None,
        [],
        [("a", b"x")],
        None,
        [("b", None), ("a\0b", b"x")],
    ]
    batch = batch_of([row(10 + at, b"", headers=pairs) for at, pairs in enumerate(headers)]).slice(begin)

    def send_all(some: pa.RecordBatch) -> bool:
        return send(
            some, produce=queue.produce, partition=PLACE, reports=(first, report), wait_for_room=queue.wait_for_room
        )

    with pytest.raises(KafkaException, match="source offset 14 contains a NUL byte") as raised:
        send_all(batch)
    assert raised.value.args[0].code() == CUT_NAME
    assert not queue.taken
    assert send_all(batch.slice(0, batch.num_rows - 1)), "the records before it are sent as ever"


def test_slices_are_bounded_in_records_and_bytes() -> None:
    small = batch_of([row(n, b"") for n in range(10_000)])
    assert [p.num_rows for p in slices(small, slice_bytes=10**9)] == [4096, 4096, 1808]
    large = batch_of([row(n, bytes(1000)) for n in range(100)])
    assert max(p.nbytes for p in slices(large, slice_bytes=10_000)) <= 10_000
    assert [p.num_rows for p in slices(large, slice_bytes=0)] == [1] * 100


@settings(deadline=None)
@given(st.lists(INT64, min_size=1), st.sampled_from([0, 1000, 10**12, LATEST]), st.sampled_from([0, 3_600_000, LATEST]))
@example([1, 0], LATEST, LATEST)
@example([NOW_MS - 1001, NOW_MS], 1000, LATEST)
@example([NOW_MS, NOW_MS + 3_600_001], LATEST, 3_600_000)
def test_unsupported_timestamps_are_those_the_target_changes_or_rejects(
    stamps: list[int], before_max_ms: int, after_max_ms: int
) -> None:
    def bad(stamp: int) -> bool:
        early = before_max_ms < LATEST and NOW_MS - stamp > before_max_ms
        late = after_max_ms < LATEST and stamp - NOW_MS > after_max_ms
        return stamp == 0 or (stamp != -1 and (early or late))

    found = unsupported_timestamps(
        batch_of([row(10 + n, stamp=stamp) for n, stamp in enumerate(stamps)]),
        before_max_ms=before_max_ms,
        after_max_ms=after_max_ms,
        now_ms=NOW_MS,
    )
    wanted = [(10 + n, stamp) for n, stamp in enumerate(stamps) if bad(stamp)]
    if found is None:
        assert wanted == []
    else:
        assert (found.count, (found.first_offset, found.first_timestamp_ms)) == (len(wanted), wanted[0])


@settings(deadline=None)
@given(st.lists(INT64), st.integers(-(2**64), NOW_MS), st.integers(NOW_MS, 2**64))
def test_clamped_timestamps_are_within_and_the_others_untouched(stamps: list[int], low: int, high: int) -> None:
    batch = batch_of([row(n, stamp=stamp) for n, stamp in enumerate(stamps)])
    clamped, changed = clamp_timestamps(batch, low, high)
    after = clamped.column("timestamp").view("int64").to_pylist()
    assert clamped.schema.equals(batch.schema)
    assert clamped.drop_columns(["timestamp"]).equals(batch.drop_columns(["timestamp"]))
    assert changed == sum(b != a for b, a in zip(stamps, after, strict=True))
    for before, now in zip(stamps, after, strict=True):
        if before == -1:
            assert now == -1
        else:
            assert now == (min(max(before, low), high) or 1)


def test_an_invalid_range_for_clamping_is_rejected() -> None:
    for low, high in ((5, 4), (-5, 0), (0, 0)):
        with pytest.raises(ValueError, match="range"):
            clamp_timestamps(batch_of([row(0)]), low, high)
