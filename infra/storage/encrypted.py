"""Encrypted objects: an ObjectStore around another.

    put_new   data key ── body, encrypted chunk by chunk while it is sent ── the store below
    open      the store below ── a mark at the end? ── no: in clear │ yes: data key, chunks decrypted as they are read

Names, sizes and times of objects are those of the store below: `size_bytes` is that of the encrypted object. It belongs
around the retry decorator: each attempt of a put sends the same bytes.
"""

from __future__ import annotations

# ruff: noqa: PLC0415  -- ciphers are imported when an object is encrypted: a worker without encryption may lack them
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, cast

from formats.control.keys import is_control_key
from formats.errors import CorruptSegment, KeyRefused, KeyUnavailable, MalformedEvent, StoreUnavailable
from infra.contracts.encryption import KeyProvider
from infra.contracts.storage import ObjectStore
from infra.storage.encryption_mark import CHUNK_BYTES, TAIL_BYTES, is_marked, tail_of
from infra.storage.passing_store import PassingObjectStore

if TYPE_CHECKING:
    from infra.storage.envelope import EnvelopeDamaged

BUFFER_BYTES = 64 * 1024  # of the buffered reader, for small reads


class EncryptedObjectStore(PassingObjectStore):
    """An `ObjectStore`. With a provider, every object that it puts is encrypted; one that is in clear can be read.

    Opening raises KeyRefused when the key is missing or wrong, and for an object in clear with `refuses_clear`. Opening
    and reading a damaged segment raise CorruptSegment, and a damaged control object MalformedEvent.
    """

    def __init__(
        self, store: ObjectStore, prefix: str, keys: KeyProvider | None, *, refuses_clear: bool = False
    ) -> None:
        """`prefix`: of the archive; an object's name below it is bound to its content. Without `keys`, objects are put
        in clear, and an encrypted one is an error."""
        super().__init__(store)
        self._prefix, self._keys = prefix, keys
        self._head = f"{prefix}/" if prefix else ""
        self._refuses_clear = refuses_clear

    @property
    def as_stored(self) -> ObjectStore:
        return self._store

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        if self._keys is None:
            self._store.put_new(key, body, size_bytes)
            return
        if (available := body.seek(0, io.SEEK_END)) < size_bytes:
            raise ValueError(f"{key}: the body holds {available} bytes, not {size_bytes}")
        from infra.storage.encrypted_files import encrypting

        name = self._name(key)
        data_key = self._keys.create(_region(name), is_shared=is_control_key(self._prefix, key))
        sealed = encrypting(body, size_bytes, data_key, name)
        self._store.put_new(key, cast(BinaryIO, sealed), len(sealed))

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        if tail_bytes is not None:  # the chunk that they begin in, and what follows the last one
            tail_bytes += CHUNK_BYTES + TAIL_BYTES
        return self.decrypted(key, self._store.open(key, tail_bytes=tail_bytes))

    def decrypted(self, key: str, file: BinaryIO) -> BinaryIO:
        """See `EncryptedObjects`."""
        try:
            tail, object_bytes = tail_of(file)
            if is_marked(tail):
                return self._decrypting(key, file, tail, object_bytes)
            if self._refuses_clear:
                raise KeyRefused(
                    f'{key} is not encrypted, or was cut, and encryption.clear_objects is "refuse": find out who '
                    'wrote it; "read" accepts objects from before they were encrypted, and lets repair-segment '
                    "replace it"
                )
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file

    def put_copy(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        """See `EncryptedObjects`."""
        tail, available = tail_of(body)
        if available == size_bytes and is_marked(tail):
            self._store.put_new(key, body, size_bytes)
        else:
            self.put_new(key, body, size_bytes)

    def _decrypting(self, key: str, file: BinaryIO, tail: bytes, object_bytes: int) -> BinaryIO:
        from infra.storage.encrypted_files import DecryptedObject, read_envelope
        from infra.storage.envelope import ChunkCipher, EnvelopeDamaged

        try:
            envelope = read_envelope(file, tail, object_bytes)
        except EnvelopeDamaged as error:
            raise self._damaged(key, error) from error
        if self._keys is None:
            raise KeyRefused(
                f"{key} is encrypted with the key {envelope.key_id!r}, and the configuration has no [encryption]: add "
                "the section with that key"
            )
        name = self._name(key)
        try:
            secret = self._keys.unwrap(envelope.key_id, envelope.wrapped, _region(name))
        except KeyRefused as error:
            raise KeyRefused(f"{key}: {error}") from error
        except StoreUnavailable as error:
            raise KeyUnavailable(f"{key}: {error}") from error
        cipher = ChunkCipher(envelope, secret, name)
        raw = DecryptedObject(file, envelope, cipher, lambda error: self._damaged(key, error))
        if envelope.content_bytes == 0:
            raw.verify()  # there is nothing to read that would do it
        return cast(BinaryIO, io.BufferedReader(raw, BUFFER_BYTES))

    def _damaged(self, key: str, error: EnvelopeDamaged) -> CorruptSegment | MalformedEvent:
        """As the reader of the content would call it."""
        if is_control_key(self._prefix, key):
            return MalformedEvent(f"{key}: {error}")
        return CorruptSegment(self._name(key), found=error.found, wanted=error.wanted)

    def _name(self, key: str) -> str:
        """The key below the prefix: it is the same in every copy of the archive."""
        return key.removeprefix(self._head)


def _region(name: str) -> str:
    return name.partition("/")[0]


class SealedOnlyStore(PassingObjectStore):
    """An `ObjectStore` that puts encrypted objects only: for copies of objects as they are stored."""

    def __init__(self, store: ObjectStore, on_refused: Callable[[str], None]) -> None:
        """`on_refused`: called with the key before KeyRefused is raised, on the thread of the put."""
        super().__init__(store)
        self._on_refused = on_refused

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        tail, available = tail_of(body)
        if available != size_bytes or not is_marked(tail):
            self._on_refused(key)
            raise KeyRefused(
                f'{key} is not encrypted, and encryption.clear_objects is "refuse": it is not copied; "read" copies '
                "objects from before they were encrypted, too"
            )
        self._store.put_new(key, body, size_bytes)
