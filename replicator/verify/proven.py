"""What a verification proved, kept for the next one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from formats.errors import ConfigError, DataError
from formats.segment import Segment, SourcePartition, parse_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """An object that was decoded to its end, and was what its key and footer say. Another object at the same key has
    another time."""

    size_bytes: int
    stored_at: datetime  # UTC, by the store's clock
    records: int
    digest: str
    proven_at: datetime  # UTC


def proven_by_source(proven: Mapping[Segment, Proven]) -> Mapping[SourcePartition, Mapping[Segment, Proven]]:
    found: dict[SourcePartition, dict[Segment, Proven]] = {}
    for segment, one in proven.items():
        found.setdefault(segment.source, {})[segment] = one
    return found


def decode_proven(said: Mapping[str, Any]) -> dict[Segment, Proven]:
    """Raises DataError, ValueError, KeyError, TypeError, AttributeError."""
    return {
        parse_key("", name): Proven(
            size_bytes=one["size_bytes"],
            stored_at=datetime.fromisoformat(one["stored_at"]),
            records=one["records"],
            digest=one["digest"],
            proven_at=datetime.fromisoformat(one["proven_at"]),
        )
        for name, one in said.items()
    }


def encode_proven(proven: Mapping[Segment, Proven]) -> Mapping[str, Any]:
    return {
        str(segment): {
            "size_bytes": one.size_bytes,
            "stored_at": one.stored_at.isoformat(),
            "records": one.records,
            "digest": one.digest,
            "proven_at": one.proven_at.isoformat(),
        }
        for segment, one in proven.items()
    }


def load_proven(path: Path) -> dict[Segment, Proven]:
    """Empty when there is no such file. Raises ConfigError for one that says nothing."""
    try:
        return decode_proven(json.loads(path.read_text(encoding="utf-8"))["proven"])
    except FileNotFoundError:
        return {}
    except (DataError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError([f"not a file of verified objects: {error!r}; name another one"], source=str(path)) from error


def save_proven(path: Path, proven: Mapping[Segment, Proven]) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps({"proven": encode_proven(proven)}, indent=0), encoding="utf-8")
    new.replace(path)  # whole, or as it was
