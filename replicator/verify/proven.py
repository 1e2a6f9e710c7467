"""What a verification proved, kept for the next one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any

from formats.errors import ConfigError, DataError
from formats.segment import Segment, SourcePartition, parse_key

SAVE_EVERY = 30.0  # seconds; the file is written whole


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


@dataclass(slots=True)
class ProvenObjects:
    """What was proven, with the file that keeps it for the next verification; without one for this one only."""

    path: Path | None = None
    objects: dict[Segment, Proven] = field(default_factory=dict)
    _saved_at: float = field(default_factory=monotonic)

    @staticmethod
    def of(path: Path | None) -> ProvenObjects:
        """Raises ConfigError for a file that says nothing."""
        return ProvenObjects(path, {} if path is None else load_proven(path))

    def add(self, entry: Mapping[str, Any], read: Mapping[Segment, Proven]) -> None:
        """`entry`: of the report. What it finds corrupt, or not settled, counts as proven no more."""
        self.objects.update(read)
        for name in (*entry.get("corrupt", ()), *entry.get("unsettled", ())):
            self.objects.pop(parse_key("", name), None)

    def save_if_due(self) -> None:
        if monotonic() - self._saved_at > SAVE_EVERY:
            self._save()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Saved whole at the end, however that comes."""
        try:
            yield
        finally:
            self._save()

    def _save(self) -> None:
        if self.path is not None:
            save_proven(self.path, self.objects)
            self._saved_at = monotonic()
