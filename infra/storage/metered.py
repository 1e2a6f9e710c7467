"""Counts an object store's requests and errors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from formats.errors import TransientError
from infra.contracts.storage import ObjectInfo, ObjectStore
from infra.runtime.metrics import Metrics


class MeteredObjectStore:
    """An `ObjectStore`. Belongs inside the retry decorator, so that every attempt counts. Reads of an opened object
    are not counted; a listing counts once. Only TransientError counts as an error: an existing key and an absent object
    are regular results."""

    def __init__(self, store: ObjectStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        with self._counted("list"):
            yield from self._store.list(prefix, start_after=start_after, limit=limit)

    def folders(self, prefix: str) -> Sequence[str]:
        with self._counted("list"):
            return self._store.folders(prefix)

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        with self._counted("put_new"):
            self._store.put_new(key, body, size_bytes)

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        with self._counted("open"):
            return self._store.open(key, tail_bytes=tail_bytes)

    def stat(self, key: str) -> ObjectInfo | None:
        with self._counted("stat"):
            return self._store.stat(key)

    def delete_many(self, keys: Collection[str]) -> None:
        with self._counted("delete_many"):
            self._store.delete_many(keys)

    @contextmanager
    def _counted(self, operation: str) -> Iterator[None]:
        self._metrics.count("store_requests", operation=operation)
        try:
            yield
        except TransientError:
            self._metrics.count("store_errors", operation=operation)
            raise
