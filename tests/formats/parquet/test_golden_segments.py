"""Golden files: segments written by released versions must always read the same."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import pytest

from formats.parquet.footer_json import VERSION
from formats.parquet.writer import ParquetFormat
from formats.records.digest import digest_of
from formats.segment import parse_key
from tests.formats.sample_records import batch_of, from_json, rows_of
from tests.golden.make import FOLDER, facts

FILES = sorted(FOLDER.glob("v*/*.segment"))


def test_there_are_golden_files_of_this_version() -> None:
    assert (FOLDER / f"v{VERSION}").is_dir()
    assert {file.stem for file in FILES} >= {"usual", "row-groups", "extremes", "no-records"}


@pytest.mark.parametrize("file", FILES, ids=[f"{file.parent.name}/{file.stem}" for file in FILES])
def test_m21_reads_exactly_what_was_written(file: Path) -> None:
    expected = json.loads(file.with_suffix(".json").read_text())
    records = [from_json(value) for value in expected["records"]]
    reader = ParquetFormat().open(BytesIO(file.read_bytes()), parse_key("", expected["footer"]["segment"]))
    assert facts(reader.footer) == expected["footer"]
    assert rows_of(list(reader.batches())) == records
    assert reader.footer.digest == digest_of([batch_of(records)])
    reader.close()
