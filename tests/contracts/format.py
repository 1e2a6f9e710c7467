"""What every SegmentFormat keeps. Subclasses give `make_format`."""

from __future__ import annotations

import random
from collections.abc import Callable
from io import BytesIO
from types import FunctionType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import CorruptSegment, ReplicatorError, StoreUnavailable
from formats.footer import SegmentFooter, SegmentOrigin
from formats.records.digest import digest_of
from formats.registry import SegmentFormat
from formats.segment import OffsetRange, Segment, SourcePartition
from tests.examples import property_examples
from tests.formats.sample_records import (
    BARE,
    ORIGIN,
    Row,
    batch_of,
    cuts,
    raw_bytes,
    rows,
    rows_of,
    sample_rows,
    segment,
    split,
)


def write(
    fmt: SegmentFormat, calls: list[list[pa.RecordBatch]], name: Segment, origin: SegmentOrigin = ORIGIN
) -> tuple[bytes, SegmentFooter]:
    sink = BytesIO()
    writer = fmt.create(sink)
    for batches in calls:
        writer.write(batches)
    footer = writer.close(name, origin)
    return sink.getvalue(), footer


def read(fmt: SegmentFormat, data: bytes, name: Segment, from_offset: int = 0) -> tuple[list[Row], SegmentFooter]:
    reader = fmt.open(BytesIO(data), name)
    try:
        return rows_of(list(reader.batches(from_offset))), reader.footer
    finally:
        reader.close()


def copied(function: Callable[..., None]) -> Callable[..., None]:
    return FunctionType(function.__code__, function.__globals__, function.__name__, None, function.__closure__)


class BrokenSource(BytesIO):
    """Stops working after so many reads."""

    def __init__(self, data: bytes, error: Exception, after: int) -> None:
        super().__init__(data)
        self.error, self.left = error, after

    def read(self, size: int | None = -1, /) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise self.error
        return super().read(size)


