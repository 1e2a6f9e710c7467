"""The cut of a restore as bytes, and what it says of partitions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.packed import pack
from formats.control.restore_cut import Cut, CutTopic, decode_cut, encode_cut
from formats.errors import MalformedEvent
from formats.messages.checkpoint_notes import CheckpointNotes
from formats.messages.delivery_checkpoint import CUT_KEY

T0 = datetime(2026, 1, 1, tzinfo=UTC)
times = st.datetimes(timezones=st.just(UTC))
topics = st.integers(1, 4).flatmap(
    lambda n: st.builds(
        CutTopic,
        topic_id=st.text("ab"),
        ends=st.tuples(*[st.none() | st.integers(0, 2**63 - 1)] * n),
        settled=st.frozensets(st.integers(0, n - 1)),
    )
)
cuts = st.builds(
    Cut,
    region=st.text("ab"),
    wanted_at=times,
    generation=st.integers(1, 2**40),
    observed_at=times,
    settled_at=st.none() | times,
    next_observed_at=st.none() | times,
    is_transactional=st.booleans(),
    topics=st.dictionaries(st.text("ab"), topics, max_size=3),
)
CUT = Cut(
    region="us",
    wanted_at=T0,
    generation=7,
    observed_at=T0,
    settled_at=T0,
    next_observed_at=None,
    is_transactional=False,
    topics={"orders": CutTopic(topic_id="id", ends=(5, None, 0), settled=frozenset({0}))},
)


@given(cuts)
def test_round_trip(cut: Cut) -> None:
    assert decode_cut(encode_cut(cut)) == cut
    assert encode_cut(decode_cut(encode_cut(cut))) == encode_cut(cut)


@pytest.mark.parametrize("data", [b"", b"{}", pack({"v": 2}), pack({"v": 1}), encode_cut(CUT)[:-5]])
def test_anything_else_is_an_error_that_says_so(data: bytes) -> None:
    with pytest.raises(MalformedEvent, match="not the cut of a restore"):
        decode_cut(data)


def test_where_partitions_ended() -> None:
    assert [CUT.end("orders", partition) for partition in range(4)] == [5, None, 0, 0]
    assert CUT.end("carts", 0) == 0, "it did not exist"
    assert list(CUT.unsettled(lambda _, partition: partition != 1)) == [("orders", 2)]


def test_the_moment_of_everything_else_is_the_settled_one_only_where_that_was_asked_for() -> None:
    later = replace(CUT, wanted_at=datetime(2027, 1, 1, tzinfo=UTC))
    assert later.moment == later.wanted_at
    assert replace(later, is_transactional=True).moment == T0


def test_it_is_kept_with_the_checkpoints_and_is_no_position() -> None:
    notes = CheckpointNotes()
    assert notes.put(CUT_KEY, encode_cut(CUT))
    assert notes.cut == notes.copy().cut == encode_cut(CUT)
