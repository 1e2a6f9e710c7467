"""How the restore of a partition ends: an ended partition stays ended, and a replaced destination makes everything
void."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from formats.segment import OffsetRange, SourcePartition
from infra.archive.archive import PartitionListing
from infra.contracts.cluster import TopicPartition
from infra.runtime.lookups import ask
from ingress.delivery.events import DeliveryTarget
from ingress.segment_view import SegmentView
from ingress.sequencer import Deliver, LatePolicy, Sequencer
from replicator.restore.partition_plan import PartitionPlan
from replicator.restore.progress import (
    Asking,
    AskLater,
    Done,
    Idle,
    Known,
    RestoreListing,
    RestoreOutcome,
    RestoringPartition,
    UnderWay,
    WaitingForTurn,
)
from tests.fakes.executors import HandExecutor

T0 = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = LatePolicy(first_segment_delay=timedelta(), late_retries=1, lost_timeout=timedelta(), skip_lost=False)
SOURCE, TARGET = SourcePartition("a", "t", 0), TopicPartition("copy", 0)


def partition() -> RestoringPartition:
    plan = PartitionPlan(
        source=SOURCE, target=TARGET, offsets=OffsetRange(0, 9), infos=(), recorded=(), missing=(), listed_at=T0
    )
    target = DeliveryTarget(SOURCE, TARGET, "id", 1, clamp_timestamps=False)
    return RestoringPartition(plan, target, Sequencer(POLICY, SegmentView(), 0), T0, records=7, size_bytes=70)


@given(st.lists(st.sampled_from(("done", "broken", "replaced")), max_size=5))
def test_an_ended_partition_stays_ended(events: list[str]) -> None:
    held = partition()
    for number, event in enumerate(events):
        match event:
            case "done":
                if not held.is_over:  # as the restorer asks
                    held.ending = Done()
            case "broken":
                held.fail(f"broken {number}")
            case _:
                held.void(f"replaced {number}")
    last = max((n for n, event in enumerate(events) if event != "done"), default=None)
    assert held.is_over == bool(events)
    assert held.failed == ("" if last is None else f"{events[last]} {last}")
    assert held.is_void == ("replaced" in events)
    outcome = RestoreOutcome.of(held)
    assert outcome.is_void == held.is_void
    assert outcome.records == (0 if held.is_void else 7)
    assert outcome.is_done == (bool(events) and set(events) == {"done"})
    assert outcome.is_whole == (not held.failed)


def unanswered() -> PartitionListing:
    raise AssertionError("a listing that is under way")


@given(
    st.sampled_from([Idle(), WaitingForTurn(Deliver(()), T0), UnderWay()]),
    st.sampled_from([Known(), AskLater(T0), Asking(ask(HandExecutor(), dict))]),
    st.booleans(),
)
def test_a_partition_without_work_in_flight_is_at_rest(
    work: Idle | WaitingForTurn | UnderWay, position: Known | AskLater | Asking, is_listed: bool
) -> None:
    held = partition()
    held.work, held.position = work, position
    held.listing = RestoreListing(ask(HandExecutor(holding=True), unanswered), T0) if is_listed else None
    assert held.is_at_rest == (work == Idle() and position == Known() and not is_listed)
    assert held.is_under_way == (work == UnderWay())
