"""Where an archive begins: recorded once, and earlier once a backfill has stored what is before."""

from __future__ import annotations

import io
from datetime import UTC, datetime

from formats.control.archive_begin import ArchiveBegin
from formats.control.keys import earlier_begins_prefix
from formats.segment import SourcePartition
from infra.archive.begins import Begins
from infra.archive.control import ControlStore
from infra.storage.memory_and_folder import MemoryObjectStore

AT = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE, NEIGHBOUR = SourcePartition("a", "t", 1), SourcePartition("a", "t", 10)


def begin(offset: int, reason: str = "earliest") -> ArchiveBegin:
    return ArchiveBegin(offset=offset, reason=reason, recorded_at=AT)


def control() -> ControlStore:
    return ControlStore(MemoryObjectStore(now=lambda: AT), "data")


def test_the_earliest_counts() -> None:
    store = control()
    store.begins.record(SOURCE, begin(500))
    store.begins.record(NEIGHBOUR, begin(7))
    assert store.begins.lower(SOURCE, begin(300)) == begin(300)
    assert store.begins.lower(SOURCE, begin(90)) == begin(90)
    assert (store.begins.of(SOURCE), store.begins.of(NEIGHBOUR)) == (begin(90), begin(7))
    assert store.begins.first_of(SOURCE) == begin(500)
    assert store.begins.partitions("a", "t") == {1, 10}


def test_a_later_one_changes_nothing() -> None:
    store = control()
    store.begins.record(SOURCE, begin(500))
    store.begins.lower(SOURCE, begin(300))
    before = [info.key for info in store.objects.list("")]
    assert store.begins.lower(SOURCE, begin(400)) == begin(300)
    assert store.begins.lower(SOURCE, begin(300, "again")) == begin(300)
    assert store.begins.record(SOURCE, begin(10)) == begin(500)
    assert [info.key for info in store.objects.list("")] == before


def test_without_a_first_one() -> None:
    """An ancestor's archive."""
    store = control()
    assert store.begins.of(SOURCE) is None
    assert store.begins.lower(SOURCE, begin(3)) == begin(3)
    assert (store.begins.of(SOURCE), store.begins.first_of(SOURCE)) == (begin(3), begin(3))


def test_foreign_keys_are_left_alone() -> None:
    store = control()
    store.begins.record(SOURCE, begin(500))
    store.objects.put_new(f"{earlier_begins_prefix('data', SOURCE)}0notes", io.BytesIO(b"x"), 1)
    assert store.begins.of(SOURCE) == begin(500)


def test_those_of_all_paths_are_listed_at_once() -> None:
    store, other = control(), SourcePartition("a", "u", 3, "id")
    for source in (SOURCE, NEIGHBOUR, other):
        store.begins.record(source, begin(500))
    store.begins.lower(NEIGHBOUR, begin(7))
    for name in ("t/x", "t/1/x", "t/1/2/3", "foreign"):
        store.objects.put_new(f"data/a/_control/v1/begins/{name}", io.BytesIO(b"x"), 1)
    found = store.begins.few("a", most=100)
    assert found is not None
    assert found["t"] == store.begins.of_path("a", "t") == Begins(frozenset({1, 10}), frozenset({10}))
    assert found["u@id"] == Begins(frozenset({3}))
    assert store.begins.few("a", most=8) is None, "eight objects: there may be more"
    assert store.begins.few("a", most=9) == found
    assert store.begins.few("b", most=1) == {}
