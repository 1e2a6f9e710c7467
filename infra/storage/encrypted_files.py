"""Files of encrypted objects: a body that is encrypted while it is stored, and an object that is decrypted while it is
read."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from infra.contracts.encryption import DataKey
from infra.storage.encryption_mark import read_fully
from infra.storage.envelope import (
    SALT_BYTES,
    TAG_BYTES,
    ChunkCipher,
    Envelope,
    EnvelopeDamaged,
    parse,
    trailer_bytes,
)
from infra.storage.seekable import SeekableBody, SeekableReader

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK_BYTES = 1024 * 1024  # encrypted at once for one large read
FETCH_BYTES = 8 * 1024 * 1024  # read at once for one large read


class EncryptingBody(SeekableBody):
    """`body`, encrypted: the bytes of the stored object. Holds up to BLOCK_BYTES. Not thread safe.

    It may be read again, as for another attempt. A body that has changed meanwhile is refused: a nonce encrypts one
    content only.
    """

    def __init__(self, body: BinaryIO, envelope: Envelope, cipher: ChunkCipher) -> None:
        self._trailer = envelope.trailer()
        self._chunks_bytes = envelope.chunks_bytes
        super().__init__(self._chunks_bytes + len(self._trailer))
        self._body, self._envelope, self._cipher = body, envelope, cipher
        self._stride = envelope.chunk_bytes + TAG_BYTES
        self._held_index = -1
        self._held = memoryview(b"")
        self._block = bytearray()  # used again: new memory costs more than to encrypt into it
        self._tags: dict[int, bytes] = {}

    def read(self, size: int | None = -1) -> bytes:
        left = max(len(self) - self._position, 0)
        left = left if size is None or size < 0 else min(size, left)
        parts: list[bytes] = []
        while left:
            if len(self._block) < min(left, BLOCK_BYTES):
                self._block = bytearray(min(left, BLOCK_BYTES))
            view = memoryview(self._block)[:left]
            self._fill(view)
            parts.append(bytes(view))
            left -= len(view)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")[: max(len(self) - self._position, 0)]
        self._fill(view)
        return len(view)

    def _fill(self, view: memoryview) -> None:
        """Fill it from the current position on, which has as many bytes behind it."""
        done = 0
        while done < len(view):
            index, at = divmod(self._position, self._stride)
            stored = self._stored_bytes(index)
            if self._position >= self._chunks_bytes:
                start = self._position - self._chunks_bytes
                part = memoryview(self._trailer)[start : start + len(view) - done]
                view[done : done + len(part)] = part
            elif not at and stored <= len(view) - done:
                part = view[done : done + stored]
                self._encrypt(index, part)
            else:
                part = self._hold(index)[at : at + len(view) - done]
                view[done : done + len(part)] = part
            done += len(part)
            self._position += len(part)

    def _hold(self, index: int) -> memoryview:
        if index != self._held_index:
            self._held_index = -1
            self._held = memoryview(bytearray(self._stored_bytes(index)))
            self._encrypt(index, self._held)
            self._held_index = index
        return self._held

    def _stored_bytes(self, index: int) -> int:
        return self._envelope.length(index) + TAG_BYTES

    def _encrypt(self, index: int, stored: memoryview) -> None:
        length = self._envelope.length(index)
        self._body.seek(index * self._envelope.chunk_bytes)
        content = read_fully(self._body, length)
        if len(content) != length:
            raise ValueError(f"the body ends {length - len(content)} bytes early, in chunk {index}")
        self._cipher.encrypt_into(index, content, stored)
        tag = bytes(stored[-TAG_BYTES:])
        if self._tags.setdefault(index, tag) != tag:
            stored[:] = bytes(len(stored))  # nothing of it leaves
            raise ValueError(f"the body changed while it was stored, in chunk {index}")


class DecryptedObject(SeekableReader):
    """The content of an encrypted object. Owns `file`. Not thread safe; `io.BufferedReader` around it is.

    A large read fetches its chunks at once and decrypts them into the caller's buffer. The last chunk of which a part
    was read is held.
    """

    def __init__(
        self,
        file: BinaryIO,
        envelope: Envelope,
        cipher: ChunkCipher,
        damaged: Callable[[EnvelopeDamaged], Exception],
    ) -> None:
        """`damaged`: the error to raise in place of EnvelopeDamaged."""
        super().__init__(envelope.content_bytes)
        self._file, self._envelope, self._cipher, self._damaged = file, envelope, cipher, damaged
        # of a file in memory, the bytes that it has: nothing is copied
        self._whole = memoryview(file.getvalue()) if isinstance(file, io.BytesIO) else None
        self._fetched = bytearray()  # used again: new memory costs more than to decrypt into it
        self._held_index = -1
        self._held = memoryview(b"")

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fills `buffer`, or less at the end of the content or of what is fetched at once."""
        self._check_open()
        view = memoryview(buffer).cast("B")
        view = view[: max(min(len(view), self._size_bytes - self._position), 0)]
        if not view:
            return 0
        try:
            count = self._read_some(view)
        except EnvelopeDamaged as error:
            raise self._damaged(error) from error
        self._position += count
        return count

    def verify(self) -> None:
        """Decrypt the first chunk: with one chunk, that proves the whole object."""
        try:
            self._hold(0)
        except EnvelopeDamaged as error:
            raise self._damaged(error) from error

    def close(self) -> None:
        if not self.closed:
            self._held, self._whole, self._fetched = memoryview(b""), None, bytearray()
            self._file.close()
        super().close()

    def _read_some(self, view: memoryview) -> int:
        size = self._envelope.chunk_bytes
        index, at = divmod(self._position, size)
        whole = 0  # chunks that fit into the buffer as they are
        if at == 0:
            while whole * size < min(len(view), FETCH_BYTES) and self._fits(index + whole, len(view) - whole * size):
                whole += 1
        if not whole:
            held = self._hold(index)[at : at + len(view)]
            view[: len(held)] = held
            return len(held)
        start = self._envelope.position(index)
        last = index + whole - 1
        stored = self._fetch(start, self._envelope.position(last) + self._envelope.length(last) + TAG_BYTES - start)
        done = 0
        for one in range(index, index + whole):
            length = self._envelope.length(one)
            begin = self._envelope.position(one) - start
            self._cipher.decrypt_into(one, stored[begin : begin + length + TAG_BYTES], view[done : done + length])
            done += length
        return done

    def _fits(self, index: int, room: int) -> bool:
        return index < self._envelope.chunks and 0 < self._envelope.length(index) <= room

    def _hold(self, index: int) -> memoryview:
        if index != self._held_index:
            length = self._envelope.length(index)
            stored = self._fetch(self._envelope.position(index), length + TAG_BYTES)
            content = memoryview(bytearray(length))
            self._cipher.decrypt_into(index, stored, content)
            self._held, self._held_index = content, index
        return self._held

    def _fetch(self, start: int, length: int) -> memoryview:
        """Valid until the next call."""
        if self._whole is not None:
            return self._whole[start : start + length]
        if len(self._fetched) < length:
            self._fetched = bytearray(length)
        view, done = memoryview(self._fetched)[:length], 0
        self._file.seek(start)
        while done < length:
            count = self._into(view[done:])
            if not count:
                raise EnvelopeDamaged(f"its end at byte {start + done}", f"{length - done} bytes more")
            done += count
        return view

    def _into(self, view: memoryview) -> int:
        count: int = self._file.readinto(view)  # type: ignore[attr-defined]  # every file that a store opens has it
        return count


def read_envelope(file: BinaryIO, tail: bytes, object_bytes: int) -> Envelope:
    """The envelope of a marked object, whose last bytes are `tail`. Raises EnvelopeDamaged."""
    length = trailer_bytes(tail)
    if length > object_bytes:
        raise EnvelopeDamaged(f"{object_bytes} bytes", f"a trailer of {length}")
    if length > len(tail):
        file.seek(object_bytes - length)
        tail = read_fully(file, length)
    return parse(tail[-length:], object_bytes)


def encrypting(body: BinaryIO, size_bytes: int, data_key: DataKey, name: str) -> EncryptingBody:
    """`size_bytes` of `body`, encrypted for the object `name`."""
    envelope = Envelope(
        key_id=data_key.key_id, wrapped=data_key.wrapped, salt=os.urandom(SALT_BYTES), content_bytes=size_bytes
    )
    return EncryptingBody(body, envelope, ChunkCipher(envelope, data_key.secret, name))
