"""docs/formats.md by itself is enough to read a segment: this reader uses nothing of the program."""

from __future__ import annotations

import base64
import json
import re
import struct
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from awscrt import checksums

from formats.footer import STREAMS
from formats.parquet.footer_json import KEY, VERSION
from formats.records.schema import SCHEMA
from tests.docs.markdown import ROOT
from tests.docs.test_docs_pages import table

PAGE = ROOT / "docs" / "formats.md"
GOLDEN = sorted((ROOT / "tests" / "golden").glob(f"v{VERSION}/*.segment"))


def names(heading: str) -> list[str]:
    return [name for row in table(PAGE, heading) for name in re.findall(r"`([^`]+)`", row[0])]


def crc_text(data: bytes) -> str:
    return f"{checksums.crc64nvme(data):016x}"


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class Read:
    """A segment, taken apart as the page says."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        assert data[:4] == data[-4:] == b"PAR1"
        (length,) = struct.unpack("<I", data[-8:-4])
        self.seal = len(data) - 8 - length - 16
        mark, self.crc = struct.unpack("<8sQ", data[self.seal : self.seal + 16])
        assert mark == b"KSRSEAL1"
        stored = pq.read_metadata(pa.BufferReader(data)).metadata[KEY.encode()]
        self.footer: dict[str, Any] = json.loads(stored)
        assert canonical(self.footer) == stored
        entries = base64.b64decode(self.footer["row_groups"], validate=True)
        assert len(entries) % 228 == 0
        self.entries = list(struct.iter_unpack("<IqqQQ24Q", entries))


@pytest.fixture(params=GOLDEN, ids=[file.stem for file in GOLDEN])
def read(request: pytest.FixtureRequest) -> Read:
    file: Path = request.param
    return Read(file.read_bytes())


class TestSegment:
    def test_the_seal(self, read: Read) -> None:
        assert read.crc == checksums.crc64nvme(read.data[read.seal + 16 :])

    def test_the_footers_checksum(self, read: Read) -> None:
        rest = {name: value for name, value in read.footer.items() if name != "checksum"}
        assert read.footer["checksum"] == crc_text(canonical(rest))

    def test_stored_runs_adjoin_up_to_the_seal(self, read: Read) -> None:
        at = 0
        for _count, _first, _last, length, crc, *_ in read.entries:
            assert checksums.crc64nvme(read.data[at : at + length]) == crc
            at += length
        assert read.seal == (at or 4)

    def test_digests_of_the_columns(self, read: Read) -> None:
        decoded = pq.read_table(pa.BufferReader(read.data))
        rows = decoded.drop_columns(["timestamp"]).to_pylist()
        raw = decoded.column("timestamp").cast(pa.int64()).to_pylist()
        streams = dict.fromkeys(STREAMS, b"")
        for row, timestamp in zip(rows, raw, strict=True):
            for name, data in streams_of(row, timestamp).items():
                streams[name] += data
        wanted = {name: f"{crc_text(data)}:{len(data)}" for name, data in streams.items()}
        assert read.footer["digest"] == wanted
        text = ";".join([str(len(rows)), *(wanted[name] for name in STREAMS)])
        file = next(file for file in GOLDEN if file.read_bytes() == read.data)
        expected = json.loads(file.with_suffix(".json").read_text())["footer"]
        assert blake2b(text.encode(), digest_size=8).hexdigest() == expected["whole"]
        content = ";".join([str(len(rows)), *(wanted[name] for name in STREAMS[1:])])
        assert blake2b(content.encode(), digest_size=8).hexdigest() == expected["content"]


def streams_of(row: dict[str, Any], timestamp: int) -> dict[str, bytes]:
    headers = row["headers"] or []
    return {
        "offset": struct.pack("<q", row["offset"]),
        "timestamp": struct.pack("<q", timestamp),
        "timestamp_type": struct.pack("<b", row["timestamp_type"]),
        "key.length": length(row["key"]),
        "key.data": row["key"] or b"",
        "value.length": length(row["value"]),
        "value.data": row["value"] or b"",
        "headers.count": struct.pack("<i", len(headers)),
        "headers.key.length": b"".join(length(one["key"].encode()) for one in headers),
        "headers.key.data": b"".join(one["key"].encode() for one in headers),
        "headers.value.length": b"".join(length(one["value"]) for one in headers),
        "headers.value.data": b"".join(one["value"] or b"" for one in headers),
    }


def length(data: bytes | None) -> bytes:
    return struct.pack("<i", -1 if data is None else len(data))


class TestTables:
    def test_columns(self) -> None:
        rows = table(PAGE, "<!-- schema -->")
        assert [row[0].strip("`") for row in rows] == SCHEMA.names
        types = {row[0].strip("`"): row[1].strip("`") for row in rows}
        assert types == {field.name: str(field.type) for field in SCHEMA}
        assert [row[2] == "allowed" for row in rows] == [field.nullable for field in SCHEMA]

    def test_footer(self, read: Read) -> None:
        optional = {"keyless_count", "schema_ids", "row_groups"}
        assert set(names("<!-- footer fields -->")) - optional == set(read.footer) - optional
        optional_of_origin = {"role", "created_by"}
        assert (
            set(names("<!-- origin fields -->")) - optional_of_origin == set(read.footer["origin"]) - optional_of_origin
        )

    def test_streams(self) -> None:
        assert names("<!-- streams -->") == list(STREAMS)

    def test_envelope(self) -> None:
        sizes = {"uint16": 2, "uint32": 4, "uint64": 8}
        at = 0
        for where, kind, content in table(PAGE, "<!-- envelope -->"):
            size = sizes.get(kind) or {"salt": 32, "mark": 8}[content.partition(",")[0].partition(":")[0]]
            assert where == f"{at}–{at + size - 1}"
            at += size
        assert at == 62

    def test_row_group_entry(self) -> None:
        sizes = {"uint32": 4, "int64": 8, "uint64": 8, "12 × (uint64, uint64)": 192}
        at = 0
        for where, kind, _ in table(PAGE, "<!-- row group entry -->"):
            assert where == f"{at}–{at + sizes[kind] - 1}"
            at += sizes[kind]
        assert at == 228
