from __future__ import annotations

import errno
import os
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from formats.errors import SegmentExists, SegmentNotFound, StoreUnavailable
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.contracts.storage import ObjectStore
from infra.storage.memory_and_folder import DirectoryObjectStore, MemoryObjectStore, folder_path, key_path, path_key
from tests.contracts.store import KEY, StoreContract, get, put

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> MemoryObjectStore:
        self._store = MemoryObjectStore()
        return self._store

    def peek(self, key: str) -> bytes | None:
        return get(self._store, key) if self._store.stat(key) else None

    def test_times_are_those_of_the_clock(self) -> None:
        times = iter([NOON, NOON + timedelta(hours=1)])
        store = MemoryObjectStore(now=lambda: next(times))
        put(store, "a")
        put(store, "b")
        assert [info.modified_at for info in store.list("")] == [NOON, NOON + timedelta(hours=1)]

    def test_a_replaced_object_is_another_version(self, store: MemoryObjectStore) -> None:
        put(store, KEY, b"one")
        before = store.stat(KEY)
        store.replace(KEY, b"two")
        after = store.stat(KEY)
        assert before is not None
        assert after is not None
        assert before.etag != after.etag
        assert self.peek(KEY) == b"two"


class TestDirectoryStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DirectoryObjectStore:
        self._root = tmp_path
        return DirectoryObjectStore(tmp_path)

    def peek(self, key: str) -> bytes | None:
        path = self._root / key_path(key)
        return path.read_bytes() if path.exists() else None

    def test_paths_of_segments_in_the_store_are_their_keys(self, store: DirectoryObjectStore) -> None:
        put(store, KEY, b"one")
        assert (self._root / KEY).read_bytes() == b"one"

    def test_a_copied_archive_is_read_in_place(self, store: DirectoryObjectStore) -> None:
        path = self._root / KEY
        path.parent.mkdir(parents=True)
        path.write_bytes(b"copied")
        assert [info.key for info in store.list("data/eu-west-1/")] == [KEY]
        assert get(store, KEY) == b"copied"

    def test_temporary_files_of_a_crash_are_not_listed(self, store: DirectoryObjectStore) -> None:
        class Killed(BaseException):
            pass

        class Body(BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                for path in tuple((root / KEY).parent.iterdir()):
                    os.link(path, path.with_name(f"{path.name[:-4]}1.tmp"))  # the state after a power failure
                raise Killed

        root = self._root
        with pytest.raises(Killed):
            store.put_new(KEY, Body(b"123"), 3)
        assert [path.name[0] for path in (root / KEY).parent.iterdir()] == ["."]
        assert list(store.list("")) == []
        assert store.stat(KEY) is None
        put(store, KEY, b"whole")
        assert get(store, KEY) == b"whole"

    def test_no_temporary_file_is_left(self, store: DirectoryObjectStore) -> None:
        put(store, KEY)
        with pytest.raises(SegmentExists):
            put(store, KEY)
        assert [path.name for path in (self._root / KEY).parent.iterdir()] == [Path(KEY).name]

    def test_files_without_a_key_are_left_out(self, store: DirectoryObjectStore) -> None:
        put(store, "a")
        (self._root / "README").write_bytes(b"by hand")
        (self._root / ".hidden").write_bytes(b"")
        assert [info.key for info in store.list("")] == ["a"]

    def test_an_absent_root_is_not_an_empty_archive(self, store: DirectoryObjectStore) -> None:
        put(store, KEY)
        self._root.rename(self._root.with_name("away"))
        for call in (
            lambda: list(store.list("")),
            lambda: list(store.list("data/")),
            lambda: store.open(KEY),
            lambda: store.stat(KEY),
            lambda: store.delete_many([KEY]),
            lambda: put(store, KEY),
        ):
            with pytest.raises(StoreUnavailable, match="mount"):
                call()
        assert not self._root.exists()

    def test_a_full_disk_is_transient(self, store: DirectoryObjectStore) -> None:
        class Full(BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                raise OSError(errno.ENOSPC, "No space left on device")

        with pytest.raises(StoreUnavailable, match="No space left"):
            store.put_new(KEY, Full(b"123"), 3)
        assert list(store.list("")) == []


# --- keys as paths ---------------------------------------------------------------------------------------------------

NAMES = st.one_of(
    st.sampled_from(["", ".", "..", "a", "b", "a=", "%", "%25", "+", "a+", "7" * 20, f"{7:020d}-{9:020d}", "x" * 300]),
    st.from_regex(r"[0-9]{20}(-[0-9]{20})?=?", fullmatch=True),
    st.text(st.characters(codec="utf-8"), max_size=100),
)
KEYS = st.lists(NAMES, min_size=1, max_size=5).map("/".join).filter(bool)


@given(KEYS)
@example("." * 300)
@example("é" * 300)
@example("/")
def test_a_path_leads_back_to_its_key(key: str) -> None:
    path = key_path(key)
    parts = tuple(path.split("/"))
    assert path_key(parts) == key
    assert all(part and not part.startswith(".") and len(part.encode()) <= 255 for part in parts)
    assert "\0" not in path


@given(st.sets(KEYS, min_size=2, max_size=8))
def test_no_file_is_another_key_s_file_or_folder(keys: set[str]) -> None:
    files = {key_path(key) for key in keys}
    folders = {folder_path(key) for key in keys} | {
        "/".join(f.split("/")[:n]) for f in files for n in range(1, f.count("/") + 1)
    }
    assert len(files) == len(keys)
    assert not files & folders


@given(
    st.builds(
        SourcePartition,
        st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}", fullmatch=True),
        st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,150}", fullmatch=True).filter(lambda name: name != "_control"),
        st.integers(0, 2**31 - 1),
        st.from_regex(r"([A-Za-z0-9_-]{22})?", fullmatch=True),
    ),
    st.integers(0, 9),
    st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)).map(sorted),
)
def test_paths_of_segments_are_their_keys(source: SourcePartition, level: int, offsets: list[int]) -> None:
    key = format_key("data", Segment(source, level, OffsetRange(*offsets)))
    digits = {name for name in (source.region, source.path) if name.isdecimal() and len(name) == 20}
    assert key_path(key) == key or digits


