"""Examples of which group gets a checkpoint topic; every order of steps: tests/stateful/test_group_claims.py."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from formats.errors import MalformedEvent, OtherGroup
from formats.messages.group_claim import (
    RECHECK_PERIOD,
    Ask,
    CountMembers,
    GroupClaim,
    ReadClaims,
    Withdraw,
    WriteClaim,
    claim_steps,
    current_claim,
    decode_claim,
    encode_claim,
    encode_claim_key,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FIRST = GroupClaim(id="1", number=1, group_id="first", at=NOW)
SECOND = replace(FIRST, id="2", group_id="second")
TAKEN = GroupClaim(id="3", number=2, group_id="second", over="first", at=NOW)


def asks(
    group_id: str, take_over: str = "", *, own: set[str] | None = None, now: datetime = NOW, cluster_id: str = ""
) -> Any:
    def make(number: int, over: str) -> GroupClaim:
        return GroupClaim(id="new", number=number, group_id=group_id, cluster_id=cluster_id, over=over, at=now)

    return claim_steps(
        topic="checkpoints",
        group_id=group_id,
        take_over=take_over,
        cluster_id=cluster_id,
        own=set() if own is None else own,
        make=make,
        now=now,
    )


def ended(asking: Generator[Ask, Any, GroupClaim], answer: object) -> GroupClaim:
    with pytest.raises(StopIteration) as caught:
        asking.send(answer)
    found: GroupClaim = caught.value.value
    return found


def test_an_unclaimed_topic_is_claimed_and_the_claim_is_read_back() -> None:
    asking = asks("first")
    assert next(asking) == ReadClaims()
    append = asking.send([])
    assert isinstance(append, WriteClaim)
    assert (append.claim.group_id, append.claim.number, append.claim.over) == ("first", 1, "")
    assert asking.send(None) == ReadClaims()
    assert ended(asking, [append.claim]) == append.claim


def test_the_first_of_two_claims_stands_and_the_other_is_withdrawn() -> None:
    assert current_claim([FIRST, SECOND]) == FIRST
    asking = asks("second", own={"2"})
    next(asking)
    assert asking.send([FIRST, SECOND]) == Withdraw(SECOND)
    assert asking.send(None) == ReadClaims()
    with pytest.raises(OtherGroup, match=r"belongs to group first .* this is group second.*--take-over first"):
        asking.send([FIRST])


def test_a_process_of_the_group_that_stands_writes_nothing() -> None:
    asking = asks("first")
    next(asking)
    assert ended(asking, [FIRST, SECOND]) == FIRST


def test_a_take_over_names_the_group_that_stands() -> None:
    asking = asks("third", take_over="second")
    next(asking)
    with pytest.raises(OtherGroup, match=r"belongs to group first .*not to second: nothing is taken over"):
        asking.send([FIRST])
    asking = asks("third", take_over="second")
    next(asking)
    with pytest.raises(OtherGroup, match="no second to take over"):
        asking.send([])


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_group_with_members_is_not_taken_over(when: str) -> None:
    """A process of it may have joined, and read its positions, right before the claim was written."""
    asking = asks("second", take_over="first")
    next(asking)
    assert asking.send([FIRST]) == CountMembers("first")
    if when == "after":
        append = asking.send(0)
        assert isinstance(append, WriteClaim)
        assert (append.claim.number, append.claim.over) == (2, "first")
        asking.send(None)
        assert asking.send([FIRST, append.claim]) == CountMembers("first")
    with pytest.raises(OtherGroup, match=r"group first, .* has 1 member\(s\)"):
        asking.send(1)


def test_a_group_without_members_is_taken_over() -> None:
    asking = asks("second", take_over="first")
    next(asking)
    asking.send([FIRST])
    append = asking.send(0)
    asking.send(None)
    assert asking.send([FIRST, append.claim]) == CountMembers("first")
    assert ended(asking, 0) == append.claim


@pytest.mark.parametrize(
    ("age", "take_over", "asked"),
    [(RECHECK_PERIOD / 2, "", True), (RECHECK_PERIOD, "", False), (2 * RECHECK_PERIOD, "first", True)],
)
def test_a_process_that_starts_soon_after_a_take_over_counts_members_too(
    age: timedelta, take_over: str, asked: bool
) -> None:
    asking = asks("second", take_over, now=NOW + age)
    next(asking)
    if asked:
        assert asking.send([FIRST, TAKEN]) == CountMembers("first")
        assert ended(asking, 0) == TAKEN
    else:
        assert ended(asking, [FIRST, TAKEN]) == TAKEN


def test_the_group_that_was_replaced_is_refused() -> None:
    asking = asks("first")
    next(asking)
    with pytest.raises(OtherGroup, match="belongs to group second"):
        asking.send([FIRST, TAKEN])


def test_encode_decode_round_trip() -> None:
    assert decode_claim(encode_claim_key(TAKEN), encode_claim(TAKEN)) == TAKEN


@pytest.mark.parametrize(
    "change",
    [lambda b: b.replace(b'"v":1', b'"v":2'), lambda b: b"{}", lambda b: b.replace(b'"number":2', b'"number":""')],
)
def test_malformed_claims_are_rejected(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(MalformedEvent):
        decode_claim(encode_claim_key(TAKEN), change(encode_claim(TAKEN)))


# --- a topic that was copied to another cluster -----------------------------------------------------------------------

HERE = replace(FIRST, cluster_id="cluster-a")


@pytest.mark.parametrize("group_id", ["first", "second"])
def test_a_topic_that_was_claimed_in_another_cluster_is_refused_with_both_ids(group_id: str) -> None:
    asking = asks(group_id, cluster_id="cluster-b")
    next(asking)
    with pytest.raises(OtherGroup, match=r"id cluster-a at .* this cluster has the id cluster-b: the topic was copied"):
        asking.send([HERE])


@pytest.mark.parametrize("cluster_id", ["cluster-a", ""])
def test_the_cluster_of_the_claim_is_this_one_or_unknown(cluster_id: str) -> None:
    asking = asks("first", cluster_id=cluster_id)
    next(asking)
    assert ended(asking, [HERE]) == HERE


def test_a_claim_without_a_cluster_is_not_treated_as_copied() -> None:
    asking = asks("first", cluster_id="cluster-b")
    next(asking)
    assert ended(asking, [FIRST]) == FIRST


def test_a_group_may_take_over_its_own_topic_in_the_other_cluster() -> None:
    asking = asks("first", "first", cluster_id="cluster-b")
    next(asking)
    append = asking.send([HERE])
    assert isinstance(append, WriteClaim), "its own members here are fenced by the group"
    assert (append.claim.number, append.claim.over, append.claim.cluster_id) == (2, "first", "cluster-b")
    assert asking.send(None) == ReadClaims()
    assert ended(asking, [HERE, append.claim]) == append.claim
    another = asks("first", cluster_id="cluster-b")
    next(another)
    assert ended(another, [HERE, append.claim]) == append.claim, "and asks for no members: it may have some by now"


def test_another_group_that_takes_over_a_copied_topic_expects_no_members() -> None:
    asking = asks("second", "first", cluster_id="cluster-b")
    next(asking)
    assert asking.send([HERE]) == CountMembers("first")
    with pytest.raises(OtherGroup, match=r"1 member\(s\)"):
        asking.send(1)


def test_the_wrong_group_is_not_taken_over_with_a_copied_topic() -> None:
    asking = asks("second", "third", cluster_id="cluster-b")
    next(asking)
    with pytest.raises(OtherGroup, match="the topic was copied"):
        asking.send([HERE])


def test_a_claim_keeps_its_cluster() -> None:
    assert decode_claim(encode_claim_key(HERE), encode_claim(HERE)) == HERE
