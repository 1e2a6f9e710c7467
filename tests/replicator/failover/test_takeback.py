"""Which handover was taken back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from formats.messages.ledger import TakenBack
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from ingress.groups.positions import GroupPosition
from ingress.groups.sync_plan import SyncDecision, SyncOutcome
from ingress.groups.translation import Exactness
from replicator.failover.plan import ArrivingPartition, FailoverPlan, PlannedPosition, planned_groups
from replicator.failover.takeback import TakeBackPlan

NOW = datetime(2026, 3, 4, tzinfo=UTC)
EARLIER = NOW - timedelta(days=1)


@pytest.mark.parametrize(
    ("state", "is_done"),
    [
        (None, False),
        (TakenBack(region="b", handover=1, at=NOW, made_at=NOW), True),
        (TakenBack(region="b", handover=1, at=NOW), True),  # by a version that did not say
        (TakenBack(region="b", handover=2, at=NOW, made_at=NOW), False),
        (TakenBack(region="b", handover=1, at=NOW, made_at=NOW, left=("g",)), False),
        (TakenBack(region="b", handover=1, at=NOW, made_at=EARLIER), False),  # another bucket's first
    ],
)
def test_done_is_this_handover_and_no_other_of_its_number(state: TakenBack | None, *, is_done: bool) -> None:
    plan = TakeBackPlan(region="b", now=NOW, handover=1, handed_over_at=NOW, state=state)
    assert plan.is_done is is_done
    assert bool(plan.waits_for) is False


def test_without_a_handover_nothing_is_done() -> None:
    state = TakenBack(region="b", handover=0, at=NOW)
    assert not TakeBackPlan(region="b", now=NOW, handover=0, handed_over_at=None, state=state).is_done


def arriving(reach: int, *, writes_groups: bool, snapshot_at: datetime | None = None) -> FailoverPlan:
    """Of what was produced in the other region."""
    partition = ArrivingPartition(
        source=SourcePartition("b", "local", 0),
        target=TopicPartition("b.local", 0),
        delivered=reach,
        arrived=reach,
        source_end=reach,
    )
    return FailoverPlan(
        region="b",
        now=NOW,
        state=None,
        heartbeat_at=NOW,
        watermarks_at=NOW,
        snapshot_at=snapshot_at,
        partitions=[partition],
        writes_groups=writes_groups,
    )


def taking(found: FailoverPlan, state: TakenBack | None = None) -> TakeBackPlan:
    return TakeBackPlan(region="b", now=NOW, handover=1, handed_over_at=NOW, state=state, arriving=found)


def test_the_groups_wait_for_the_first_snapshot_of_a_region_that_writes_them() -> None:
    """They were taken back without their offsets in what was produced there, and counted as whole."""
    assert taking(arriving(9, writes_groups=True)).waits_for.startswith("no snapshot of the groups of b has arrived")
    assert taking(arriving(9, writes_groups=True, snapshot_at=NOW)).waits_for == ""
    assert "is older" in taking(arriving(9, writes_groups=True, snapshot_at=EARLIER)).waits_for
    done = TakenBack(region="b", handover=1, at=NOW, made_at=NOW)
    assert taking(arriving(9, writes_groups=True), done).waits_for == ""


def test_of_a_region_that_writes_no_groups_it_is_named_what_is_not_known() -> None:
    found = taking(arriving(9, writes_groups=False))
    assert found.waits_for == "", "it would wait for ever"
    [problem] = found.problems
    assert problem.startswith("where the groups stand in what was produced in b is not known")
    assert taking(arriving(0, writes_groups=False)).problems == [], "nothing was"


def test_what_was_not_known_when_the_groups_were_taken_back_is_named_once() -> None:
    """By the run that has done it, not by those that find it done."""
    known = replace(arriving(9, writes_groups=True, snapshot_at=NOW), not_in_snapshot=["a broker did not answer"])
    before = taking(known)
    assert before.problems == ["a broker did not answer"]
    done = taking(known, TakenBack(region="b", handover=1, at=NOW, made_at=NOW))
    assert done.problems == []
    assert replace(done, committed_without=before.not_known).problems == ["a broker did not answer"]


def of_group(upstream: int, reach: int) -> PlannedPosition:
    """In what was produced in the other region; offsets here are those there."""
    position = GroupPosition(
        group="g",
        source="b/local/0",
        target=TopicPartition("b.local", 0),
        upstream=upstream,
        downstream=min(upstream, reach),
        exactness=Exactness.EXACT if upstream <= reach else Exactness.CLAMPED,
    )
    decision = SyncDecision(position=position, outcome=SyncOutcome.WRITE, here=None)
    return planned_groups({"g": [decision]}, arriving(reach, writes_groups=True).partitions)["g"][0]


def test_what_a_group_has_read_there_is_waited_for_until_it_has_arrived() -> None:
    """A snapshot may arrive before the segments: the group was put at the end of these, for good."""
    known = arriving(9, writes_groups=True, snapshot_at=NOW)
    for upstream, waits in ((9, False), (12, True)):
        found = replace(taking(known), groups={"g": [of_group(upstream, 9)]})
        assert bool(found.waits_for) is waits
    assert found.waits_for.startswith("groups have read 3 offsets of b that have not arrived here")
    done = replace(found, state=TakenBack(region="b", handover=1, at=NOW, made_at=NOW))
    assert done.waits_for == ""
