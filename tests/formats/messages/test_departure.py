"""Owners that leave a partition, and those that are killed: the word of the last one alone counts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import MalformedEvent
from formats.messages.checkpoint_notes import CheckpointNotes
from formats.messages.delivery_checkpoint import encode_owner, encode_owner_key
from formats.messages.departure import (
    Departure,
    decode_departure,
    encode_departure,
    encode_departure_key,
    left_at,
)

ID = "ids.t.0"


def test_bytes() -> None:
    key, value = encode_departure_key(ID), encode_departure(Departure("a", 7))
    assert (key, value) == (b'{"kind":"left","transactional_id":"ids.t.0"}', b'{"end":7,"token":"a","v":1}')
    assert decode_departure(key, value) == (ID, Departure("a", 7))
    for data in (b"", b"{}", value.replace(b'"v":1', b'"v":2')):
        with pytest.raises(MalformedEvent):
            decode_departure(key, data)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12),
    st.sets(st.integers(0, 11)),
)
def test_the_last_owner_alone_says_that_it_has_left(events: Sequence[tuple[str, bool]], compacted: set[int]) -> None:
    """Each event: an owner takes the partition, or says that it left it at the offset of its number, perhaps late.
    Compaction removes records that have a later one with the same key."""
    records = []
    for number, (owner, is_taken) in enumerate(events):
        if is_taken:
            records.append((encode_owner_key(ID), encode_owner(owner)))
        else:
            records.append((encode_departure_key(ID), encode_departure(Departure(owner, number))))
    notes = CheckpointNotes()
    for n, (key, value) in enumerate(records):
        if n not in compacted or key not in [later for later, _ in records[n + 1 :]]:
            assert notes.put(key, value)
    taken = [owner for owner, is_taken in events if is_taken]
    left = [(owner, number) for number, (owner, is_taken) in enumerate(events) if not is_taken]
    expected = left[-1][1] if taken and left and left[-1][0] == taken[-1] else None
    copy = notes.copy()
    assert left_at(copy.owners.get(ID), copy.departures.get(ID)) == expected
