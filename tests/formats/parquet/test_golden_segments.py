"""Golden files: segments written by released versions must always read the same."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import pytest
from awscrt import checksums

from formats.codec import dump
from formats.errors import CorruptSegment
from formats.parquet.footer_json import VERSION, decode, encode
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


def test_earlier_footers_do_not_say_what_wrote_them() -> None:
    """They are read, and what was not written is empty."""
    file = FOLDER / f"v{VERSION}" / "usual.segment"
    name = parse_key("", json.loads(file.with_suffix(".json").read_text())["footer"]["segment"])
    origin = ParquetFormat().open(BytesIO(file.read_bytes()), name).footer.origin
    assert (origin.writer != "", origin.role, origin.created_by) == (True, "", "")


def test_created_by_is_a_text() -> None:
    """Another program's footer with a valid checksum may hold anything."""
    file = FOLDER / f"v{VERSION}" / "created-by.segment"
    name = parse_key("", json.loads(file.with_suffix(".json").read_text())["footer"]["segment"])
    footer = ParquetFormat().open(BytesIO(file.read_bytes()), name).footer
    value = json.loads(encode(footer))
    value["origin"]["created_by"] = ["example_app"]
    del value["checksum"]
    data = dump(value | {"checksum": f"{checksums.crc64nvme(dump(value)):016x}"})
    with pytest.raises(CorruptSegment, match="is no text"):
        decode("segment", data)
