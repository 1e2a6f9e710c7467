"""Keys of encrypted objects, and stores whose objects are encrypted in the store below."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import BinaryIO, Protocol, runtime_checkable

from infra.contracts.storage import ObjectStore

DATA_KEY_BYTES = 32  # AES-256


def is_of_kms(algorithm: str) -> bool:
    """Whether S3's encryption at rest by this algorithm, "aws:kms" or "aws:kms:dsse", needs a KMS key."""
    return algorithm.startswith("aws:kms")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataKey:
    """A key that encrypts objects. It is stored with them, wrapped by another key."""

    key_id: str  # of the key that wrapped it
    wrapped: bytes
    secret: bytes = field(repr=False)


class KeyProvider(Protocol):
    """Wraps data keys. Safe to call from several threads. `region`: of the archive, which only the same region unwraps
    where the provider can bind it. Raises KeyRefused, and StoreUnavailable when a retry may succeed."""

    def create(self, region: str, *, is_shared: bool = False) -> DataKey:
        """A data key for one object; with `is_shared`, it may be that of other objects, too."""

    def unwrap(self, key_id: str, wrapped: bytes, region: str) -> bytes:
        """The data key. `key_id`: of the key that wrapped it, as the object says it."""


@runtime_checkable
class EncryptedObjects(Protocol):
    """An ObjectStore whose objects are encrypted in the store below."""

    @property
    def as_stored(self) -> ObjectStore:
        """The store below."""

    def decrypted(self, key: str, file: BinaryIO) -> BinaryIO:
        """The content of `file`, which holds the bytes of an object as stored at `key`. Owns `file`, and closes it if
        this raises."""

    def put_copy(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        """Put the bytes of an object as a copy has them: unchanged if they are encrypted, else encrypted here."""


def as_stored(objects: ObjectStore) -> ObjectStore:
    """The same objects as the bytes that are stored: for copies and comparisons, which need no key."""
    return objects.as_stored if isinstance(objects, EncryptedObjects) else objects


def decrypted(objects: ObjectStore, key: str, file: BinaryIO) -> BinaryIO:
    """The content of `file`, which holds the bytes of an object as stored at `key` of `objects` or of a copy."""
    return objects.decrypted(key, file) if isinstance(objects, EncryptedObjects) else file


def put_copy(objects: ObjectStore, key: str, body: BinaryIO, size_bytes: int) -> None:
    """As `put_new`, of the bytes that are stored in a copy."""
    if isinstance(objects, EncryptedObjects):
        objects.put_copy(key, body, size_bytes)
    else:
        objects.put_new(key, body, size_bytes)