class FormatContract:
    test_round_trip: Callable[..., None]
    test_garbage_is_noticed: Callable[..., None]

    def __init_subclass__(cls) -> None:
        """Properties are made anew for each format: Hypothesis keeps one history for each test function."""
        super().__init_subclass__()
        records = given(records=rows(), inner=cuts, outer=cuts, data=st.data())
        garbage = given(garbage=st.binary(max_size=400), ends=st.sampled_from([b"", b"PAR1", b"}"]))
        cls.test_round_trip = property_examples()(records(copied(cls.round_trip)))
        cls.test_garbage_is_noticed = property_examples()(garbage(copied(cls.notices_garbage)))

    def make_format(self) -> SegmentFormat:
        raise NotImplementedError

    @pytest.fixture
    def fmt(self) -> SegmentFormat:
        return self.make_format()

    # --- what goes in comes out ---------------------------------------------------------------------------------------

    def round_trip(self, records: list[Row], inner: list[int], outer: list[int], data: st.DataObject) -> None:
        fmt = self.make_format()
        first, last = (records[0]["offset"], records[-1]["offset"]) if records else (5, 5)
        name = segment(
            data.draw(st.integers(max(first - 3, 0), first)), data.draw(st.integers(last, last + 3)), level=2
        )
        whole = batch_of(records)
        calls = [split(part, inner) for part in split(whole, outer)]
        stored, written = write(fmt, calls, name, data.draw(st.sampled_from([ORIGIN, BARE])))

        back, footer = read(fmt, stored, name)
        assert back == records
        assert footer == written
        assert footer.segment == name
        assert footer.origin.fidelity == "exact"
        assert footer.digest == digest_of([whole])
        assert footer.count == len(records)
        assert footer.raw_bytes == sum(map(raw_bytes, records))
        assert footer.largest_record_bytes == max(map(raw_bytes, records), default=0)
        assert footer.keyless_count == sum(record["key"] is None for record in records)
        assert (footer.first_offset, footer.last_offset) == ((first, last) if records else (None, None))
        stamps = [row["timestamp"] for row in records]
        assert footer.min_timestamp_ms == min(stamps, default=None)
        assert footer.max_timestamp_ms == max(stamps, default=None)

        start = data.draw(st.sampled_from([0, first, last, last + 1, 2**63 - 1]) | st.integers(0, last + 2))
        assert read(fmt, stored, name, start)[0] == [row for row in records if row["offset"] >= start]

    def test_a_segment_without_records(self, fmt: SegmentFormat) -> None:
        stored, written = write(fmt, [[], [batch_of([])]], segment(10, 19))
        back, footer = read(fmt, stored, segment(10, 19))
        assert back == []
        assert footer == written
        assert footer.count == 0
        assert footer.first_offset is footer.last_offset is footer.min_timestamp_ms is footer.max_timestamp_ms is None

    def test_a_segment_can_be_read_twice(self, fmt: SegmentFormat) -> None:
        records = sample_rows(20)
        stored, _ = write(fmt, [[batch_of(records)]], segment(0, 19))
        reader = fmt.open(BytesIO(stored), segment(0, 19))
        assert rows_of(list(reader.batches())) == rows_of(list(reader.batches())) == records
        reader.close()

    # --- the writer ---------------------------------------------------------------------------------------------------

    def test_the_sink_is_written_from_where_it_stands_and_stays_open(self, fmt: SegmentFormat) -> None:
        sink = BytesIO(b"before")
        sink.seek(6)
        writer = fmt.create(sink)
        writer.write([batch_of(sample_rows(5))])
        writer.close(segment(0, 4), ORIGIN)
        assert not sink.closed
        assert sink.getvalue().startswith(b"before")
        assert read(fmt, sink.getvalue()[6:], segment(0, 4))[0] == sample_rows(5)

    @pytest.mark.parametrize("bad", [segment(1, 9), segment(0, 8), segment(20, 30)])
    def test_records_outside_of_the_range_are_refused(self, fmt: SegmentFormat, bad: Segment) -> None:
        writer = fmt.create(BytesIO())
        writer.write([batch_of(sample_rows(10))])
        with pytest.raises(ValueError, match="outside"):
            writer.close(bad, ORIGIN)
        writer.abort()

    @pytest.mark.parametrize("offsets", [[3, 3], [4, 3], [0, 2, 1]])
    def test_offsets_that_do_not_rise_are_refused(self, fmt: SegmentFormat, offsets: list[int]) -> None:
        records = [row | {"offset": offset} for row, offset in zip(sample_rows(3), offsets, strict=False)]
        apart = [batch_of([row]) for row in records]
        for calls in ([[batch_of(records)]], [apart], [[batch] for batch in apart]):
            with pytest.raises(ValueError, match="rise"):
                write(fmt, calls, segment(0, 9))

    def test_abort_at_any_time_and_twice(self, fmt: SegmentFormat) -> None:
        for batches in ([], [batch_of(sample_rows(5))]):
            writer = fmt.create(BytesIO())
            writer.write(batches)
            writer.abort()
            writer.abort()
        done = fmt.create(sink := BytesIO())
        done.close(segment(0, 0), ORIGIN)
        stored = sink.getvalue()
        done.abort()
        assert sink.getvalue() == stored

    # --- the reader does not believe ----------------------------------------------------------------------------------

    def test_reader_owns_the_source(self, fmt: SegmentFormat) -> None:
        stored, _ = write(fmt, [[batch_of(sample_rows(5))]], segment(0, 4))
        good, bad = BytesIO(stored), BytesIO(stored[:-3])
        fmt.open(good, segment(0, 4)).close()
        assert good.closed
        with pytest.raises(CorruptSegment):
            fmt.open(bad, segment(0, 4))
        assert bad.closed

    @pytest.mark.parametrize(
        "other",
        [
            Segment(SourcePartition("eu-2", "orders", 3), 0, OffsetRange(0, 9)),
            Segment(SourcePartition("eu-1", "orders2", 3), 0, OffsetRange(0, 9)),
            Segment(SourcePartition("eu-1", "orders", 4), 0, OffsetRange(0, 9)),
            Segment(SourcePartition("eu-1", "orders", 3, "id"), 0, OffsetRange(0, 9)),
            segment(0, 9, level=1),
            segment(0, 10),
            segment(1, 9),
        ],
        ids=["region", "topic", "partition", "incarnation", "level", "end", "start"],
    )
    def test_footer_and_key_disagree(self, fmt: SegmentFormat, other: Segment) -> None:
        stored, _ = write(fmt, [[batch_of(sample_rows(5, first_offset=1))]], segment(0, 9))
        with pytest.raises(CorruptSegment) as caught:
            fmt.open(BytesIO(stored), other)
        assert str(segment(0, 9)) in str(caught.value)
        assert str(other) in str(caught.value)

    @pytest.mark.parametrize("error", [StoreUnavailable("gone for now"), PermissionError("no")])
    def test_what_the_source_raises_is_not_corruption(self, fmt: SegmentFormat, error: Exception) -> None:
        stored, _ = write(fmt, [split(batch_of(sample_rows(30)), [20])], segment(0, 29))
        outcomes: list[Exception | None] = []
        while not outcomes or outcomes[-1] is not None:  # one read more each time, until all of them work
            outcomes.append(self.failure(fmt, BrokenSource(stored, error, after=len(outcomes)), segment(0, 29)))
        assert outcomes == [error] * (len(outcomes) - 1) + [None]
        assert len(outcomes) > 1

    def failure(self, fmt: SegmentFormat, source: BytesIO, name: Segment) -> Exception | None:
        """What reading all of `source` raises, if it does."""
        try:
            list(fmt.open(source, name).batches())
        except Exception as error:
            return error
        finally:
            source.close()
        return None

    def damaged(self, fmt: SegmentFormat, data: bytes, name: Segment, truth: tuple[list[Row], Any]) -> bool:
        """Read damaged `data`: True when a typed error says so, False when the damage changes nothing."""
        try:
            seen = read(fmt, data, name)
        except CorruptSegment:
            return True
        except ReplicatorError as error:
            raise AssertionError(f"not the error for damage: {error!r}") from error
        assert seen == truth
        return False

    def test_truncation_is_noticed(self, fmt: SegmentFormat) -> None:
        records = sample_rows(60)
        stored, footer = write(fmt, [[batch_of(records)]], segment(0, 59))
        rng = random.Random(1)
        lengths = {0, 1, 3, 4, 7, 8, 11, 12, 15, 16, *(len(stored) - i for i in range(1, 40))}
        for length in lengths | {rng.randrange(len(stored)) for _ in range(300)}:
            assert self.damaged(fmt, stored[:length], segment(0, 59), (records, footer)), length

    def notices_garbage(self, garbage: bytes, ends: bytes) -> None:
        with pytest.raises(CorruptSegment):
            read(self.make_format(), ends[:4] + garbage + ends, segment(0, 9))

    def test_bytes_added_or_lost_in_the_middle_are_noticed(self, fmt: SegmentFormat) -> None:
        records = sample_rows(60)
        stored, footer = write(fmt, [[batch_of(records)]], segment(0, 59))
        rng = random.Random(2)
        for at in (rng.randrange(len(stored)) for _ in range(100)):
            for changed in (stored[:at] + b"\0" + stored[at:], stored[:at] + stored[at + 1 :]):
                self.damaged(fmt, changed, segment(0, 59), (records, footer))
