"""Which handover was taken back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from formats.messages.ledger import TakenBack
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
