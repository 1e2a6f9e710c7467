"""Writes the golden files that are missing: segments as this program writes them, with what is in them as JSON.

A golden file is what some released version wrote. It is never written again, so existing ones are left alone; a new
version of the format gets a new folder.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
from dataclasses import asdict, replace
from io import BytesIO
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent.parent))  # run as a script by `make golden`

from cryptography.hazmat.primitives.keywrap import aes_key_wrap  # noqa: E402

from formats.footer import SegmentFooter  # noqa: E402
from formats.parquet.footer_json import VERSION  # noqa: E402
from formats.parquet.writer import ParquetFormat  # noqa: E402
from infra.contracts.encryption import DATA_KEY_BYTES, DataKey  # noqa: E402
from infra.storage import envelope  # noqa: E402
from infra.storage.encrypted_files import encrypting  # noqa: E402
from tests.formats.sample_records import BARE, ORIGIN, Row, batch_of, sample_rows, segment, to_json  # noqa: E402


def facts(footer: SegmentFooter) -> dict[str, Any]:
    """The footer as JSON values, the way the golden files have it."""
    value = asdict(footer)
    value["segment"] = str(footer.segment)
    value["origin"]["created_at"] = footer.origin.created_at.isoformat()
    value["fidelity"] = value["origin"].pop("fidelity")
    if footer.keyless_count is None:  # since when it is counted, is what files of before do not say
        del value["keyless_count"]
    if footer.schema_ids is None:
        del value["schema_ids"]
    for name in ("role", "created_by"):
        if not value["origin"][name]:
            del value["origin"][name]
    value["whole"] = footer.digest.whole if footer.digest else None
    value["content"] = footer.digest.content if footer.digest else None
    return json.loads(json.dumps(value))  # type: ignore[no-any-return]


def extremes() -> list[Row]:
    """One record for each thing that is easily lost."""
    plain: Row = {"timestamp": 0, "timestamp_type": 0, "key": b"k", "value": b"v", "headers": None}
    special: list[Row] = [
        {"key": None},
        {"key": b""},
        {"value": None},
        {"value": b""},
        {"key": None, "value": None},
        {"key": bytes(range(256)), "value": b"\xff\xfe\x00"},
        {"headers": [("a", b"1"), ("a", b"2"), ("b", None), ("a", b""), ("", b"no name")]},
        {"headers": [("ключ", b"x"), ("鍵", b"y"), ("🔑", b"z"), ("nul\x00", b"")]},
        {"timestamp": -1, "timestamp_type": -1},
        {"timestamp": -(2**63)},
        {"timestamp": 2**63 - 1},
        {"timestamp": 253_402_300_799_999, "timestamp_type": 1},
        {"timestamp": -62_135_596_800_000},
        {"value": b"large " * 5_000},
    ]
    offsets = [0, 1, 2, 10, 11, 2**31, 2**32, 2**53 + 1, *range(2**62, 2**62 + 6)]
    return [plain | row | {"offset": offset} for row, offset in zip(special, offsets, strict=True)]


def encrypted() -> None:
    """Objects in the envelope of encryption, with the keys that open them: these are of no archive."""
    keys = {"2026-11": bytes(range(32)), "2025-11": bytes(range(32, 64))}
    texts = {key_id: base64.b64encode(key).decode() for key_id, key in keys.items()}
    segment_key = "eu-west-1/orders/3/0/00000000000000001000-00000000000000001199"
    usual = (FOLDER / "v1" / "usual.segment").read_bytes()
    cases = {
        "control": ("eu-west-1/_control/v1/places/orders", "2026-11", b'{"v":1}'),
        "empty": ("eu-west-1/_control/v1/probe", "2026-11", b""),
        "segment": (segment_key, "2025-11", usual),
        "two-chunks": (segment_key, "2026-11", bytes(range(256)) * 257),
    }
    folder = FOLDER / "encryption" / f"v{envelope.VERSION}"
    folder.mkdir(exist_ok=True, parents=True)
    for name, (object_name, key_id, content) in cases.items():
        target = folder / f"{name}.object"
        if target.exists():
            continue
        secret = os.urandom(DATA_KEY_BYTES)
        data_key = DataKey(key_id=key_id, wrapped=aes_key_wrap(keys[key_id], secret), secret=secret)
        target.write_bytes(encrypting(BytesIO(content), len(content), data_key, object_name).read())
        expected = {
            "name": object_name,
            "keys": texts,
            "content_bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        target.with_suffix(".json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
        print(f"wrote {target.relative_to(FOLDER)}")


def main() -> None:
    tiny = ParquetFormat(row_group_bytes=2_000)
    cases = {
        "usual": (ParquetFormat(), sample_rows(200, first_offset=1_000), segment(1_000, 1_199), ORIGIN),
        "row-groups": (tiny, sample_rows(200, step=3), segment(0, 700, level=1), ORIGIN),
        "extremes": (ParquetFormat(), extremes(), segment(0, 2**62 + 100), BARE),
        "no-records": (ParquetFormat(), [], segment(77, 99), BARE),
        "keys-counted": (ParquetFormat(), extremes(), segment(0, 2**62 + 100, level=2), ORIGIN),
        "created-by": (
            ParquetFormat(),
            sample_rows(200, first_offset=1_000),
            segment(1_000, 1_199, level=1),
            replace(ORIGIN, role="compact", created_by="example_app"),
        ),
    }
    encrypted()
    folder = FOLDER / f"v{VERSION}"
    folder.mkdir(exist_ok=True)
    for name, (fmt, records, key, origin) in cases.items():
        target = folder / f"{name}.segment"
        if target.exists():
            continue
        sink = BytesIO()
        writer = fmt.create(sink)
        writer.write([batch_of(records)])
        footer = writer.close(key, origin)
        expected = {"footer": facts(footer), "records": [to_json(row) for row in records]}
        target.write_bytes(sink.getvalue())
        target.with_suffix(".json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
        print(f"wrote {target.relative_to(FOLDER)}")


if __name__ == "__main__":
    main()
