"""Frames of `replicator top`: what they show, and that they fit."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.watermarks import TopicWatermarks
from formats.messages.delivery_checkpoint import Checkpoint
from formats.segment import SourcePartition
from infra.contracts.cluster import LogEnds
from replicator.status.egress import EgressStatus
from replicator.status.egress_partition import EgressPartitionStatus
from replicator.top.frame import frame
from replicator.top.snapshot import (
    FlowName,
    Group,
    Row,
    Snapshot,
    archive_rows,
    by_topic,
    complete_as_of,
    delivery_rows,
    with_rates,
)
from replicator.top.view import ORDERS, TopView
from tests.fakes.cluster_facts import FakeGroups
from tests.ingress.world import World, source_settings
from tests.ingress.world import key as checkpoint_key

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
INTERVAL = timedelta(seconds=2)


def row(name: str, behind: int = 0, position: int = 0, **more: object) -> Row:
    given_: dict[str, object] = {"flow": FlowName.DELIVER, **more}
    return Row(name=name, behind=behind, position=position, **given_)  # type: ignore[arg-type]


ROWS = [
    row("us/orders/0 -> us.orders", 10, 100, oldest=timedelta(minutes=5)),
    row("us/orders/1 -> us.orders", 3000, 100, state="parked at 100"),
    row("us/clicks/0 -> us.clicks", 0, 7),
    row("eu/orders/0", 500, 20, flow=FlowName.ARCHIVE, oldest=timedelta(seconds=40), state="2 gaps"),
]
FOUND = Snapshot(
    region="eu",
    at=NOW,
    rows=ROWS,
    groups=[
        Group(flow=FlowName.ARCHIVE, name="replicator.egress", members=2, gaps=2),
        Group(flow=FlowName.DELIVER, name="replicator.ingress", members=0, parked=1),
    ],
    sources=["source us: heartbeat 3s ago"],
    problems=[f"problem {n}" for n in range(5)],
    complete_as_of=NOW - timedelta(seconds=12),
)


def lines(view: TopView | None = None, found: Snapshot | None = FOUND, **given_: object) -> list[str]:
    options: dict[str, object] = {"width": 200, "height": 24, "now": NOW, "interval": INTERVAL, **given_}
    return list(frame(found, view or TopView(), **options).lines)  # type: ignore[arg-type]


def names(view: TopView) -> list[str]:
    shown = lines(view)
    head = next(n for n, line in enumerate(shown) if line.startswith("flow"))
    return [line.split()[1] for line in shown[head + 1 :] if line.startswith(("deliver", "archive"))]


def test_the_header_says_how_it_goes() -> None:
    shown = lines()
    assert shown[0] == "region eu  12:00:00 UTC  every 2 s  5 problems  by behind"
    assert shown[1] == "archive  2 processes in replicator.egress, 1 partition, 500 behind, oldest 40s, 2 gaps"
    assert shown[2] == (
        "deliver  NO PROCESS RUNS, 3 partitions, 3,010 behind, oldest 5m, complete as of 12s ago, 1 PARKED"
    )
    assert shown[3] == "source us: heartbeat 3s ago"
    assert [line for line in shown if line.startswith("!")] == [
        *("! problem 0", "! problem 1", "! problem 2", "! and 2 more")
    ]
    assert shown[-1].startswith("q quit")


def test_the_worst_come_first() -> None:
    assert names(TopView()) == ["us/orders/1", "eu/orders/0", "us/orders/0", "us/clicks/0"]
    assert names(TopView(order="oldest"))[0] == "us/orders/0"
    assert names(TopView(order="name")) == ["eu/orders/0", "us/clicks/0", "us/orders/0", "us/orders/1"]
    assert names(TopView(by_topic=True)) == ["us/orders", "eu/orders", "us/clicks"]


def test_topics_have_the_sum_of_their_partitions() -> None:
    (orders,) = [one for one in by_topic(ROWS) if one.name == "us/orders -> us.orders"]
    assert (orders.behind, orders.position, orders.partitions) == (3010, 200, 2)
    assert orders.oldest == timedelta(minutes=5)
    assert orders.state == "parked at 100"


def test_a_topic_has_each_state_of_its_partitions_once() -> None:
    states = ["waits", "see problems", "waits", "", "see problems"]
    (topic,) = by_topic([row(f"us/orders/{n} -> us.orders", state=state) for n, state in enumerate(states)])
    assert (topic.state, topic.partitions) == ("waits; see problems", 5)


def archived(*, gaps: int, losses: int) -> EgressStatus:
    one = EgressPartitionStatus(
        source=SourcePartition("eu", "orders", 0),
        ends=LogEnds(low=0, stable=9, high=9),
        committed=9,
        archive_end=9,
        open_since=None,
        recorded_gaps=gaps,
        losses=losses,
        proof=None,
        problems=(),
    )
    return EgressStatus(group_id="g", group=FakeGroups().facts("g"), partitions=(one,), topics={})


@pytest.mark.parametrize(("losses", "state"), [(0, ""), (1, "1 gap"), (2, "2 gaps")])
def test_gaps_that_need_nothing_any_more_are_not_marked(losses: int, state: str) -> None:
    """Retention removed what was archived, or an operator accepted them."""
    assert [one.state for one in archive_rows(archived(gaps=3, losses=losses), {}, NOW)] == [state]


def test_a_reading_without_an_answer_has_its_age() -> None:
    since, why = NOW - timedelta(seconds=12), "a cluster or the bucket is slow, or away"
    assert lines(found=None, since=NOW - timedelta(seconds=2))[0] == "reading ..."
    assert lines(found=None, since=since)[0] == f"reading ...  no answer for 12s: {why}"
    late = lines(now=NOW + timedelta(seconds=9), since=since)
    assert late[0].endswith(f"by behind  9s old  no answer for 21s: {why}")
    both = lines(found=None, trouble="no broker", since=since)
    assert both[0] == f"reading ...  could not be read: no broker  no answer for 12s: {why}"


def test_watermarks_may_be_older_than_what_is_stored() -> None:
    world = World()
    world.put(0, 199)
    world.set_checkpoint(10)
    world.beat(world.publish_watermarks(10))
    (found,) = delivery_rows(world.status(), world.lags())
    assert found.behind == 190


def test_what_has_not_arrived_has_a_row_and_nothing_is_complete() -> None:
    world = World(source_settings(topic="^t.*", destination="copy.{topic}"))
    world.put(0, 9)
    world.target.checkpoints[checkpoint_key(destination="copy.t")] = Checkpoint(10, "id-copy.t", world.clock.at)
    marks = {
        name: TopicWatermarks(topic_id=name, low=(0,), high=(end,), stable=(end,), position=(end,))
        for name, end in (("t", 10), ("t2", 5000))
    }
    world.beat(world.publish_ends(marks))
    lags = world.lags()
    assert [(one.name, one.behind, one.state) for one in delivery_rows(world.status(), lags)] == [
        ("a/t/0 -> copy.t", 0, ""),
        ("a/t2/0 -> copy.t2", 5000, "nothing has arrived"),
    ]
    assert complete_as_of(lags) is None
    assert complete_as_of(lags[:1]) == world.clock.at


def test_what_is_not_known_to_be_behind_is_not_0() -> None:
    """No watermarks have arrived, and all that is stored here is delivered."""
    world = World(source_settings())
    world.broker.create("copy", partitions=1)
    world.put(0, 9)
    world.set_checkpoint(10)
    group = Group(flow=FlowName.DELIVER, name="replicator.ingress", members=1)
    found = Snapshot(region="b", at=NOW, groups=[group], rows=list(delivery_rows(world.status(), world.lags())))
    shown = lines(found=found)
    assert shown[1] == "deliver  1 process in replicator.ingress, 1 partition, at least 0 behind"
    assert "a/t/0 -> copy       -       -" in shown[4]
    assert "at least" in lines(TopView(by_topic=True), found)[1]
    world.beat(world.publish_watermarks(10))
    known = replace(found, rows=list(delivery_rows(world.status(), world.lags())))
    assert lines(found=known)[1].endswith("1 partition, 0 behind")


def test_rates_are_of_two_readings() -> None:
    later = replace(FOUND, at=NOW + timedelta(seconds=4), rows=[row(ROWS[0].name, 0, 120), row("new", 1, 50)])
    rated = with_rates(later, FOUND)
    assert [one.rate for one in rated.rows] == [5.0, None]
    assert [one.rate for one in with_rates(FOUND, None).rows] == [None] * 4
    assert [one.rate for one in with_rates(FOUND, FOUND).rows] == [None] * 4
    back = with_rates(replace(later, rows=[row(ROWS[0].name, 0, 50)]), FOUND)
    assert back.rows[0].rate == 0.0
    shown = lines(found=replace(rated, rows=[replace(rated.rows[0], behind=50)]))
    assert "us.orders" in shown[-7] or any("10s" in line for line in shown)


def test_before_the_first_reading_and_after_a_failed_one() -> None:
    assert lines(found=None, trouble="no broker")[0] == "reading ...  could not be read: no broker"
    late = lines(now=NOW + timedelta(seconds=9), trouble="no\nbroker")
    assert late[0].endswith("by behind  9s old  could not be read: no broker")


def test_all_problems_can_be_seen() -> None:
    shown = lines(TopView(shows_problems=True))
    assert [line for line in shown if line.startswith("! problem")] == [f"! problem {n}" for n in range(5)]
    assert "none" in lines(TopView(shows_problems=True), replace(FOUND, problems=[]))


def test_what_a_reason_quotes_does_nothing_to_the_terminal() -> None:
    shown = lines(found=replace(FOUND, problems=["\x1b[2Jgone\r\n"]))
    assert "! " + " [2Jgone  " in shown


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ("s", TopView(order="oldest")),
        ("ssss", TopView()),
        ("p", TopView(by_topic=True)),
        ("pp!", TopView(shows_problems=True)),
        ("q", TopView(is_over=True)),
        ("x", TopView()),
    ],
)
def test_keys(keys: str, wanted: TopView) -> None:
    view = TopView()
    for key in keys:
        view = view.after(key, lines=100, page=10)
    assert view == wanted


@pytest.mark.parametrize(
    ("first", "key", "wanted"),
    [
        *((0, "up", 0), (0, "down", 1), (90, "down", 90), (5, "up", 4)),
        *((0, "page-down", 10), (85, "page-down", 90), (5, "page-up", 0), (40, "home", 0), (0, "end", 90)),
    ],
)
def test_scrolling_ends_at_the_ends(first: int, key: str, wanted: int) -> None:
    assert TopView(first=first).after(key, lines=100, page=10).first == wanted


def test_fewer_lines_than_before_are_shown_from_where_they_are() -> None:
    shown = frame(FOUND, TopView(first=50), width=80, height=24, now=NOW, interval=INTERVAL)
    assert any("us/orders/1" in line for line in shown.lines)


VIEWS = st.builds(
    TopView,
    order=st.sampled_from(list(ORDERS)),
    by_topic=st.booleans(),
    shows_problems=st.booleans(),
    first=st.integers(0, 50),
)
NAMES = st.text(max_size=30)
FOUNDS = st.builds(
    lambda rows, problems: replace(FOUND, rows=rows, problems=problems),
    st.lists(st.builds(row, NAMES, st.integers(0, 10**12), st.integers(0, 10**12), state=NAMES), max_size=30),
    st.lists(NAMES, max_size=8),
)


@given(found=st.none() | FOUNDS, view=VIEWS, width=st.integers(20, 200), height=st.integers(4, 60), trouble=NAMES)
def test_a_frame_fits_any_terminal(
    found: Snapshot | None, view: TopView, width: int, height: int, trouble: str
) -> None:
    shown = frame(found, view, width=width, height=height, now=NOW, trouble=trouble, interval=INTERVAL)
    assert len(shown.lines) <= height
    assert all(len(line) <= width for line in shown.lines)
    assert all(line.isprintable() for line in shown.lines)
    again = view.after("end", lines=shown.table_lines, page=shown.page)
    assert 0 <= again.first <= max(shown.table_lines - shown.page, 0)
