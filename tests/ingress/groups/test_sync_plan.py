"""Which offsets are written for a group, and why the others are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.messages.ledger import WrittenOffset
from infra.contracts.cluster import GroupFacts, TopicPartition
from ingress.groups.positions import GroupPosition
from ingress.groups.sync_plan import SyncOutcome, sync_plan
from ingress.groups.translation import Exactness

TARGET = TopicPartition("us.orders", 0)
EMPTY = GroupFacts(state="empty", members=0, partitions=frozenset())
OFFSET = st.none() | st.integers(0, 5)


def position(downstream: int | None, exactness: Exactness = Exactness.EXACT) -> GroupPosition:
    return GroupPosition(
        group="billing",
        source="us/orders/0",
        target=TARGET,
        upstream=9,
        downstream=downstream,
        exactness=exactness if downstream is not None else Exactness.UNKNOWN,
        reason="" if downstream is not None else "before the map",
    )


def outcome(
    downstream: int | None,
    *,
    facts: GroupFacts | None = EMPTY,
    here: int | None = None,
    written: int | None = None,
    upstream: int | None = 10,  # the group was moved back at the source since
    exactness: Exactness = Exactness.EXACT,
    is_held: bool = False,
    allow_rewind: bool = False,
) -> SyncOutcome:
    [decision] = sync_plan(
        [position(downstream, exactness)],
        facts=facts,
        committed={} if here is None else {TARGET: here},
        written={} if written is None else {TARGET: WrittenOffset(written, upstream)},
        held={TARGET.topic} if is_held else set(),
        allow_rewind=allow_rewind,
    )
    assert decision.here == here
    assert bool(decision.reason) == (decision.outcome not in (SyncOutcome.WRITE, SyncOutcome.SAME))
    if decision.outcome is SyncOutcome.WRITE:
        assert decision.offset == downstream
    return decision.outcome


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (None, SyncOutcome.UNKNOWN_STATE),
        (GroupFacts(state="stable", members=1, partitions=frozenset()), SyncOutcome.ACTIVE),
        (GroupFacts(state="preparing_rebalancing", members=0, partitions=frozenset()), SyncOutcome.ACTIVE),
        (GroupFacts(state="unknown", members=0, partitions=frozenset()), SyncOutcome.ACTIVE),
        (EMPTY, SyncOutcome.WRITE),
        (GroupFacts(state="dead", members=0, partitions=frozenset()), SyncOutcome.WRITE),
    ],
)
def test_only_groups_that_are_inactive_for_certain(facts: GroupFacts | None, expected: SyncOutcome) -> None:
    assert outcome(4, facts=facts) is expected


def test_what_is_not_known_is_not_written() -> None:
    assert outcome(None) is SyncOutcome.UNTRANSLATED


def test_a_group_advances() -> None:
    assert outcome(4, here=3) is SyncOutcome.WRITE
    assert outcome(4, here=4) is SyncOutcome.SAME


def test_a_group_goes_back_only_where_allowed_and_untouched() -> None:
    assert outcome(4, here=5, written=5) is SyncOutcome.AHEAD
    assert outcome(4, here=5, written=5, allow_rewind=True) is SyncOutcome.WRITE
    assert outcome(4, here=5, written=3, allow_rewind=True) is SyncOutcome.MOVED
    assert outcome(4, here=5, allow_rewind=True) is SyncOutcome.MOVED


@pytest.mark.parametrize("upstream", [9, 8])
def test_news_of_the_map_are_no_reset(upstream: int) -> None:
    """The group stands at the source where it stood at the last write, or further, and yet its place here is lower."""
    assert outcome(4, here=5, written=5, upstream=upstream, allow_rewind=True) is SyncOutcome.AHEAD


def test_a_reset_to_what_retention_removed_is_followed() -> None:
    assert outcome(4, here=5, written=5, exactness=Exactness.TRIMMED, allow_rewind=True) is SyncOutcome.WRITE


@pytest.mark.parametrize("exactness", [Exactness.EXACT, Exactness.TRIMMED])
def test_without_the_offset_at_the_source_only_an_exact_place_is_a_reset(exactness: Exactness) -> None:
    found = outcome(4, here=5, written=5, upstream=None, exactness=exactness, allow_rewind=True)
    assert found is (SyncOutcome.WRITE if exactness is Exactness.EXACT else SyncOutcome.AHEAD)


@pytest.mark.parametrize("here", [None, 3, 4, 5])
def test_a_group_that_an_operator_holds_stays(here: int | None) -> None:
    assert outcome(4, here=here, written=5, is_held=True, allow_rewind=True) is SyncOutcome.HELD


@given(OFFSET, OFFSET, OFFSET, st.booleans())
def test_never_back_behind_a_commit_that_is_not_ours(
    downstream: int | None, here: int | None, written: int | None, allow_rewind: bool
) -> None:
    found = outcome(downstream, here=here, written=written, allow_rewind=allow_rewind)
    if found is SyncOutcome.WRITE and here is not None and downstream is not None and downstream < here:
        assert allow_rewind
        assert written == here
