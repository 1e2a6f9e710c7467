"""Undelivered offsets, checked against sets of offsets."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import CheckpointConflict
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey
from formats.segment import OffsetRange, Segment, SourcePartition
from ingress import undelivered as module
from ingress.undelivered import (
    Undelivered,
    before_begin,
    behind_end,
    describe_after_end,
    describe_before_begin,
    later_incarnations,
    undelivered,
)

SOURCE = SourcePartition("a", "t", 3)
T0 = datetime(2026, 1, 1, tzinfo=UTC)

ranges = st.integers(0, 40 * 10 + 9).map(lambda n: OffsetRange(n // 10, n // 10 + n % 10))  # one draw each
some_ranges = st.lists(ranges, max_size=6)


def segment(offsets: OffsetRange) -> Segment:
    return Segment(SOURCE, 0, offsets)


def offsets(found: list[OffsetRange]) -> set[int]:
    return {o for r in found for o in range(r.start, r.end + 1)}


@given(some_ranges, some_ranges, some_ranges, st.integers(1, 45), st.booleans())
def test_events_and_listings_say_the_same(
    listed: list[OffsetRange], events: list[OffsetRange], given_up: list[OffsetRange], at: int, before: bool
) -> None:
    span = before_begin(at) if before else behind_end(at)
    assert span is not None
    known = Undelivered(span)
    known.listed(listed)
    for one in events:
        assert known.stored(segment(one)) == one.overlaps(span)
    left = list(known.left(given_up))
    wanted = {o for o in offsets([*listed, *events]) - offsets(given_up) if (o < at) == before}
    assert offsets(left) == wanted
    assert left == sorted(left)
    assert offsets(list(undelivered(span, [*listed, *events], given_up))) == wanted
    known.listed([])
    assert known.left([]) == []


@pytest.mark.parametrize("begun_at", [None, 0])
def test_nothing_lies_before_a_delivery_that_began_at_the_beginning(begun_at: int | None) -> None:
    assert before_begin(begun_at) is None
    assert undelivered(before_begin(begun_at), [OffsetRange(0, 9)], []) == []


def test_scattered_offsets_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    known = Undelivered(OffsetRange(0, 99))
    for start in range(0, 20, 2):
        known.stored(segment(OffsetRange(start, start)))
    assert len(known.left([])) == 3
    known.listed(OffsetRange(start, start) for start in range(0, 20, 2))
    assert len(known.left([])) == 3


def test_the_remedies_are_commands() -> None:
    left = [OffsetRange(0, 9), OffsetRange(20, 29), OffsetRange(40, 40), OffsetRange(50, 51)]
    events = describe_before_begin(SOURCE, "copy", 60, left)
    assert "offsets [0,9], [20,29], [40,40] and 1 more ranges of a/t/3" in events
    commands = [shlex.split(part) for part in events.split("`")[1::2]]
    assert commands[0][:2] == ["replicator", "restore"]
    assert commands[0][commands[0].index("--offsets") + 1] == "0-9"
    assert commands[0][commands[0].index("--incarnation") + 1] == ""
    assert commands[1] == ["replicator", "skip", "a/t/3", "0", "--through", "9", "--reason", "TEXT", "--yes"]
    assert commands[2] == ["replicator", "checkpoints", "seed", "a/t/3", "--offset", "0"]
    assert "seed" not in describe_after_end(SOURCE, "copy", left)


def test_delivery_has_switched_to_what_has_a_later_checkpoint() -> None:
    def key(incarnation: str, partition: int = 3, destination: str = "copy") -> CheckpointKey:
        return CheckpointKey(SourcePartition("a", "t", partition, incarnation), destination)

    def at(minutes: int) -> Checkpoint:
        return Checkpoint(5, "id", T0 + timedelta(minutes=minutes), Author.EXACTLY_ONCE)

    known: dict[CheckpointKey, Checkpoint | CheckpointConflict] = {
        key(""): at(1),
        key("second"): at(2),
        key("third"): CheckpointConflict("?"),
        key("second", partition=4): at(3),
        key("second", destination="elsewhere"): at(3),
    }
    assert later_incarnations(key(""), at(1), known) == [key("second")]
    assert later_incarnations(key("second"), at(2), known) == []
