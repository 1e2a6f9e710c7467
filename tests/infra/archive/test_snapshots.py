"""A changing value, stored in immutable objects."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import MalformedEvent, StoreUnavailable
from infra.archive.snapshots import Numbered
from tests.fakes.surroundings import FailingStore, HandClock

PREFIX = "data/a/_control/v1/x/"
OPERATIONS = ("list", "open", "put_new", "delete_many")


def adding(word: bytes) -> Callable[[bytes | None], bytes]:
    """Adds once, however often it is called."""
    return lambda before: (before or b"") + (b"" if word in (before or b"") else word)


def store() -> FailingStore:
    return FailingStore(HandClock(datetime(2026, 3, 5, tzinfo=UTC)))


def test_the_latest_version_holds_and_earlier_ones_are_deleted() -> None:
    objects = store()
    value = Numbered(objects, PREFIX)
    assert value.latest() is None
    for word in (b"a", b"b", b"c"):
        value.replace(adding(word))
    assert value.latest() == b"abc"
    assert objects.keys() == [f"{PREFIX}{3:020d}"]
    value.remove()
    value.remove()
    assert (value.latest(), objects.keys()) == (None, [])


@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(1, 3)), max_size=8))
@settings(deadline=None)
def test_concurrent_writers_lose_nothing(others: list[tuple[str, int]]) -> None:
    """At each write, another writer writes several times, just before one of its requests."""
    objects = store()
    ours, theirs = Numbered(objects, PREFIX), Numbered(objects.memory, PREFIX)
    words, wanted = (b"<%d>" % n for n in itertools.count()), set[bytes]()
    for operation, times in others:

        def in_between(_key: str, times: int = times) -> None:
            for _ in range(times):
                wanted.add(word := next(words))
                theirs.replace(adding(word))

        objects.before[operation] = in_between
        wanted.add(word := next(words))
        ours.replace(adding(word))
        objects.before.clear()
        latest = ours.latest()
        assert latest is not None
        assert {b"<%s>" % part for part in latest.strip(b"<>").split(b"><")} == wanted
    assert len(objects.keys()) == bool(others)


def test_an_overtaken_reader_reads_the_newer_version() -> None:
    objects = store()
    value = Numbered(objects, PREFIX)
    value.replace(adding(b"a"))
    objects.before["open"] = lambda _: Numbered(objects.memory, PREFIX).replace(adding(b"b"))
    assert value.latest() == b"ab"


def test_what_is_not_a_version_is_left_alone() -> None:
    objects = store()
    value = Numbered(objects, PREFIX)
    value.replace(adding(b"a"))
    stray = f"{PREFIX}{1:020d}.bak"
    objects.memory.put_new(stray, io.BytesIO(b"x"), 1)
    assert value.latest() == b"a"
    value.replace(adding(b"b"))
    assert (value.latest(), objects.keys()) == (b"ab", [stray, f"{PREFIX}{2:020d}"])
    value.remove()
    assert (value.latest(), objects.keys()) == (None, [stray])


def malformed(_: bytes | None) -> NoReturn:
    raise MalformedEvent("not a thing")


def test_a_version_that_cannot_be_decoded_is_named() -> None:
    value = Numbered(store(), PREFIX)
    value.replace(adding(b"a"))
    wanted = f"^{PREFIX}{1:020d}: not a thing$"
    with pytest.raises(MalformedEvent, match=wanted):
        value.decoded(malformed)
    with pytest.raises(MalformedEvent, match=wanted):
        value.replace(malformed)


def test_the_latest_version_decoded() -> None:
    value = Numbered(store(), PREFIX)
    assert value.decoded(bytes.decode) is None
    value.replace(adding(b"a"))
    assert value.decoded(bytes.decode) == "a"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_after_any_failure_one_version_holds(operation: str) -> None:
    objects = store()
    value = Numbered(objects, PREFIX)
    value.replace(adding(b"a"))
    objects.away = {operation}
    with pytest.raises(StoreUnavailable):
        value.replace(adding(b"b"))
    objects.away = set()
    assert value.latest() in (b"a", b"ab")
    value.replace(adding(b"c"))
    assert len(objects.keys()) == 1, "what was left is removed with the next"
