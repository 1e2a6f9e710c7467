"""Object stores without a server: in memory, and in a folder of this machine."""

from __future__ import annotations

import io
import os
import re
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote

from formats.errors import SegmentExists, SegmentNotFound, StoreUnavailable
from infra.contracts.storage import ObjectInfo


@dataclass(frozen=True, slots=True)
class _Stored:
    info: ObjectInfo
    data: bytes


class MemoryObjectStore:
    """An `ObjectStore` for tests and drills. `now`: its clock."""

    def __init__(self, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._objects: dict[str, _Stored] = {}
        self._version = 0

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """A snapshot taken at the first step of the iteration."""
        with self._lock:
            found = [one.info for key, one in self._objects.items() if key.startswith(prefix) and key > start_after]
        yield from sorted(found, key=lambda info: info.key)[:limit]

    def folders(self, prefix: str) -> Sequence[str]:
        with self._lock:
            keys = list(self._objects)
        return folders_of(keys, prefix)

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        data = _read(key, body, size_bytes)
        with self._lock:
            if key in self._objects:
                raise SegmentExists(key)
            self._set(key, data)

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:  # noqa: ARG002
        with self._lock:
            stored = self._objects.get(key)
        if stored is None:
            raise SegmentNotFound(key)
        return io.BytesIO(stored.data)

    def stat(self, key: str) -> ObjectInfo | None:
        with self._lock:
            stored = self._objects.get(key)
        return stored.info if stored else None

    def delete_many(self, keys: Collection[str]) -> None:
        with self._lock:
            for key in keys:
                self._objects.pop(key, None)

    def replace(self, key: str, data: bytes) -> None:
        """Overwrite an object, or create it. None of our flows does this, but an operator or a replication rule may."""
        with self._lock:
            self._set(key, data)

    def _set(self, key: str, data: bytes) -> None:
        self._version += 1
        self._objects[key] = _Stored(ObjectInfo(key, len(data), self._now(), f'"{self._version}"'), data)


class DirectoryObjectStore:
    """An `ObjectStore` in a folder: keys are paths, so that a copied archive (`aws s3 sync`) can be read in place.

    The path of a segment is its key; other keys are escaped where a file system requires it, see `key_path`. Names of
    temporary files begin with a dot, which no key's path does; a crash leaves them behind, and `list` ignores them.
    Empty folders are not removed.
    """

    def __init__(self, root: Path) -> None:
        """`root` must exist: an unmounted disk must not look like an empty archive."""
        self._root = root

    def __repr__(self) -> str:
        return f"DirectoryObjectStore({str(self._root)!r})"

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """Reads the whole folder of `prefix` at the first step of the iteration: O(n log n) in the files below it."""
        keys = sorted(key for key in self._keys(prefix) if key > start_after)
        infos = (info for key in keys if (info := self.stat(key)) is not None)  # None: deleted meanwhile
        yield from islice(infos, limit)

    def folders(self, prefix: str) -> Sequence[str]:
        """Reads the whole folder: one without a file is none."""
        return folders_of(self._keys(prefix), prefix)

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        path = self._path(key)
        temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
        with self._translated(key):
            self._refuse_absent_root()
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("xb") as file:
                    _copy(key, body, file, size_bytes)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(temporary, path)  # atomic, and fails when the name exists
            except FileExistsError as error:
                raise SegmentExists(key) from error
            finally:
                temporary.unlink(missing_ok=True)
            self._sync_folders(path.parent)

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:  # noqa: ARG002
        with self._translated(key):
            try:
                return self._path(key).open("rb")
            except FileNotFoundError as error:
                self._refuse_absent_root()
                raise SegmentNotFound(key) from error

    def stat(self, key: str) -> ObjectInfo | None:
        with self._translated(key):
            try:
                facts = self._path(key).stat()
            except FileNotFoundError:
                self._refuse_absent_root()
                return None
        etag = f'"{facts.st_ino:x}-{facts.st_mtime_ns:x}-{facts.st_size:x}"'
        return ObjectInfo(key, facts.st_size, datetime.fromtimestamp(facts.st_mtime, UTC), etag)

    def delete_many(self, keys: Collection[str]) -> None:
        for key in keys:
            with self._translated(key):
                self._path(key).unlink(missing_ok=True)
        self._refuse_absent_root()

    def _path(self, key: str) -> Path:
        return self._root / key_path(key)

    def _keys(self, prefix: str) -> Sequence[str]:
        """In any order."""
        folder, _, _ = prefix.rpartition("/")
        with self._translated(prefix):
            base = self._root / folder_path(folder) if folder or prefix.startswith("/") else self._root
            return [key for key in self._keys_below(base) if key.startswith(prefix)]

    def _keys_below(self, base: Path) -> Iterator[str]:
        def failed(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):  # an unreadable part of the archive must not count as absent
                raise error

        self._refuse_absent_root()
        for folder, _, files in os.walk(base, onerror=failed):
            parts = Path(folder).relative_to(self._root).parts
            for name in files:
                if not name.startswith(".") and (key := path_key((*parts, name))) is not None:
                    yield key

    def _refuse_absent_root(self) -> None:
        if not self._root.is_dir():
            raise StoreUnavailable(f"{self._root} is not a folder: mount or create it")

    def _sync_folders(self, folder: Path) -> None:
        """Make the new names durable: that of the file, and those of folders created for it."""
        while True:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            if folder == self._root:
                return
            folder = folder.parent

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnavailable(f"{self._root} {key}: {error}") from error


def folders_of(keys: Iterable[str], prefix: str) -> Sequence[str]:
    """As `ObjectStore.folders`, of all the keys there are, in any order."""
    below = (key[len(prefix) :].partition("/") for key in keys if key.startswith(prefix))
    return sorted({name for name, slash, _ in below if slash}, key=lambda name: f"{name}/")


# --- keys as paths ---------------------------------------------------------------------------------------------------

_SAFE = "@!$&'(),;:~ "  # not escaped, nor are letters, digits and "_.-"
_LEAF = re.compile(r"[0-9]{20}(-[0-9]{20})?")  # names of segments and generations: recognisable as files
_MAX_NAME = 200  # characters; a name in a file system has 255 bytes at most


def key_path(key: str) -> str:
    """The relative path of a key's file. Different keys have different paths, and no path is both a file and a folder.

    The last name gets "=" appended and folders do not; for names of 20 digits (or twice 20) it is the other way round.
    """
    folder, slash, name = key.rpartition("/")
    names = _escaped(name)
    last = names[-1] if len(names) == 1 and _LEAF.fullmatch(names[-1]) else f"{names[-1]}="
    return "/".join(([folder_path(folder)] if slash else []) + [*names[:-1], last])


def folder_path(folder: str) -> str:
    return "/".join(
        f"{part}=" if _LEAF.fullmatch(part) else part for name in folder.split("/") for part in _escaped(name)
    )


def path_key(parts: tuple[str, ...]) -> str | None:
    """Inverse of `key_path`, by the parts of a path; None when no key has this path."""
    names, text = [], ""
    for part in parts:
        text += part.rstrip("=+")
        if not part.endswith("+"):
            names.append("" if text == "%" else unquote(text, errors="replace"))
            text = ""
    key = "/".join(names)
    return key if key_path(key) == "/".join(parts) else None


def _escaped(name: str) -> list[str]:
    """The names in a path for one name in a key. All but the last end in "+", which no other name does."""
    text = quote(name, safe=_SAFE) or "%"
    names = [text[at : at + _MAX_NAME] for at in range(0, len(text), _MAX_NAME)]
    names = [f"%2E{part[1:]}" if part.startswith(".") else part for part in names]
    return [f"{part}+" for part in names[:-1]] + names[-1:]


# --- bodies ----------------------------------------------------------------------------------------------------------


def _read(key: str, body: BinaryIO, size_bytes: int) -> bytes:
    body.seek(0)
    data = body.read(size_bytes)
    if len(data) != size_bytes:
        raise ValueError(f"{key}: the body holds {len(data)} bytes, not {size_bytes}")
    return data


def _copy(key: str, body: BinaryIO, file: BinaryIO, size_bytes: int) -> None:
    body.seek(0)
    left = size_bytes
    while left:
        data = body.read(min(left, 1024 * 1024))
        if not data:
            raise ValueError(f"{key}: the body ends {left} bytes early, wanted {size_bytes}")
        file.write(data)
        left -= len(data)
