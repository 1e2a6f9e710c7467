from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import MalformedEvent
from formats.messages.checkpoint_notes import CheckpointNotes
from formats.messages.delivery_checkpoint import (
    CheckpointKey,
    Parked,
    Skipped,
    Waiting,
    encode,
    encode_key,
    encode_parked,
    encode_parked_key,
    encode_skipped,
    encode_skipped_key,
    encode_waiting,
    encode_waiting_key,
    still_parked,
)
from formats.messages.group_claim import GroupClaim, encode_claim, encode_claim_key
from formats.segment import OffsetRange, SourcePartition
from tests.contracts.checkpoints import AT, checkpoint, key

PARKED = Parked(7, "too large", AT)
WAITING = Waiting(3, AT, is_beginning=False)


def skipped(start: int, end: int, partition: int = 0) -> Skipped:
    return Skipped(key=key(partition), offsets=OffsetRange(start, end), reason="poison", at=AT)


def test_positions_are_not_kept() -> None:
    notes = CheckpointNotes()
    assert not notes.put(encode_key(key(0)), encode(checkpoint(1)))
    assert not notes.put(encode_key(key(0)), None)
    assert (notes.parked, notes.skipped) == ({}, [])


def test_an_unknown_kind_is_not_a_position() -> None:
    assert CheckpointNotes().put(encode_parked_key(key(0)).replace(b"parked", b"resting"), b"?")


def test_the_last_record_of_a_partition_wins() -> None:
    notes = CheckpointNotes()
    other = CheckpointKey(key(0).source, "elsewhere")
    for where in (key(0), other):
        assert notes.put(encode_parked_key(where), encode_parked(PARKED))
    assert notes.put(encode_parked_key(key(0)), encode_parked(Parked(None, "no position", AT)))
    assert notes.parked == {key(0): Parked(None, "no position", AT), other: PARKED}
    assert notes.put(encode_parked_key(key(0)), None)
    assert notes.parked == {other: PARKED}


def test_skipped_ranges_are_kept_apart_and_in_order() -> None:
    notes = CheckpointNotes()
    ranges = [skipped(9, 9), skipped(3, 5), skipped(0, 0, partition=1), skipped(3, 5)]
    for one in ranges:
        assert notes.put(encode_skipped_key(one), encode_skipped(one))
    assert notes.skipped == [skipped(3, 5), skipped(9, 9), skipped(0, 0, partition=1)]
    notes.put(encode_skipped_key(skipped(9, 9)), None)
    assert notes.skipped == [skipped(3, 5), skipped(0, 0, partition=1)]


def test_corrupt_segments_of_the_same_offsets_are_kept_apart() -> None:
    notes = CheckpointNotes()
    gap, merged = skipped(3, 5), replace(skipped(3, 5), level=1, stored_at=AT)
    known = [gap, merged, replace(merged, level=0)]
    for one in known:
        assert notes.put(encode_skipped_key(one), encode_skipped(one))
    assert notes.skipped == known


@pytest.mark.parametrize(
    ("record_key", "value"),
    [
        (b"[]", b"{}"),
        (b"not json", b"{}"),
        (encode_parked_key(key(0)), b"{}"),
        (encode_parked_key(key(0)), encode_parked(PARKED).replace(b'"v":1', b'"v":2')),
        (encode_skipped_key(skipped(3, 5)).replace(b'"start":3', b'"start":6'), encode_skipped(skipped(3, 5))),
        (encode_waiting_key(key(0)), b"{}"),
        (encode_waiting_key(key(0)), encode_waiting(WAITING).replace(b'"v":1', b'"v":2')),
    ],
)
def test_a_malformed_record_changes_nothing(record_key: bytes, value: bytes) -> None:
    notes = CheckpointNotes()
    notes.put(encode_parked_key(key(0)), encode_parked(PARKED))
    notes.put(encode_waiting_key(key(0)), encode_waiting(WAITING))
    with pytest.raises(MalformedEvent):
        notes.put(record_key, value)
    assert (notes.parked, notes.skipped, notes.waiting) == ({key(0): PARKED}, [], {key(0): WAITING})


@settings(deadline=None)
@given(
    st.sampled_from(["eu-1", "x"]),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.text(max_size=20),
    st.one_of(st.none(), st.integers(0, 2**62)),
)
def test_encode_decode_round_trip(region: str, a: int, b: int, reason: str, at: int | None) -> None:
    where = CheckpointKey(SourcePartition(region, "orders", 3, "life"), "copy")
    note = Parked(at, reason, AT)
    gap = Skipped(key=where, offsets=OffsetRange(min(a, b), max(a, b)), reason=reason, at=AT)
    notes = CheckpointNotes()
    notes.put(encode_parked_key(where), encode_parked(note))
    notes.put(encode_skipped_key(gap), encode_skipped(gap))
    waiting = Waiting(min(a, b), AT, is_beginning=at is None)
    notes.put(encode_waiting_key(where), encode_waiting(waiting))
    assert (notes.parked, notes.skipped, notes.waiting) == ({where: note}, [gap], {where: waiting})
    notes.put(encode_waiting_key(where), None)
    assert notes.waiting == {}


def test_claims_are_kept_in_the_order_of_the_log() -> None:
    notes = CheckpointNotes()
    claims = [GroupClaim(id=name, number=1, group_id=name, at=AT) for name in "cab"]
    for claim in claims:
        assert notes.put(encode_claim_key(claim), encode_claim(claim))
    assert notes.claims == claims
    notes.put(encode_claim_key(claims[0]), None)
    assert notes.claims == claims[1:]


class TestStillParked:
    """A parked record that a leaving owner left behind does not apply for ever."""

    def test_without_a_checkpoint(self) -> None:
        assert still_parked(PARKED, None)

    @pytest.mark.parametrize(("next_offset", "wanted"), [(6, True), (7, True), (8, False)])
    def test_until_a_checkpoint_is_beyond_it(self, next_offset: int, wanted: bool) -> None:
        assert still_parked(PARKED, checkpoint(next_offset)) is wanted

    def test_without_a_position_until_a_later_checkpoint(self) -> None:
        nowhere = Parked(None, "created again", AT + timedelta(seconds=5))
        assert still_parked(nowhere, checkpoint(5))
        assert not still_parked(nowhere, checkpoint(6))  # stamped a second later
