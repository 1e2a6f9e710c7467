"""The archive that the Go ancestor wrote (tests/golden/ancestor), and the records that a reader of it must find."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from formats.segment import Segment, parse_key
from tests.formats.sample_records import Row

FOLDER = Path(__file__).parents[1] / "golden" / "ancestor"
PREFIX, REGION, TOPIC = "data", "src", "kr.samples"
FILES = sorted(file for file in (FOLDER / PREFIX).rglob("*") if file.is_file())


def object_key(file: Path) -> str:
    return file.relative_to(FOLDER).as_posix()


def segment_of(file: Path) -> Segment:
    return parse_key(PREFIX, object_key(file))


def truth() -> list[dict[str, Any]]:
    """The source records, from expected.jsonl."""
    return [json.loads(line) for line in (FOLDER / "expected.jsonl").read_text().splitlines()]


def after_its_losses(record: dict[str, Any]) -> Row:
    """A source record as the ancestor stored it: nothing is null, and nanoseconds wrap around at 2^63."""

    def data(text: str | None) -> bytes:
        return base64.b64decode(text) if text else b""

    nanoseconds = record["timestamp"] * 1_000_000
    return {
        "offset": record["offset"],
        "timestamp": ((nanoseconds + 2**63) % 2**64 - 2**63) // 1_000_000,
        "timestamp_type": 0,
        "key": data(record["key"]),
        "value": data(record["value"]),
        "headers": [(h["key"], data(h["value"])) for h in record["headers"] or ()] or None,
    }
