"""Where an archive begins: recorded once, and earlier once a backfill has stored what is before."""

from __future__ import annotations

import io
from datetime import UTC, datetime

from formats.control.archive_begin import ArchiveBegin
from formats.control.keys import earlier_begins_prefix
from formats.segment import SourcePartition
from infra.archive.control import Begins, ControlStore
from infra.storage.memory_and_folder import MemoryObjectStore

AT = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE, NEIGHBOUR = SourcePartition("a", "t", 1), SourcePartition("a", "t", 10)


def begin(offset: int, reason: str = "earliest") -> ArchiveBegin:
    return ArchiveBegin(offset=offset, reason=reason, recorded_at=AT)


def control() -> ControlStore:
    return ControlStore(MemoryObjectStore(now=lambda: AT), "data")


def test_the_earliest_counts() -> None:
    store = control()
    store.record_begin(SOURCE, begin(500))
    store.record_begin(NEIGHBOUR, begin(7))
    assert store.lower_begin(SOURCE, begin(300)) == begin(300)
    assert store.lower_begin(SOURCE, begin(90)) == begin(90)
    assert (store.begin(SOURCE), store.begin(NEIGHBOUR)) == (begin(90), begin(7))
    assert store.first_begin(SOURCE) == begin(500)
    assert store.partitions_with_begin("a", "t") == {1, 10}


def test_a_later_one_changes_nothing() -> None:
    store = control()
    store.record_begin(SOURCE, begin(500))
    store.lower_begin(SOURCE, begin(300))
    before = [info.key for info in store.objects.list("")]
    assert store.lower_begin(SOURCE, begin(400)) == begin(300)
    assert store.lower_begin(SOURCE, begin(300, "again")) == begin(300)
    assert store.record_begin(SOURCE, begin(10)) == begin(500)
    assert [info.key for info in store.objects.list("")] == before


def test_without_a_first_one() -> None:
    """An ancestor's archive."""
    store = control()
    assert store.begin(SOURCE) is None
    assert store.lower_begin(SOURCE, begin(3)) == begin(3)
    assert (store.begin(SOURCE), store.first_begin(SOURCE)) == (begin(3), begin(3))


def test_foreign_keys_are_left_alone() -> None:
    store = control()
    store.record_begin(SOURCE, begin(500))
    store.objects.put_new(f"{earlier_begins_prefix('data', SOURCE)}0notes", io.BytesIO(b"x"), 1)
    assert store.begin(SOURCE) == begin(500)


def test_those_of_all_paths_are_listed_at_once() -> None:
    store, other = control(), SourcePartition("a", "u", 3, "id")
    for source in (SOURCE, NEIGHBOUR, other):
        store.record_begin(source, begin(500))
    store.lower_begin(NEIGHBOUR, begin(7))
    for name in ("t/x", "t/1/x", "t/1/2/3", "foreign"):
        store.objects.put_new(f"data/a/_control/v1/begins/{name}", io.BytesIO(b"x"), 1)
    found = store.few_begins("a", most=100)
    assert found is not None
    assert found["t"] == store.begins_of("a", "t") == Begins(frozenset({1, 10}), frozenset({10}))
    assert found["u@id"] == Begins(frozenset({3}))
    assert store.few_begins("a", most=8) is None, "eight objects: there may be more"
    assert store.few_begins("a", most=9) == found
    assert store.few_begins("b", most=1) == {}
