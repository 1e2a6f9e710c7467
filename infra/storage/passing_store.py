"""An object store around another that changes nothing: decorators override what is theirs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import BinaryIO

from infra.contracts.storage import ObjectInfo, ObjectStore


class PassingObjectStore:
    """An `ObjectStore`. Each call goes to the store below as it is."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        self._store.put_new(key, body, size_bytes)

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        return self._store.open(key, tail_bytes=tail_bytes)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        return self._store.list(prefix, start_after=start_after, limit=limit)

    def folders(self, prefix: str) -> Sequence[str]:
        return self._store.folders(prefix)

    def stat(self, key: str) -> ObjectInfo | None:
        return self._store.stat(key)

    def delete_many(self, keys: Collection[str]) -> None:
        self._store.delete_many(keys)
