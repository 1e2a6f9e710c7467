"""Which of two checkpoints of one position holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from formats.errors import CheckpointConflict
from formats.messages.delivery_checkpoint import Author, Checkpoint, follow
from tests.contracts.checkpoints import AT, checkpoint, key

SKIP = Checkpoint(5, "topic-id", AT, Author.SEED, given_at=4)  # of the record at 4


@pytest.mark.parametrize("author", Author)
@pytest.mark.parametrize(("position", "wanted"), [(3, 5), (4, 5), (5, 5), (6, 6), (9, 9)])
def test_a_skip_is_ignored_once_the_position_is_past_the_record(author: Author, position: int, wanted: int) -> None:
    known = replace(checkpoint(position), author=author)
    holds = follow(key(0), known, SKIP)
    assert isinstance(holds, Checkpoint)
    assert holds.next_offset == wanted
    assert (holds == SKIP) is (position <= 4)


def test_a_skip_where_nothing_was_delivered() -> None:
    assert follow(key(0), None, SKIP) == SKIP


def test_a_skip_of_several_records_is_ignored_once_the_position_is_among_them() -> None:
    known = checkpoint(6)
    assert follow(key(0), known, replace(SKIP, next_offset=10)) == known


def test_a_skip_does_not_end_a_conflict() -> None:
    """The skip does not refer to the conflict."""
    conflict = CheckpointConflict("both cannot be true")
    assert follow(key(0), conflict, SKIP) is conflict
    assert follow(key(0), conflict, replace(SKIP, given_at=None)) == replace(SKIP, given_at=None)


def test_a_skip_for_a_recreated_destination_replaces_the_position() -> None:
    known = replace(checkpoint(9), destination_topic_id="earlier")
    assert follow(key(0), known, SKIP) == SKIP


@pytest.mark.parametrize("begun_at", [0, 4, 9, None])
def test_a_checkpoint_of_an_adjoining_delivery_holds(begun_at: int | None) -> None:
    known, later = replace(checkpoint(9), begun_at=0), replace(checkpoint(20), begun_at=begun_at)
    assert follow(key(0), known, later) == later


def test_a_late_checkpoint_that_began_beyond_the_position_is_ignored() -> None:
    """The late process froze before an earlier segment arrived, with which its successor began."""
    known, late = replace(checkpoint(9), begun_at=0), replace(checkpoint(20), begun_at=10)
    assert follow(key(0), known, late) == known
    in_a_transaction = [replace(one, author=Author.EXACTLY_ONCE) for one in (known, late)]
    assert isinstance(follow(key(0), *in_a_transaction), CheckpointConflict)
    seed = replace(known, author=Author.SEED, begun_at=None)
    assert follow(key(0), seed, late) == late, "an operator's word says nothing of where it began"
