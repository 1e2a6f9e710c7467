"""The plan of a failover: its numbers and verdicts against a model, and its steps, whatever ends between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.messages.ledger import Failover, FailoverPhase
from formats.segment import OffsetRange, SourcePartition
from infra.contracts.cluster import GroupFacts, TopicPartition
from ingress.groups.positions import GroupPosition
from ingress.groups.sync_plan import IS_HELD, SyncOutcome, sync_plan
from ingress.groups.target_groups import USED
from ingress.groups.translation import Exactness
from replicator.failover.execute import Executed
from replicator.failover.plan import (
    ArrivingPartition,
    FailoverPlan,
    GroupVerdict,
    NextStep,
    left_over,
    next_step,
    planned_groups,
)
from tests.examples import property_examples

NOW = datetime(2026, 3, 4, tzinfo=UTC)
EMPTY, STABLE = (
    GroupFacts(state=state, members=n, partitions=frozenset()) for state, n in (("empty", 0), ("stable", 1))
)
HERE = TopicPartition("us.orders", 0)


def partition(delivered: int, arrived: int, end: int | None) -> ArrivingPartition:
    return ArrivingPartition(
        source=SourcePartition("us", "orders", 0),
        target=HERE,
        delivered=delivered,
        begins=0,
        arrived=arrived,
        source_end=end,
        complete_as_of=NOW,
    )


def position(group: str, upstream: int, delivered: int) -> GroupPosition:
    """Offsets here are those of the source, as far as they are delivered."""
    return GroupPosition(
        group=group,
        source="us/orders/0",
        target=HERE,
        upstream=upstream,
        downstream=min(upstream, delivered),
        exactness=Exactness.EXACT if upstream <= delivered else Exactness.CLAMPED,
    )


def plan(state: ArrivingPartition, groups: Mapping[str, int], facts: GroupFacts | None = EMPTY) -> FailoverPlan:
    decisions = {
        group: sync_plan(
            [position(group, at, state.delivered or 0)], facts=facts, committed={}, written={}, allow_rewind=False
        )
        for group, at in groups.items()
    }
    return FailoverPlan(
        region="us",
        now=NOW,
        state=None,
        heartbeat_at=NOW,
        watermarks_at=NOW,
        snapshot_at=NOW,
        partitions=[state],
        groups=planned_groups(decisions, [state]),
        members=1,
    )


logs = st.lists(st.integers(0, 20), min_size=3, max_size=3).map(sorted)
groups = st.dictionaries(st.sampled_from("abc"), st.integers(0, 22))


@property_examples()
@given(logs, groups)
def test_the_numbers_are_what_is_seen_later(log: list[int], at: Mapping[str, int]) -> None:
    delivered, arrived, end = log
    found = plan(partition(delivered, arrived, end), at)
    assert (found.to_deliver, found.missing) == (arrived - delivered, end - arrived)
    after = plan(partition(arrived, arrived, end), at)  # once all is delivered
    for group, offset in at.items():
        [one], [then] = found.groups[group], after.groups[group]
        expected = (
            GroupVerdict.EXACT
            if offset <= delivered
            else GroupVerdict.WAITING
            if offset <= arrived
            else GroupVerdict.BEYOND
        )
        assert (one.verdict, one.beyond) == (expected, max(offset - arrived, 0))
        assert then.verdict is (GroupVerdict.EXACT if one.verdict.is_exact else one.verdict)
        assert then.beyond == one.beyond
    lost = end > arrived or any(offset > arrived for offset in at.values())
    assert found.is_exact is not lost
    assert set(left_over(after.groups)) == set()
    # one beyond what arrived goes on to its end, once that is delivered
    assert set(left_over(found.groups)) == {group for group, offset in at.items() if delivered < min(offset, arrived)}


def test_what_is_missing_within_the_bucket_is_lost_as_what_is_missing_behind_it() -> None:
    """One segment of several did not arrive: the last offset that did says nothing of it."""
    state = replace(partition(20, 50, 60), absent=[OffsetRange(30, 39)])
    found = plan(state, {})
    assert (found.to_deliver, found.missing) == (20, 20)
    assert "us/orders/0: 20 offsets did not arrive: [30,39], [50,59]" in found.problems
    found = plan(replace(state, source_end=50), {})
    assert (found.missing, found.is_exact) == (10, False)
    assert "us/orders/0: 10 offsets did not arrive: [30,39]" in found.problems


@pytest.mark.parametrize("facts", [STABLE, None])
def test_a_group_in_use_is_left(facts: GroupFacts | None) -> None:
    found = plan(partition(5, 5, 5), {"g": 3}, facts)
    assert [one.verdict for one in found.groups["g"]] == [GroupVerdict.ACTIVE]
    assert left_over(found.groups) == ("g",)
    assert not found.is_exact
    active = Failover(region="us", epoch=1, phase=FailoverPhase.ACTIVE, at=NOW)
    assert replace(found, state=active).is_exact  # it is used here, as it should be


def test_a_group_that_is_used_in_the_moment_of_its_commit_is_left() -> None:
    """Nothing was committed for it, and where it stands by now is not known: it may be behind."""
    state = partition(5, 5, 5)
    decided = sync_plan([position("g", 3, 5)], facts=EMPTY, committed={}, written={}, allow_rewind=False)
    found = planned_groups({"g": [replace(one, outcome=SyncOutcome.MOVED, reason=USED) for one in decided]}, [state])
    assert [one.verdict for one in found["g"]] == [GroupVerdict.ACTIVE]
    assert left_over(found) == ("g",)


@pytest.mark.parametrize(
    ("here", "expected"),
    [(None, GroupVerdict.HELD), (1, GroupVerdict.HELD), (3, GroupVerdict.AHEAD), (4, GroupVerdict.AHEAD)],
)
def test_a_group_that_an_operator_holds_behind_its_place_is_not_ahead(here: int | None, expected: GroupVerdict) -> None:
    """It counted as further here, and once the failover was done no line and no exit code named it."""
    state = partition(5, 5, 5)
    held = sync_plan(
        [position("g", 3, 5)],
        facts=EMPTY,
        committed={} if here is None else {HERE: here},
        written={},
        held={HERE.topic},
        allow_rewind=False,
    )
    found = replace(plan(state, {}), groups=planned_groups({"g": held}, [state]))
    assert [one.verdict for one in found.groups["g"]] == [expected]
    assert left_over(found.groups) == (), "it stays where it was put"
    done = replace(found, state=Failover(region="us", epoch=1, phase=FailoverPhase.ACTIVE, at=NOW))
    named = [f"group g in us/orders/0: held: {IS_HELD}"] if expected is GroupVerdict.HELD else []
    assert done.problems == named


def test_what_a_group_had_yet_to_read_before_the_begin_of_the_archive_is_named() -> None:
    """Egress began at the end of the log, and the group was behind: it went on at the begin, as if exactly there."""
    state = replace(partition(50, 50, 50), never_here=OffsetRange(10, 29))
    found = plan(state, {"behind": 20, "first": 3, "at": 30, "later": 40})
    assert {group: (one.verdict, one.unread) for group, [one] in found.groups.items()} == {
        "behind": (GroupVerdict.PARTIAL, 10),
        "first": (GroupVerdict.PARTIAL, 20),
        "at": (GroupVerdict.EXACT, 0),
        "later": (GroupVerdict.EXACT, 0),
    }
    assert (
        "group behind in us/orders/0: partial: 10 offsets that it had yet to read lie before 30, where delivery began, "
        "and are not here"
    ) in found.problems
    assert left_over(found.groups) == ()


def test_a_group_that_was_left_and_has_no_position_now_stays_left() -> None:
    """A broker that does not know its destination for a moment would end the failover without it."""
    found = plan(partition(5, 5, 5), {"g": 3}).groups
    assert left_over(found, asked=("g", "h")) == ("h",)
    assert left_over({}, asked=("h",)) == ("h",)


def test_a_group_whose_place_a_broker_did_not_say_is_left() -> None:
    """And the step is no success, whatever a broker answers by the time that the plan is read again."""
    state = partition(5, 5, 5)
    unknown = replace(position("g", 3, 5), downstream=None, exactness=Exactness.UNKNOWN, reason="no leader")
    groups = {}
    for later in (False, True):
        decision = sync_plan(
            [replace(unknown, is_known_later=later)], facts=EMPTY, committed={}, written={}, allow_rewind=False
        )
        groups[later] = planned_groups({"g": decision}, [state])
        assert left_over(groups[later]) == (("g",) if later else ())
    exact = plan(state, {"g": 3})
    active = Failover(region="us", epoch=1, phase=FailoverPhase.ACTIVE, at=NOW)
    assert Executed(plan=exact, state=active, committed=exact.groups).is_whole
    assert not Executed(plan=exact, state=active, committed=groups[True]).is_whole


def test_what_is_not_known_is_stated() -> None:
    found = plan(partition(5, 5, None), {})
    assert found.missing is None
    assert any("no watermarks" in one for one in found.problems)
    known = replace(partition(5, 5, 8), target=TopicPartition("us.orders", 1))
    both = replace(found, partitions=[*found.partitions, known])
    assert (both.missing, both.unknown_ends) == (3, 1)
    [problem, *_] = replace(found, partitions=[], watermarks_at=None).problems
    assert problem.startswith("how many offsets did not arrive is not known: no watermarks of us have arrived")
    assert any("no snapshot" in one for one in replace(found, snapshot_at=None).problems)
    assert any("no ingress runs" in one for one in replace(plan(partition(1, 5, 5), {}), members=0).problems)
    assert replace(found, partitions=[replace(found.partitions[0], complete_as_of=None)]).complete_as_of is None


@property_examples()
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans())), st.booleans())
def test_each_step_follows_from_what_is_recorded(runs: list[tuple[int, bool, bool]], give_up: bool) -> None:
    """Each run ends after some step, perhaps before it is recorded; groups may be in use meanwhile."""
    state: Failover | None = None
    committed = 0
    for to_deliver, is_recorded, is_in_use in [*runs, *[(0, True, False)] * 5]:
        step = next_step(state, to_deliver=to_deliver, give_up=give_up)
        before = state
        match step:
            case NextStep.BEGIN:
                after = Failover(region="us", epoch=1, phase=FailoverPhase.DRAINING, at=NOW)
            case NextStep.DRAIN:
                assert to_deliver
                assert not give_up
                continue
            case NextStep.CHOOSE:
                assert before is not None
                after = replace(before, phase=FailoverPhase.GROUPS, snapshot=7)
            case NextStep.COMMIT | NextStep.RETRY:
                assert before is not None
                assert before.snapshot == 7
                committed += 1
                after = replace(before, phase=FailoverPhase.ACTIVE, left=("g",) if is_in_use else ())
            case NextStep.NOTHING:
                assert before is not None
                assert (before.phase, before.left) == (FailoverPhase.ACTIVE, ())
                continue
        state = after if is_recorded else before
    assert committed
    assert next_step(state, to_deliver=9, give_up=False) is NextStep.NOTHING
    assert next_step(state, to_deliver=0, give_up=False, snapshot=9) is NextStep.NOTHING, "one has counted"
    assert state is not None
    failed_back = replace(state, phase=FailoverPhase.FAILED_BACK)
    assert next_step(failed_back, to_deliver=0, give_up=False) is NextStep.BEGIN


def test_groups_continue_by_a_snapshot_that_arrives_after_the_failover() -> None:
    """Without one nothing was committed: a run that had nothing more to do would leave them all at their resets."""
    active = Failover(region="us", epoch=1, phase=FailoverPhase.ACTIVE, at=NOW)
    assert next_step(active, to_deliver=0, give_up=False, snapshot=0) is NextStep.NOTHING
    assert next_step(active, to_deliver=9, give_up=False, snapshot=7) is NextStep.CHOOSE
    chosen = replace(active, phase=FailoverPhase.GROUPS, snapshot=7)
    assert next_step(chosen, to_deliver=0, give_up=False, snapshot=8) is NextStep.COMMIT
    done = replace(chosen, phase=FailoverPhase.ACTIVE)
    assert next_step(done, to_deliver=0, give_up=False, snapshot=8) is NextStep.NOTHING
