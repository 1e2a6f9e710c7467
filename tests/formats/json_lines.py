"""A second format, the simplest that meets the contract: one JSON line for each record, and the footer as the last."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO

import pyarrow as pa

from formats.errors import CorruptSegment
from formats.footer import Digest, SegmentFooter, SegmentOrigin
from formats.parquet import footer_json as footers
from formats.records.digest import digest_of
from formats.records.statistics import SegmentStatistics, after, edges, record_bytes, rises
from formats.segment import Segment
from tests.formats.sample_records import batch_of, from_json, rows_of, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLinesFormat:
    indent: int = 0
    name: str = "json-lines"

    def create(self, sink: BinaryIO) -> JsonLinesWriter:
        return JsonLinesWriter(sink)

    def open(self, source: BinaryIO, segment: Segment) -> JsonLinesReader:
        try:
            return JsonLinesReader(source, segment)
        except BaseException:
            source.close()
            raise


class JsonLinesWriter:
    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._facts = SegmentStatistics()
        self._batches: list[pa.RecordBatch] = []

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        for batch in batches:
            if not batch.num_rows:
                continue
            if edges(batch)[0] <= (-1 if self._facts.last_offset is None else self._facts.last_offset):
                raise ValueError("offsets do not rise")
            if not rises(batch):
                raise ValueError("offsets do not rise")
            self._facts.update(batch, record_bytes(batch))
            self._batches.append(batch)

    def close(self, segment: Segment, origin: SegmentOrigin) -> SegmentFooter:
        facts = {name: getattr(self._facts, name) for name in SegmentStatistics.__slots__}
        for offset in (facts["first_offset"], facts["last_offset"]):
            if offset is not None and offset not in segment.offsets:
                raise ValueError("outside of the segment")
        footer = SegmentFooter(segment=segment, origin=origin, digest=digest_of(self._batches), **facts)
        for row in rows_of(self._batches):
            self._sink.write(json.dumps(to_json(row)).encode() + b"\n")
        self._sink.write(footers.encode(footer))
        return footer

    def abort(self) -> None:
        self._batches.clear()


class JsonLinesReader:
    def __init__(self, source: BinaryIO, segment: Segment) -> None:
        self._source = source
        *lines, last = source.read().split(b"\n")
        self.footer = footers.decode(str(segment), last).footer
        if self.footer.segment != segment:
            raise CorruptSegment(str(segment), found=self.footer.segment, wanted=segment)
        try:
            self._batch, digest = _records(tuple(lines))
        except (ValueError, KeyError, TypeError, OverflowError, AttributeError, pa.ArrowException) as error:
            raise CorruptSegment(str(segment), found=repr(error), wanted="records") from error
        if digest != self.footer.digest:
            raise CorruptSegment(str(segment), found=digest, wanted=self.footer.digest)

    def batches(self, from_offset: int = 0) -> Iterator[pa.RecordBatch]:
        wanted = after(self._batch, from_offset) if self._batch.num_rows else self._batch
        if wanted.num_rows:
            yield wanted

    def close(self) -> None:
        self._source.close()


@lru_cache(maxsize=1_000)
def _records(lines: tuple[bytes, ...]) -> tuple[pa.RecordBatch, Digest]:
    """Cached: a state machine reads its whole archive after every step."""
    batch = batch_of([from_json(json.loads(line)) for line in lines])
    return batch, digest_of([batch])
