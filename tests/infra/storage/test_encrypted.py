"""The store that encrypts: it is an ObjectStore like any other, and what is at fault is named."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import pytest

from formats.control.claim import TopicClaim
from formats.errors import ConfigError, CorruptSegment, KeyRefused, MalformedEvent, SegmentExists, SegmentNotFound
from formats.parquet.writer import ParquetFormat
from infra.archive.archive import Archive
from infra.archive.control import ControlStore
from infra.contracts.encryption import as_stored
from infra.contracts.storage import ObjectStore
from infra.storage.encrypted import EncryptedObjectStore, SealedOnlyStore
from infra.storage.encryption_mark import MARK
from infra.storage.key_file import KeyFile
from infra.storage.memory_and_folder import DirectoryObjectStore, MemoryObjectStore
from tests.contracts.store import KEY, StoreContract, get, put
from tests.fakes.key_files import encrypted_around, key_text, keys_of
from tests.formats.sample_records import ORIGIN, batch_of, sample_rows, segment

GOLDEN = Path(__file__).parents[2] / "golden" / "encryption" / "v1"
LARGE = bytes(range(256)) * 1_000  # several chunks
CONTROL = "data/eu-west-1/_control/v1/places/orders"


class EncryptedContract(StoreContract):
    def peek(self, key: str) -> bytes | None:
        """With other objects than the store under test has: nothing but the keys is shared."""
        below = self.below()
        if below.stat(key) is None:
            return None
        assert get(below, key).endswith(MARK)
        return get(encrypted_around(below), key)

    def below(self) -> ObjectStore:
        raise NotImplementedError

    def stored_bytes(self, content_bytes: int) -> int:
        return content_bytes + 16 + 3 + 40 + 62  # tag, key id, wrapped data key, the rest of the trailer

    def test_a_large_object_is_read_anywhere(self, store: ObjectStore) -> None:
        put(store, KEY, LARGE)
        with closing(store.open(KEY)) as file:
            for start, length in ((65_530, 20), (0, 70_000), (len(LARGE) - 8, 8), (131_072, 65_536), (1, 200_000)):
                file.seek(start)
                assert file.read(length) == LARGE[start : start + length]


class TestEncryptedInMemory(EncryptedContract):
    @pytest.fixture
    def store(self) -> EncryptedObjectStore:
        self._below = MemoryObjectStore()
        return encrypted_around(self._below)

    def below(self) -> ObjectStore:
        return self._below


class TestEncryptedInAFolder(EncryptedContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> EncryptedObjectStore:
        self._root = tmp_path
        return encrypted_around(DirectoryObjectStore(tmp_path))

    def below(self) -> ObjectStore:
        return DirectoryObjectStore(self._root)


class TestWithoutKeys(StoreContract):
    """What every store without [encryption] is."""

    @pytest.fixture
    def store(self) -> EncryptedObjectStore:
        self._below = MemoryObjectStore()
        return EncryptedObjectStore(self._below, "data", None)

    def peek(self, key: str) -> bytes | None:
        return get(self._below, key) if self._below.stat(key) else None


@pytest.fixture
def below() -> MemoryObjectStore:
    return MemoryObjectStore()


# --- keys ---


def test_an_earlier_key_reads_and_the_current_one_writes(below: MemoryObjectStore) -> None:
    put(encrypted_around(below, keys_of("old", old=2)), KEY, b"before")
    rotated = encrypted_around(below, keys_of("new", new=1, old=2))
    assert get(rotated, KEY) == b"before"
    put(rotated, f"{KEY}0", b"after")
    assert get(encrypted_around(below, keys_of("new", new=1)), f"{KEY}0") == b"after"


def test_a_missing_key_is_named_and_is_no_absence(below: MemoryObjectStore) -> None:
    put(encrypted_around(below, keys_of("old", old=2)), KEY, b"x")
    with pytest.raises(KeyRefused, match=r"the key 'old' is not in /keys/archive\.toml: add it to \[keys\]") as caught:
        encrypted_around(below, keys_of("new", new=1)).open(KEY)
    assert KEY in str(caught.value)


def test_another_key_under_the_same_id_is_named(below: MemoryObjectStore) -> None:
    put(encrypted_around(below, keys_of("old", old=2)), KEY, b"x")
    with pytest.raises(KeyRefused, match=r"the key 'old' of .* is another key than the one .* put that one back"):
        encrypted_around(below, keys_of("old", old=3)).open(KEY)


def test_without_encryption_the_key_is_named(below: MemoryObjectStore) -> None:
    put(encrypted_around(below), KEY, b"x")
    with pytest.raises(KeyRefused, match=r"is encrypted with the key 'new', .* has no \[encryption\]: add the section"):
        EncryptedObjectStore(below, "data", None).open(KEY)


def test_an_absent_object_is_absent(below: MemoryObjectStore) -> None:
    with pytest.raises(SegmentNotFound):
        encrypted_around(below).open(KEY)


# --- objects in clear ---


def test_objects_from_before_are_read(below: MemoryObjectStore) -> None:
    put(below, KEY, LARGE)
    put(below, CONTROL, b"")
    assert get(encrypted_around(below), KEY) == LARGE
    assert get(encrypted_around(below), CONTROL) == b""
    with pytest.raises(SegmentExists):
        put(encrypted_around(below), KEY, b"x")


def test_objects_in_clear_may_be_refused(below: MemoryObjectStore) -> None:
    put(below, KEY, LARGE)
    put(encrypted_around(below), f"{KEY}0", LARGE)
    store = EncryptedObjectStore(below, "data", keys_of(), refuses_clear=True)
    assert get(store, f"{KEY}0") == LARGE
    with pytest.raises(KeyRefused, match=r"is not encrypted, or was cut, and encryption\.clear_objects is \"refuse\""):
        store.open(KEY)


def test_a_copy_in_clear_may_be_refused(below: MemoryObjectStore) -> None:
    refused: list[str] = []
    destination = SealedOnlyStore(MemoryObjectStore(), refused.append)
    put(encrypted_around(below), KEY, LARGE)
    data = get(below, KEY)
    put(destination, KEY, data)
    assert get(destination, KEY) == data
    with pytest.raises(KeyRefused, match=r"is not encrypted, .* it is not copied"):
        put(destination, CONTROL, LARGE)
    assert [info.key for info in destination.list("")] == [KEY]
    assert refused == [CONTROL]


# --- copies ---


def test_a_copy_of_the_stored_bytes_is_read_elsewhere(below: MemoryObjectStore) -> None:
    """As `sync` and S3's own replication make them: another bucket, and another prefix."""
    here, there = encrypted_around(below), MemoryObjectStore()
    put(here, KEY, LARGE)
    put(there, KEY.replace("data/", "copies/of/"), get(as_stored(here), KEY))
    assert get(encrypted_around(there, prefix="copies/of"), KEY.replace("data/", "copies/of/")) == LARGE


