"""The envelope of an encrypted object: its bytes, and the cipher of its chunks. docs/formats.md has the layout.

    chunk 0 ‖ tag │ chunk 1 ‖ tag │ … │ last chunk ‖ tag │ trailer: key id, wrapped data key, salt, sizes, CRC, mark

The trailer is at the end, where a Parquet reader reads first: no request is made for it alone, and an object without
its mark is in clear. Every chunk is authenticated together with the object's name below the prefix, the whole trailer,
the chunk's index, and whether it is the last one. So a chunk cannot be moved, left out or replaced, nor an object be
cut or exchanged for another; and an object may be copied to another bucket, and to another prefix.

The key of an object is derived from the data key and a random salt. It encrypts the chunks of one body, each under its
index as nonce.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from infra.storage.encryption_mark import CHUNK_BYTES, MARK

VERSION = 1
TAG_BYTES = 16
SALT_BYTES = 32
MAX_CHUNK_BYTES = 16 * 1024 * 1024  # more is a damaged length

_FIXED = struct.Struct(
    "<32sQIHHHI8s"
)  # salt, content bytes, chunk bytes, key id bytes, wrapped bytes, version, CRC, mark
_CRC_AT = _FIXED.size - 12
_LABEL = b"kafka-segment-replicator object 1"


class EnvelopeDamaged(Exception):
    """The bytes are no envelope that was written. `found` and `wanted` complete an error message."""

    def __init__(self, found: str, wanted: str) -> None:
        self.found, self.wanted = found, wanted
        super().__init__(f"found {found}, wanted {wanted}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What the trailer says."""

    key_id: str
    wrapped: bytes
    salt: bytes
    content_bytes: int
    chunk_bytes: int = CHUNK_BYTES

    @property
    def chunks(self) -> int:
        """At least one: an empty object is authenticated, too."""
        return max(-(-self.content_bytes // self.chunk_bytes), 1)

    @property
    def chunks_bytes(self) -> int:
        """Length of all chunks as stored: the trailer's position."""
        return self.content_bytes + self.chunks * TAG_BYTES

    def length(self, index: int) -> int:
        """Bytes of content in a chunk."""
        return min(self.chunk_bytes, self.content_bytes - index * self.chunk_bytes)

    def position(self, index: int) -> int:
        """Where a chunk begins in the stored object."""
        return index * (self.chunk_bytes + TAG_BYTES)

    def trailer(self) -> bytes:
        key_id = self.key_id.encode()
        fixed = _FIXED.pack(
            self.salt, self.content_bytes, self.chunk_bytes, len(key_id), len(self.wrapped), VERSION, 0, MARK
        )
        head = key_id + self.wrapped + fixed[:_CRC_AT]
        return head + struct.pack("<I", zlib.crc32(head)) + MARK


def trailer_bytes(tail: bytes) -> int:
    """Length of the trailer of a marked object, by its last bytes. Raises EnvelopeDamaged."""
    if len(tail) < _FIXED.size:
        raise EnvelopeDamaged(f"{len(tail)} bytes", f"a trailer of at least {_FIXED.size}")
    _, _, _, key_id_bytes, wrapped_bytes, version, _, _ = _FIXED.unpack(tail[-_FIXED.size :])
    if version != VERSION:
        raise EnvelopeDamaged(f"encryption version {version}", f"version {VERSION}; upgrade to read it")
    return _FIXED.size + int(key_id_bytes) + int(wrapped_bytes)


def parse(trailer: bytes, object_bytes: int) -> Envelope:
    """Inverse of `trailer`. `object_bytes`: length of the whole object. Raises EnvelopeDamaged."""
    salt, content_bytes, chunk_bytes, key_id_bytes, _, _, crc, _ = _FIXED.unpack(trailer[-_FIXED.size :])
    if (found := zlib.crc32(trailer[:-12])) != crc:
        raise EnvelopeDamaged(f"a trailer with CRC {found:08x}", f"{crc:08x}")
    try:
        key_id = trailer[:key_id_bytes].decode()
    except UnicodeDecodeError as error:
        raise EnvelopeDamaged("a key id that is no text", "UTF-8") from error
    if not 0 < chunk_bytes <= MAX_CHUNK_BYTES:
        raise EnvelopeDamaged(f"chunks of {chunk_bytes} bytes", f"1 to {MAX_CHUNK_BYTES}")
    envelope = Envelope(
        key_id=key_id,
        wrapped=trailer[key_id_bytes : -_FIXED.size],
        salt=salt,
        content_bytes=content_bytes,
        chunk_bytes=chunk_bytes,
    )
    if (wanted := envelope.chunks_bytes + len(trailer)) != object_bytes:
        raise EnvelopeDamaged(f"{object_bytes} bytes", f"{wanted}, by its trailer")
    return envelope


class ChunkCipher:
    """Encrypts and decrypts the chunks of one object. Thread safe."""

    def __init__(self, envelope: Envelope, data_key: bytes, name: str) -> None:
        """`name`: the object's key below the prefix."""
        self._last = envelope.chunks - 1
        self._aes = AESGCM(HKDF(algorithm=SHA256(), length=32, salt=envelope.salt, info=_LABEL).derive(data_key))
        text = name.encode()
        self._context = hashlib.sha256(_LABEL + struct.pack("<I", len(text)) + text + envelope.trailer()).digest()

    def encrypt_into(self, index: int, content: bytes, stored: memoryview) -> None:
        """Fill `stored`, which has the length of the content and the tag. Call it once for an index, or again with the
        same content."""
        self._aes.encrypt_into(_nonce(index), content, self._associated(index), stored)

    def decrypt_into(self, index: int, stored: memoryview, content: memoryview) -> None:
        """Fill `content`, which has the chunk's length. Raises EnvelopeDamaged."""
        try:
            self._aes.decrypt_into(_nonce(index), stored, self._associated(index), content)
        except InvalidTag as error:
            raise EnvelopeDamaged(
                f"chunk {index} of {self._last + 1}, which its key does not open",
                "what was encrypted for this object's key",
            ) from error

    def _associated(self, index: int) -> bytes:
        return self._context + struct.pack("<Q?", index, index == self._last)


def _nonce(index: int) -> bytes:
    return struct.pack("<4xQ", index)
