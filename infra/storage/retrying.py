"""Retry decorators for stores: the caller gets the result, or the last error.

Only TransientError is retried. Each retry logs one warning, `retry`; a metered store inside the decorator counts the
failed attempts. Once `Stop` is set, no call waits or is retried: the last error is raised at once.

    RetryingObjectStore(MeteredObjectStore(S3ObjectStore(…)))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from random import Random
from typing import BinaryIO

from formats.errors import TransientError
from infra.contracts.storage import ColdStore, ObjectInfo, ObjectStore, Thaw
from infra.runtime.lifecycle import Stop
from infra.runtime.retry import Retries, RetryPolicy


class RetryingObjectStore:
    """An `ObjectStore`. Reads of a file that `open` returned are not covered: they have retries of their own.

    A put whose answer was lost may have succeeded: the next attempt then raises SegmentExists, and the caller compares.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        stop: Stop,
        policy: RetryPolicy | None = None,
        random: Random | None = None,
        on_problem: Callable[[str, str | None], None] = lambda _operation, _reason: None,
    ) -> None:
        self._store = store
        self._retries = Retries(stop=stop, policy=policy, random=random, on_problem=on_problem)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """A failed listing continues after the last key it yielded."""
        last, given = start_after, 0

        def begin() -> tuple[ObjectInfo | None, Iterator[ObjectInfo]]:
            items = self._store.list(prefix, start_after=last, limit=None if limit is None else limit - given)
            return next(items, None), items

        while limit is None or given < limit:
            head, rest = self._retries.call("list", begin)
            if head is None:
                return
            yield head
            last, given = head.key, given + 1
            try:
                for item in rest:
                    yield item
                    last, given = item.key, given + 1
            except TransientError as error:
                # a key was yielded since the last failure: retry at once, and wait only if that fails, too
                self._retries.resume("list", error)
            else:
                return

    def folders(self, prefix: str) -> Sequence[str]:
        return self._retries.call("list", lambda: self._store.folders(prefix))

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        self._retries.call("put_new", lambda: self._store.put_new(key, body, size_bytes))

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        return self._retries.call("open", lambda: self._store.open(key, tail_bytes=tail_bytes))

    def stat(self, key: str) -> ObjectInfo | None:
        return self._retries.call("stat", lambda: self._store.stat(key))

    def delete_many(self, keys: Collection[str]) -> None:
        self._retries.call("delete_many", lambda: self._store.delete_many(keys))


class RetryingColdStore:
    """A `ColdStore`."""

    def __init__(self, store: ColdStore, *, stop: Stop, policy: RetryPolicy | None = None) -> None:
        self._store = store
        self._retries = Retries(stop=stop, policy=policy)

    def state(self, key: str) -> Thaw:
        return self._retries.call("state", lambda: self._store.state(key))

    def thaw(self, key: str, days: int) -> None:
        self._retries.call("thaw", lambda: self._store.thaw(key, days))
