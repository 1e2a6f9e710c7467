"""The bytes of encrypted objects: read anywhere, changed anywhere, and their nonces."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.keywrap import aes_key_unwrap
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.contracts.encryption import DataKey
from infra.storage import envelope as envelopes
from infra.storage.encrypted_files import DecryptedObject, EncryptingBody, encrypting, read_envelope
from infra.storage.encryption_mark import MARK, tail_of
from infra.storage.envelope import ChunkCipher, Envelope, EnvelopeDamaged

NAME = "eu-west-1/orders/0/0/00000000000000000000-00000000000000000099"
SECRET = bytes(range(32))
GOLDEN = Path(__file__).parents[2] / "golden" / "encryption" / "v1"
SMALL = 16  # chunk size at which short objects have many chunks


def envelope_of(content: bytes, chunk_bytes: int = SMALL, salt: bytes = b"s" * 32) -> Envelope:
    return Envelope(key_id="k1", wrapped=b"w" * 40, salt=salt, content_bytes=len(content), chunk_bytes=chunk_bytes)


def body_of(content: bytes, envelope: Envelope, name: str = NAME, secret: bytes = SECRET) -> EncryptingBody:
    return EncryptingBody(BytesIO(content), envelope, ChunkCipher(envelope, secret, name))


def stored(content: bytes, **options: Any) -> bytes:
    return body_of(content, envelope_of(content, **options)).read()


def opened(data: bytes, name: str = NAME, secret: bytes = SECRET) -> DecryptedObject:
    file = BytesIO(data)
    tail, size = tail_of(file)
    envelope = read_envelope(file, tail, size)
    return DecryptedObject(file, envelope, ChunkCipher(envelope, secret, name), lambda error: error)


contents = st.binary(max_size=5 * SMALL + 3)


@given(contents, st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)), max_size=8), st.integers(1, 40))
def test_it_is_read_anywhere_as_its_content_is(content: bytes, reads: list[tuple[int, int]], chunk_bytes: int) -> None:
    raw = opened(stored(content, chunk_bytes=chunk_bytes))
    file, wanted = io.BufferedReader(raw, 7), BytesIO(content)
    for start, length in reads:
        assert file.seek(start) == wanted.seek(start)
        assert file.read(length) == wanted.read(length)
    file.seek(0)
    assert file.read() == content
    assert file.seek(0, io.SEEK_END) == len(content)


@given(contents, st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=8))
def test_what_is_sent_is_the_same_in_each_attempt(content: bytes, reads: list[tuple[int, int]]) -> None:
    body = body_of(content, envelope_of(content))
    whole = body.read()
    assert len(body) == len(whole) == envelope_of(content).chunks_bytes + len(envelope_of(content).trailer())
    for start, length in reads:
        body.seek(start)
        assert body.read(length) == whole[start : start + length]


class Recorded:
    """AES-GCM, and all that is encrypted with it."""

    calls: list[tuple[bytes, bytes, bytes, bytes]] = []  # noqa: RUF012  # key, nonce, content, associated data

    def __init__(self, key: bytes) -> None:
        self._key, self._aes = key, AESGCM(key)

    def encrypt_into(self, nonce: bytes, content: bytes, associated: bytes, stored: memoryview) -> int:
        self.calls.append((self._key, nonce, content, associated))
        return self._aes.encrypt_into(nonce, content, associated, stored)


put = st.tuples(contents, st.booleans(), st.lists(st.tuples(st.integers(0, 200), st.integers(1, 200)), max_size=5))


@given(st.lists(put, min_size=1, max_size=6))
def test_no_nonce_is_used_twice_under_a_key(
    puts: list[tuple[bytes, bool, list[tuple[int, int]]]],
) -> None:
    """Whatever is put, with a data key of its own or a shared one, and however often a body is read again: one key and
    nonce encrypt one content. The key of an object is derived from the data key and its salt."""
    Recorded.calls = []
    shared = DataKey(key_id="k1", wrapped=b"w" * 40, secret=SECRET)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelopes, "AESGCM", Recorded)
        patch.setattr("infra.storage.encrypted_files.Envelope", partial(Envelope, chunk_bytes=SMALL))
        for number, (content, is_shared, reads) in enumerate(puts):
            key = shared if is_shared else DataKey(key_id="k1", wrapped=b"w" * 40, secret=bytes([number]) * 32)
            body = encrypting(BytesIO(content), len(content), key, f"{NAME}{number}")
            body.read()
            for start, length in reads:
                body.seek(start)
                body.read(length)
    by_nonce: dict[tuple[bytes, bytes], set[tuple[bytes, bytes]]] = {}
    for key_bytes, nonce, text, associated in Recorded.calls:
        by_nonce.setdefault((key_bytes, nonce), set()).add((text, associated))
    assert all(len(found) == 1 for found in by_nonce.values())
    assert len({key_bytes for key_bytes, *_ in Recorded.calls}) == len(puts)


def test_a_body_that_changes_between_attempts_is_refused() -> None:
    body = BytesIO(b"a" * 40)
    envelope = envelope_of(body.getvalue())
    sealed = EncryptingBody(body, envelope, ChunkCipher(envelope, SECRET, NAME))
    before = sealed.read()
    body.getbuffer()[20] ^= 1
    sealed.seek(0)
    with pytest.raises(ValueError, match="changed while it was stored, in chunk 1"):
        sealed.read()
    body.getbuffer()[20] ^= 1
    sealed.seek(0)
    assert sealed.read() == before


CONTENT = bytes(range(5 * SMALL + 3))
CHUNK = SMALL + envelopes.TAG_BYTES


def _moved(data: bytes, *order: int) -> bytes:
    chunks = [data[at : at + CHUNK] for at in range(0, envelope_of(CONTENT).chunks_bytes, CHUNK)]
    return b"".join(chunks[one] for one in order) + data[envelope_of(CONTENT).chunks_bytes :]


def _resized(data: bytes, content_bytes: int) -> bytes:
    """The object cut after some chunks, with a trailer that says so."""
    facts = envelope_of(CONTENT[:content_bytes])
    return data[: facts.chunks_bytes] + facts.trailer()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: _moved(data, 1, 0, 2, 3, 4, 5), id="reordered"),
        pytest.param(lambda data: _moved(data, 0, 0, 2, 3, 4, 5), id="repeated"),
        pytest.param(lambda data: _moved(data, 0, 1, 2, 3, 5), id="left out"),
        pytest.param(lambda data: _resized(data, 3 * SMALL), id="cut, by its trailer"),
        pytest.param(lambda data: data[:5] + data[6:], id="a byte less"),
        pytest.param(lambda data: b"x" + data, id="a byte more"),
        pytest.param(
            lambda data: _moved(stored(CONTENT, salt=b"t" * 32), 0, 1, 2, 3, 4, 5)[:CHUNK] + data[CHUNK:], id="other"
        ),
    ],
)
def test_chunks_cannot_be_moved_left_out_or_exchanged(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(EnvelopeDamaged):
        opened(damage(stored(CONTENT))).readall()


def test_an_object_cannot_take_the_place_of_another() -> None:
    data = stored(CONTENT)
    with pytest.raises(EnvelopeDamaged, match="chunk 0 of 6"):
        opened(data, name=NAME.replace("orders", "border")).readall()
    with pytest.raises(EnvelopeDamaged, match="chunk 0 of 6"):
        opened(data, secret=bytes(32)).readall()


def test_a_trailer_cannot_take_the_place_of_another() -> None:
    """Its checksum is for damage; anyone can compute it."""
    data, envelope = stored(CONTENT), envelope_of(CONTENT)
    for other in (replace(envelope, key_id="k2"), replace(envelope, wrapped=b"v" * 40)):
        with pytest.raises(EnvelopeDamaged, match="chunk 0 of 6"):
            opened(data[: envelope.chunks_bytes] + other.trailer()).readall()


def test_a_flip_anywhere_is_found() -> None:
    data = stored(CONTENT)
    for at in range(len(data) - len(MARK)):
        for bit in (0x01, 0x80):
            damaged = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
            with pytest.raises(EnvelopeDamaged):
                opened(damaged).readall()


def test_an_empty_object_is_proven_by_its_only_tag() -> None:
    data = stored(b"")
    opened(data).verify()
    with pytest.raises(EnvelopeDamaged):
        opened(bytes([data[0] ^ 1]) + data[1:]).verify()


def test_a_newer_version_says_so() -> None:
    data = bytearray(stored(b"x"))
    struct.pack_into("<H", data, len(data) - 14, 2)
    with pytest.raises(EnvelopeDamaged, match="encryption version 2, wanted version 1; upgrade"):
        opened(bytes(data))


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_before_the_mark_are_damage(data: bytes) -> None:
    with pytest.raises(EnvelopeDamaged):
        opened(data + MARK).readall()


# --- the page ---


def by_the_page(data: bytes, keys: dict[str, str], name: str) -> bytes:
    """A reader written from docs/formats.md alone."""
    salt, size, chunk, key_id_bytes, wrapped_bytes, version, crc, mark = struct.unpack("<32sQIHHHI8s", data[-62:])
    assert (mark, version) == (b"KSRCRYPT", 1)
    trailer = data[-62 - key_id_bytes - wrapped_bytes :]
    assert zlib.crc32(trailer[:-12]) == crc
    key_id = trailer[:key_id_bytes].decode()
    data_key = aes_key_unwrap(base64.b64decode(keys[key_id]), trailer[key_id_bytes : key_id_bytes + wrapped_bytes])
    label = b"kafka-segment-replicator object 1"
    aes = AESGCM(HKDF(algorithm=SHA256(), length=32, salt=salt, info=label).derive(data_key))
    bound = hashlib.sha256(label + struct.pack("<I", len(name.encode())) + name.encode() + trailer).digest()
    count = max(-(-size // chunk), 1)
    content = b""
    for index in range(count):
        start = index * (chunk + 16)
        length = min(chunk, size - index * chunk) + 16
        associated = bound + struct.pack("<QB", index, index == count - 1)
        content += aes.decrypt(struct.pack("<IQ", 0, index), data[start : start + length], associated)
    return content


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.object")), ids=lambda path: cast(Path, path).stem)
def test_golden_objects_are_what_the_page_says(path: Path) -> None:
    facts = json.loads(path.with_suffix(".json").read_text())
    data = path.read_bytes()
    content = by_the_page(data, facts["keys"], facts["name"])
    assert hashlib.sha256(content).hexdigest() == facts["sha256"]
    assert len(content) == facts["content_bytes"]


def test_there_are_golden_objects() -> None:
    assert len(list(GOLDEN.glob("*.object"))) >= 3
