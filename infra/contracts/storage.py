"""Object stores and notification queues: results for absent objects, and errors."""

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
    replication: str = ""  # S3's replication status, from `stat` only; empty: not replicated
    storage_class: str = ""  # S3's storage class, from `list` only; empty: the default
    # of the whole content, by algorithm; from `stat`, if the store has them
    checksums: tuple[tuple[str, str], ...] = ()
    encryption: str = ""  # S3's algorithm of encryption at rest, from `stat` only


class ObjectStore(Protocol):
    """Objects, written once. Safe to call from several threads. Raises StoreUnavailable when a retry may succeed."""

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """Objects whose key begins with `prefix` and is greater than `start_after`, in key order. With `limit`, only
        the first `limit` of them, so that the store need not send more."""

    def folders(self, prefix: str) -> Sequence[str]:
        """The names between `prefix` and the next "/" of every key that has one there (S3's common prefixes), each
        once, in key order. Objects that lie at `prefix` itself are left out. Of a bucket with versions, some servers
        (MinIO, SeaweedFS) also name folders whose objects are all deleted: a caller has to do without an object."""

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        """Put the object whole, or not at all, in one atomic step. Reads `body` from its start (it is seekable).
        Raises SegmentExists, and changes nothing, when the key is taken."""

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        """Open a seekable file over one version of the object, even if it is replaced meanwhile; the caller closes it.
        `tail_bytes`: the caller probably reads no more than these last bytes, so that no others are fetched before they
        are read; None: it reads all. Raises SegmentNotFound."""

    def stat(self, key: str) -> ObjectInfo | None:
        """None when, and only when, the store reports that there is no object at the key."""

    def delete_many(self, keys: Collection[str]) -> None:
        """Absent objects are no error; after an exception any part of them may be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadInfo:
    """An incomplete multipart upload: its parts are stored, but no listing of objects shows them."""

    key: str
    upload_id: str
    initiated_at: datetime  # UTC, by the store's clock


class UploadStore(Protocol):
    """Multipart uploads neither completed nor aborted. Raises StoreUnavailable when a retry may succeed."""

    def list(self, prefix: str) -> Iterator[UploadInfo]:
        """Uploads to keys that begin with `prefix`, in any order."""

    def abort(self, upload: UploadInfo) -> None:
        """An absent upload is no error. A process that still works on it fails and starts again."""


class Thaw(Enum):
    FROZEN = "frozen"
    UNDER_WAY = "under way"
    READABLE = "readable"


class ColdStore(Protocol):
    """Objects in storage classes that cannot be read at once. Raises StoreUnavailable, SegmentNotFound."""

    def state(self, key: str) -> Thaw:
        """State of an object with a storage class in `segment.FROZEN_CLASSES`."""

    def thaw(self, key: str, days: int) -> None:
        """Request a readable copy, which is available after some hours, for `days` days. Repeating this is harmless."""


class NotificationQueue(Protocol):
    """S3 event notifications. Safe to call from several threads. Raises QueueUnavailable."""

    def receive(self, wait: timedelta) -> Sequence[QueueMessage]:
        """Up to ten messages; empty after `wait` without one."""

    def delete(self, messages: Iterable[QueueMessage]) -> None:
        """Delete messages that are done; deleting twice is harmless."""
