"""Every format we know keeps the contract of `SegmentFormat`."""

from __future__ import annotations

from formats.parquet.writer import ParquetFormat
from tests.contracts.format import FormatContract
from tests.formats.json_lines import JsonLinesFormat


class TestParquet(FormatContract):
    def make_format(self) -> ParquetFormat:
        return ParquetFormat()


class TestParquetInTinyRowGroups(FormatContract):
    def make_format(self) -> ParquetFormat:
        return ParquetFormat(compression="none", row_group_bytes=100, row_group_records=3, page_bytes=64)


class TestJsonLines(FormatContract):
    def make_format(self) -> JsonLinesFormat:
        return JsonLinesFormat()
