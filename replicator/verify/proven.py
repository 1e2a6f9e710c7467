"""Objects that a verification proved, kept for the next one."""

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
    """An object that was decoded to its end and matches its key and footer. Another object at the same key has another
    `stored_at`."""

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


def decode_proven(stored: Mapping[str, Any]) -> dict[Segment, Proven]:
    """Raises DataError, ValueError, KeyError, TypeError, AttributeError."""
    return {
        parse_key("", name): Proven(
            size_bytes=one["size_bytes"],
            stored_at=datetime.fromisoformat(one["stored_at"]),
            records=one["records"],
            digest=one["digest"],
            proven_at=datetime.fromisoformat(one["proven_at"]),
        )
        for name, one in stored.items()
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


def load_proven(path: Path, archive: str) -> dict[Segment, Proven]:
    """`archive`: its bucket and prefix. Empty if the file does not exist. Raises ConfigError if it cannot be decoded,
    or is of another archive, whose objects may have the same names, sizes and times."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if (other := content.get("archive", archive)) != archive:
            raise ConfigError([f"it is about {other}, and this is {archive}; name another file"], source=str(path))
        return decode_proven(content["proven"])
    except FileNotFoundError:
        return {}
    except (DataError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError([f"not a file of verified objects: {error!r}; name another one"], source=str(path)) from error


def save_proven(path: Path, archive: str, proven: Mapping[Segment, Proven]) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps({"archive": archive, "proven": encode_proven(proven)}, indent=0), encoding="utf-8")
    new.replace(path)  # atomic: the new file or the old one


@dataclass(slots=True)
class ProvenObjects:
    """Proven objects and the file that keeps them for the next verification. Without a file they last for this one
    only."""

    path: Path | None = None
    archive: str = ""  # its bucket and prefix
    objects: dict[Segment, Proven] = field(default_factory=dict)
    _saved_at: float = field(default_factory=monotonic)

    @staticmethod
    def of(path: Path | None, archive: str) -> ProvenObjects:
        """Raises as `load_proven`."""
        return ProvenObjects(path, archive, {} if path is None else load_proven(path, archive))

    def add(self, entry: Mapping[str, Any], read: Mapping[Segment, Proven]) -> None:
        """Add objects that were read. Those that `entry` of the report lists as corrupt or unsettled are no longer
        proven."""
        self.objects.update(read)
        for name in (*entry.get("corrupt", ()), *entry.get("unsettled", ())):
            self.objects.pop(parse_key("", name), None)

    def save_if_due(self) -> None:
        if monotonic() - self._saved_at > SAVE_EVERY:
            self._save()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Save when the block ends, even with an exception."""
        try:
            yield
        finally:
            self._save()

    def _save(self) -> None:
        if self.path is not None:
            save_proven(self.path, self.archive, self.objects)
            self._saved_at = monotonic()