def test_an_object_is_of_its_key(below: MemoryObjectStore) -> None:
    put(encrypted_around(below), KEY, b"x")
    put(below, KEY.replace("sensor", "other"), get(below, KEY))
    with pytest.raises(CorruptSegment, match="chunk 0 of 1"):
        get(encrypted_around(below), KEY.replace("sensor", "other"))


# --- damage ---


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def archive_in(store: ObjectStore) -> Archive:
    return Archive.of(store, "data", ParquetFormat())


@pytest.fixture
def stored_segment(below: MemoryObjectStore) -> str:
    sink = BytesIO()
    writer = ParquetFormat(row_group_bytes=2_000).create(sink)
    writer.write([batch_of(sample_rows(200, first_offset=1_000))])
    writer.close(segment(1_000, 1_199), ORIGIN)
    archive_in(encrypted_around(below)).segments.store(segment(1_000, 1_199), sink, sink.tell())
    (info,) = below.list("")
    return info.key


def read_all(below: MemoryObjectStore) -> int:
    with archive_in(encrypted_around(below)).open(segment(1_000, 1_199)) as reader:
        return sum(batch.num_rows for batch in reader.batches())


def test_a_damaged_segment_is_corrupt_wherever_it_is_damaged(below: MemoryObjectStore, stored_segment: str) -> None:
    data = get(below, stored_segment)
    assert read_all(below) == 200
    for at in {*range(0, len(data), 97), *range(len(data) - 70, len(data))}:
        below.replace(stored_segment, flipped(data, at))
        with pytest.raises(CorruptSegment):
            read_all(below)


def test_an_empty_object_is_proven_when_it_is_opened(below: MemoryObjectStore) -> None:
    put(encrypted_around(below), KEY, b"")
    below.replace(KEY, flipped(get(below, KEY), 0))
    with pytest.raises(CorruptSegment, match="chunk 0 of 1"):
        encrypted_around(below).open(KEY)


def test_a_cut_segment_is_corrupt_wherever_it_ends(below: MemoryObjectStore, stored_segment: str) -> None:
    data = get(below, stored_segment)
    for length in {*range(0, len(data), 97), *range(len(data) - 70, len(data))}:
        below.replace(stored_segment, data[:length])
        with pytest.raises(CorruptSegment):
            read_all(below)


