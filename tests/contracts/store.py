"""What every ObjectStore does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from io import BytesIO

import pytest

from formats.errors import SegmentExists, SegmentNotFound
from infra.contracts.storage import ObjectStore

KEY = "data/eu-west-1/sensor.events/0/0/00000000000000000000-00000000000000000099"


def put(store: ObjectStore, key: str, data: bytes = b"x") -> None:
    store.put_new(key, BytesIO(data), len(data))


def get(store: ObjectStore, key: str) -> bytes:
    with closing(store.open(key)) as file:
        return file.read()


class StoreContract:
    """Every ObjectStore passes these. Subclasses give the fixture `store`, an empty one, and `peek`, which reads past
    the store under test."""

    keys_may_be_folders = True  # whether both "a" and "a/b" may be keys, as S3 has it

    def peek(self, key: str) -> bytes | None:
        raise NotImplementedError

    def stored_bytes(self, content_bytes: int) -> int:
        """Size of an object in listings, by that of its content."""
        return content_bytes

    def test_what_was_put_is_read(self, store: ObjectStore) -> None:
        put(store, KEY, b"one two")
        assert self.peek(KEY) == b"one two"
        with closing(store.open(KEY)) as file:
            assert file.seekable()
            assert file.read(3) == b"one"
            assert file.tell() == 3
            assert file.seek(-3, 2) == 4
            assert file.read() == b"two"
            assert file.read() == b""
            file.seek(0)
            assert file.read(100) == b"one two"

    def test_an_object_whose_end_was_asked_for_is_read_whole(self, store: ObjectStore) -> None:
        put(store, KEY, b"one two three")
        for tail_bytes in (1, 5, 13, 100):
            with closing(store.open(KEY, tail_bytes=tail_bytes)) as file:
                file.seek(-5, 2)
                assert file.read() == b"three"
                file.seek(0)
                assert file.read() == b"one two three"
        with pytest.raises(SegmentNotFound):
            store.open(f"{KEY}-not", tail_bytes=5)

    def test_an_empty_object_is_an_object(self, store: ObjectStore) -> None:
        put(store, KEY, b"")
        assert get(store, KEY) == b""
        stat = store.stat(KEY)
        assert stat is not None
        assert stat.size_bytes == self.stored_bytes(0)
        with pytest.raises(SegmentExists):
            put(store, KEY, b"x")

    def test_storing_twice_keeps_the_first(self, store: ObjectStore) -> None:
        put(store, KEY, b"one")
        for _ in range(2):
            with pytest.raises(SegmentExists, match=KEY):
                put(store, KEY, b"second")
        assert self.peek(KEY) == b"one"

    def test_the_body_is_read_from_its_start_and_no_further_than_its_size(self, store: ObjectStore) -> None:
        body = BytesIO(b"0123456789")
        body.seek(7)
        store.put_new(KEY, body, 5)
        assert self.peek(KEY) == b"01234"

    def test_a_body_too_short_stores_nothing(self, store: ObjectStore) -> None:
        with pytest.raises(ValueError, match=r"not 10|early"):
            store.put_new(KEY, BytesIO(b"12345"), 10)
        assert self.peek(KEY) is None
        assert list(store.list("")) == []

    def test_of_many_writers_one_wins_whole(self, store: ObjectStore) -> None:
        def attempt(number: int) -> bytes | None:
            data = bytes([number]) * 10_000
            try:
                put(store, KEY, data)
            except SegmentExists:
                return None
            return data

        with ThreadPoolExecutor(8) as pool:
            won = [data for data in pool.map(attempt, range(8)) if data is not None]
        assert [self.peek(KEY)] == won

    def test_absent(self, store: ObjectStore) -> None:
        put(store, f"{KEY}0")
        with pytest.raises(SegmentNotFound, match=KEY):
            store.open(KEY)
        assert store.stat(KEY) is None
        assert list(store.list("nothing/")) == []

    def test_stat_and_list_tell_the_same(self, store: ObjectStore) -> None:
        put(store, KEY, b"12345")
        (listed,) = store.list("data/")
        stat = store.stat(KEY)
        assert stat is not None
        assert (stat.key, stat.size_bytes, stat.etag) == (KEY, self.stored_bytes(5), listed.etag)
        assert stat.etag
        assert (listed.key, listed.size_bytes) == (KEY, self.stored_bytes(5))
        for info in (stat, listed):
            assert info.modified_at.utcoffset() == timedelta()
        assert abs(stat.modified_at - listed.modified_at) < timedelta(seconds=1)  # a header has whole seconds

    def test_list_is_in_key_order_below_the_prefix_and_after_the_start(self, store: ObjectStore) -> None:
        keys = ["p/a/1", "p/a/10", "p/a/2", "p/a-b/1", "p/a.c/1", "p/ab", "p/b", "pp/a", "q"]
        for key in reversed(keys):
            put(store, key)

        def found(prefix: str, start_after: str = "") -> list[str]:
            return [info.key for info in store.list(prefix, start_after=start_after)]

        assert found("") == sorted(keys)
        assert found("p/") == sorted(key for key in keys if key.startswith("p/"))
        assert found("p/a") == ["p/a-b/1", "p/a.c/1", "p/a/1", "p/a/10", "p/a/2", "p/ab"]
        assert found("p/a/") == ["p/a/1", "p/a/10", "p/a/2"]
        assert found("p/a/", "p/a/1") == ["p/a/10", "p/a/2"]
        assert found("p/a/", "p/a/11") == ["p/a/2"]
        assert found("p/a/", "p/a/2") == []
        assert found("p/", "p/a0") == ["p/ab", "p/b"]

    def test_folders_are_the_names_before_the_next_slash(self, store: ObjectStore) -> None:
        for name in ("a/10/0/x", "a/10/1/x", "a/9/0/x", "a/9-/x", "a/note", "a/b c+&%/x", "ab/x", "a/9/0/y"):
            put(store, name)
        if self.keys_may_be_folders:
            put(store, "a//x")
        assert store.folders("a/") == [*([""] if self.keys_may_be_folders else []), "10", "9-", "9", "b c+&%"]
        assert store.folders("a/1") == ["0"]
        assert store.folders("a/9/0/") == store.folders("c/") == []
        assert store.folders("") == ["a", "ab"]

    def test_a_folder_whose_objects_are_deleted_is_none(self, store: ObjectStore) -> None:
        """Of a bucket without versions, as all are here."""
        put(store, "a/x/1")
        put(store, "a/y/1")
        store.delete_many(["a/x/1"])
        assert store.folders("a/") == ["y"]

    def test_more_folders_than_one_answer_holds(self, store: ObjectStore) -> None:
        names = sorted(str(number) for number in range(1_050))
        for name in names:
            put(store, f"many/{name}/x")
        assert store.folders("many/") == names

    def test_a_listing_ends_when_it_has_as_many_as_are_wanted(self, store: ObjectStore) -> None:
        keys = [f"p/{number:02d}" for number in range(20)]
        for key in keys:
            put(store, key)
        for limit in (0, 1, 7, 20, 5000):
            assert [info.key for info in store.list("p/", limit=limit)] == keys[:limit]
            assert [info.key for info in store.list("p/", start_after=keys[4], limit=limit)] == keys[5 : 5 + limit]

    @pytest.mark.parametrize(
        "key",
        [
            "a b",
            "a+b/c@d=e",
            "data/r/topic@AbC_-9/0",
            "ümläut/日本/🙂",
            "per%20cent/%2F/%",
            "q?x=1&y=2#z",
            "semi;colon,and:more!*'()$",
            "tilde~/under_score/-",
            '"quotes"<&>',
            "back\\slash",
            "_control/v1/catalog/00000000000000000007",
        ],
    )
    def test_keys_come_back_as_they_went_in(self, store: ObjectStore, key: str) -> None:
        put(store, key, b"1")
        put(store, f"{key}0", b"2")
        assert [info.key for info in store.list("")] == [key, f"{key}0"]
        assert [info.key for info in store.list(key, start_after=key)] == [f"{key}0"]
        assert self.peek(key) == b"1"
        assert get(store, key) == b"1"
        store.delete_many([key])
        assert [info.key for info in store.list("")] == [f"{key}0"]

    def test_a_key_may_lie_below_another(self, store: ObjectStore) -> None:
        if not self.keys_may_be_folders:
            pytest.skip("this server keeps objects in folders")
        keys = ["a", "a/b", "a/b/c", "a/b/c=", "a/b="]
        for key in keys:
            put(store, key, key.encode())
        assert [info.key for info in store.list("a")] == keys
        assert [get(store, key).decode() for key in keys] == keys
        store.delete_many(["a/b"])
        assert store.stat("a/b") is None
        assert get(store, "a/b/c") == b"a/b/c"

    def test_delete(self, store: ObjectStore) -> None:
        for key in ("a", "b", "c"):
            put(store, key)
        store.delete_many([])
        store.delete_many(["a", "absent", "c", "a"])
        store.delete_many(["a"])
        assert [info.key for info in store.list("")] == ["b"]
        put(store, "a", b"again")
        assert self.peek("a") == b"again"

    def test_more_deletes_than_one_request_holds(self, store: ObjectStore) -> None:
        put(store, "k/1234")
        put(store, "l")
        store.delete_many([f"k/{number:04d}" for number in range(1300)])
        assert [info.key for info in store.list("")] == ["l"]

    def test_an_opened_small_object_stays_readable(self, store: ObjectStore) -> None:
        put(store, KEY, b"12345")
        with closing(store.open(KEY)) as file:
            assert file.read(2) == b"12"
            store.delete_many([KEY])
            put(store, KEY, b"abcde")
            assert file.read() == b"345"