# --- any sequence of calls -------------------------------------------------------------------------------------------


class StoreMachine(RuleBasedStateMachine):
    """The stores behave like a dict. Few keys, so that calls affect the same ones."""

    POOL = (
        "a",
        "a/b",
        "a/b/c",
        "a.b",
        "a=",
        f"a/{5:020d}",
        f"a/{5:020d}/x",
        "b//c",
        "b/",
        "/b",
        "..",
        "ü/+",
        "x" * 400,
    )

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.stores: tuple[ObjectStore, ...] = (MemoryObjectStore(), DirectoryObjectStore(self.root))
        self.model: dict[str, bytes] = {}

    def teardown(self) -> None:
        if hasattr(self, "root"):
            for store in self.stores:
                assert {info.key: info.size_bytes for info in store.list("")} == {
                    key: len(data) for key, data in self.model.items()
                }
            shutil.rmtree(self.root)

    @rule(key=st.sampled_from(POOL), data=st.binary(max_size=5))
    def put(self, key: str, data: bytes) -> None:
        for store in self.stores:
            if key in self.model:
                with pytest.raises(SegmentExists):
                    put(store, key, data)
            else:
                put(store, key, data)
        self.model.setdefault(key, data)

    @rule(keys=st.sets(st.sampled_from(POOL), max_size=4))
    def delete(self, keys: set[str]) -> None:
        for store in self.stores:
            store.delete_many(keys)
        for key in keys:
            self.model.pop(key, None)

    @rule(key=st.sampled_from(POOL))
    def read(self, key: str) -> None:
        for store in self.stores:
            if key in self.model:
                assert get(store, key) == self.model[key]
            else:
                assert store.stat(key) is None
                with pytest.raises(SegmentNotFound):
                    store.open(key)

    @rule(
        prefix=st.sampled_from(["", "a", "a/", "a/b", "b/", "/", ".", "x", "zz/"]), after=st.sampled_from(["", *POOL])
    )
    def list_below(self, prefix: str, after: str) -> None:
        wanted = sorted(key for key in self.model if key.startswith(prefix) and key > after)
        for store in self.stores:
            assert [info.key for info in store.list(prefix, start_after=after)] == wanted


StoreMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestAnySequence = StoreMachine.TestCase