@pytest.mark.parametrize("change", [lambda data: flipped(data, 3), lambda data: data[:-1], lambda data: data[1:]])
def test_a_damaged_control_object_is_malformed(below: MemoryObjectStore, change: Callable[[bytes], bytes]) -> None:
    control = ControlStore(encrypted_around(below), "data")
    claim = TopicClaim(topic_id="id", cluster_id="c", number=0, claimed_at=datetime.now(UTC))
    control.claims.record("eu-west-1", "orders", claim)
    assert control.claims.of("eu-west-1", "orders") == claim
    below.replace(CONTROL, change(get(below, CONTROL)))
    with pytest.raises(MalformedEvent):
        control.claims.of("eu-west-1", "orders")


# --- what earlier versions wrote ---


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.object")), ids=lambda path: path.stem)
def test_golden_objects_are_read(path: Path, below: MemoryObjectStore) -> None:
    facts = json.loads(path.with_suffix(".json").read_text())
    below.replace(facts["name"], path.read_bytes())
    lines = [f'"{key_id}" = "{key}"' for key_id, key in facts["keys"].items()]
    keys = KeyFile(Path("keys.toml"), "\n".join([f'current = "{max(facts["keys"])}"', "[keys]", *lines]))
    assert len(get(encrypted_around(below, keys, prefix=""), facts["name"])) == facts["content_bytes"]


# --- the key file ---


def test_a_key_added_to_the_file_is_used_without_a_restart(tmp_path: Path, below: MemoryObjectStore) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(key_text("old", old=2))
    store = encrypted_around(below, KeyFile(path))
    put(store, KEY, b"x")
    path.write_text(key_text("new", new=1, old=2))
    put(store, f"{KEY}0", b"y")
    assert get(store, KEY) == b"x"
    assert get(encrypted_around(below, keys_of("new", new=1)), f"{KEY}0") == b"y"
    path.unlink()
    with pytest.raises(KeyRefused, match=r"the key file .*keys\.toml cannot be read: FileNotFoundError; put it back"):
        store.open(KEY)


def test_a_process_that_was_given_the_keys_sees_a_key_that_is_added(tmp_path: Path, below: MemoryObjectStore) -> None:
    """As the processes of `--processes` and tasks on Spark are: they run as long as the service."""
    path, given = tmp_path / "keys.toml", key_text("old", old=2)
    store = encrypted_around(below, KeyFile(path, given))
    put(store, KEY, b"x")  # without the file
    path.write_text(key_text("new", new=1, other=3))
    put(encrypted_around(below, KeyFile(path)), f"{KEY}0", b"y")
    assert get(store, f"{KEY}0") == b"y"
    assert get(store, KEY) == b"x", "what was given still reads"
    put(store, f"{KEY}1", b"z")
    assert get(encrypted_around(below, keys_of("new", new=1)), f"{KEY}1") == b"z"
    for broken in ("current = ", None):  # while somebody edits it, and replaces it
        path.unlink() if broken is None else path.write_text(broken)
        assert get(store, KEY) == b"x"
        put(store, f"{KEY}-{broken}", b"z")
        assert get(encrypted_around(below, keys_of("new", new=1)), f"{KEY}-{broken}") == b"z", "not by the old key"


SECRET = base64.b64encode(b"7" * 32).decode()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "keys: needs at least one key"),
        ("current = ", "is no TOML"),
        (f'current = "b"\n[keys]\na = "{SECRET}"', "current: must be the id of one of"),
        (f'[keys]\na = "{SECRET}"', "current: must be the id of one of"),
        (f'current = "a"\n[keys]\na = "{SECRET[:-8]}"', r"keys\.a: must be 32 bytes in base64"),
        (f'current = "a"\n[keys]\na = "{SECRET}!"', r"keys\.a: must be 32 bytes in base64"),
        ('current = "a"\n[keys]\na = 7', r"keys\.a: must be 32 bytes in base64"),
        (f'current = "a"\n[keys]\na = "{SECRET}"\nb = "{SECRET}"', "two ids have the same key"),
        (f'current = "arn:x"\n[keys]\n"arn:x" = "{SECRET}"', "an id is 1 to 200"),
        (f'current = "a"\nother = 1\n[keys]\na = "{SECRET}"', "other: unknown"),
        (f'current = "a"\n[keys]\na = {SECRET}', "is no TOML"),
        (f'current = "a"\n[keys]\n"{SECRET}" = "a"', "an id is 1 to 200 .*: entry 1 has another one"),
        (f'"{SECRET}" = "current"\n[keys]\na = "{SECRET}"', "a key of another form: unknown"),
    ],
)
def test_a_key_file_that_cannot_be_used_is_refused_without_its_keys(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem) as caught:
        KeyFile(path)
    whole = f"{caught.value!r} {caught.value.__cause__!r} {caught.value}"
    assert SECRET[:12] not in whole
