"""A new segment beside stored ones that cover some of its offsets: stored if they cannot contradict each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import BinaryIO

import pytest

from formats.errors import SegmentsDiffer
from formats.footer import SegmentFooter
from formats.parquet.writer import ParquetFormat
from formats.segment import Segment
from infra.archive.segments import SegmentStore
from infra.archive.upload import Uploader
from infra.storage.memory_and_folder import MemoryObjectStore
from tests.fakes.archive import archive_of
from tests.formats.sample_records import ORIGIN, Row, batch_of, sample_rows, segment

FORMAT = ParquetFormat()
ROWS = sample_rows(10)  # offsets 0 … 9
STORED, NEW = segment(0, 9), segment(0, 14)


@dataclass(frozen=True, slots=True)
class Encoded:
    data: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def reader(self) -> BinaryIO:
        return BytesIO(self.data)


def encoded(name: Segment, rows: Sequence[Row], epoch: int | None) -> tuple[Encoded, SegmentFooter]:
    sink = BytesIO()
    writer = FORMAT.create(sink)
    if rows:
        writer.write([batch_of(list(rows))])
    footer = writer.close(name, replace(ORIGIN, last_leader_epoch=epoch))
    return Encoded(sink.getvalue()), footer


def upload(stored: tuple[Sequence[Row], int | None], new: tuple[Sequence[Row], int | None], *, thin: bool) -> bool:
    store = SegmentStore(MemoryObjectStore(), "data")
    there, _ = encoded(STORED, *stored)
    store.store(STORED, there.reader(), there.size_bytes)
    uploader = Uploader(archive_of(store, FORMAT), source_compacted=lambda _: thin)
    return uploader.upload(NEW, *encoded(NEW, *new), overlapping=[STORED])


@pytest.mark.parametrize(
    ("stored", "new"),
    [
        ((ROWS, None), (ROWS, 4)),
        ((ROWS, 4), (ROWS, None)),
        (([], 4), (ROWS, 3)),
        ((ROWS, 3), ([], 4)),
    ],
    ids=["stored without epoch", "new without epoch", "stored without records", "new without records"],
)
def test_epochs_say_nothing_unless_both_segments_have_records_and_an_epoch(
    stored: tuple[Sequence[Row], int | None], new: tuple[Sequence[Row], int | None]
) -> None:
    assert upload(stored, new, thin=True)


def test_one_record_has_one_epoch() -> None:
    with pytest.raises(SegmentsDiffer, match="epoch"):
        upload((ROWS, 3), (ROWS, 4), thin=True)
