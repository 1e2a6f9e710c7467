"""Object stores and notification queues: what absent means, and what is raised."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import BinaryIO, Protocol

from formats.messages.segment_events import QueueMessage


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    key: str
    size_bytes: int
    modified_at: datetime  # UTC, by the store's clock
    etag: str = ""
    replication: str = ""  # S3's word for the state of its own copying, from `stat` only; empty: it does none
    storage_class: str = ""  # S3's word, from `list` only; empty: the usual one
    checksums: tuple[
        tuple[str, str], ...
    ] = ()  # of the whole content, by algorithm; from `stat`, where the store has it


class ObjectStore(Protocol):
    """Named bytes, written once. Safe to call from several threads. Raises StoreUnavailable when it may work later."""

    def list(self, prefix: str, *, start_after: str = "", most: int | None = None) -> Iterator[ObjectInfo]:
        """Objects whose key begins with `prefix` and is greater than `start_after`, in key order; the first `most` of
        them, for which the store need not send more."""

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        """Put the object whole, or not at all, in one atomic step. Reads `body` from its start (it is seekable).
        Raises SegmentExists, and changes nothing, when the key is taken."""

    def open(self, key: str) -> BinaryIO:
        """Seekable, one version of the object even if it is replaced meanwhile; the caller closes it.
        Raises SegmentNotFound."""

    def stat(self, key: str) -> ObjectInfo | None:
        """None when, and only when, the store says that the key holds nothing."""

    def delete_many(self, keys: Collection[str]) -> None:
        """Absent ones are no error; after an exception any part of them may be gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadInfo:
    """An upload in parts that was begun: the parts are stored, and no listing of objects shows them."""

    key: str
    upload_id: str
    begun_at: datetime  # UTC, by the store's clock


class UploadStore(Protocol):
    """Uploads that were neither completed nor aborted. Raises StoreUnavailable when it may work later."""

    def list(self, prefix: str) -> Iterator[UploadInfo]:
        """Those of keys that begin with `prefix`, in any order."""

    def abort(self, upload: UploadInfo) -> None:
        """An absent one is no error. Whoever still works on it fails, and begins anew."""


class Thaw(Enum):
    FROZEN = "frozen"
    UNDER_WAY = "under way"
    READABLE = "readable"


class ColdStore(Protocol):
    """Objects that are stored where they cannot be read at once. Raises StoreUnavailable, SegmentNotFound."""

    def state(self, key: str) -> Thaw:
        """Of an object of a class in `segment.FROZEN_CLASSES`."""

    def thaw(self, key: str, days: int) -> None:
        """Ask for a copy that can be read, in some hours and for so many days. Asking again is harmless."""


class NotificationQueue(Protocol):
    """S3 event notifications. Safe to call from several threads. Raises QueueUnavailable."""

    def receive(self, wait: timedelta) -> Sequence[QueueMessage]:
        """Up to ten; empty after `wait` without one."""

    def delete(self, messages: Iterable[QueueMessage]) -> None:
        """They are done; deleting twice is harmless."""
