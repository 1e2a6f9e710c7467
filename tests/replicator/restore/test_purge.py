"""A destination that is emptied before the first record: what the plan says, and what is deleted when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import BrokerUnavailable, TargetError
from infra.contracts.cluster import TopicPartition, Watermarks
from infra.runtime.crash_points import AFTER, BEFORE, Step, observe
from replicator.restore.acl_restore import AclRestore
from replicator.restore.conflicts import ConflictKind
from replicator.restore.plan import RestorePlan, conflicts_text
from replicator.restore.purge import Purge, carry_out
from replicator.restore.topic_setup import TopicSetup
from tests.examples import property_examples
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_catalog import FakeCatalogAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.ingress.world import World
from tests.replicator.restore.planned import begin, existing, only, plan, reasons, select

T = [TopicPartition("t", n) for n in range(3)]
CONFIRMED = [ConflictKind.PURGE]


def filled() -> World:
    """An archive of two partitions, and a topic of three, with records in the first and the last one."""
    world = existing(partitions=3)
    world.broker.append(T[0], *[b"theirs"] * 5)
    world.broker.trim(T[0], 2)
    world.broker.append(T[2], b"theirs")
    return world


def setup(world: World) -> TopicSetup:
    acls = AclRestore(lambda: FakeCatalogAdmin(world.admin), [])
    return TopicSetup(admin=world.admin, acls=acls, replication_factor=1, is_whole=True)


def held(world: World) -> list[int]:
    """Records of each partition."""
    return [len(world.broker.logs[p].records) for p in T]


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_the_plan_names_what_is_deleted_and_is_refused_until_it_is_confirmed() -> None:
    found = plan(filled(), purge=True)
    topic = only(found)
    assert topic.purge is not None
    assert topic.purge.filled == {T[0]: Watermarks(2, 5), T[2]: Watermarks(0, 1)}
    assert (topic.purge.offsets, found.refused) == (4, True)
    assert set(reasons(topic)) == {ConflictKind.PURGE}
    [line] = conflicts_text(found)
    assert line.startswith("  purge: t holds records that --purge deletes: up to 4 in partitions 0, 2")
    assert line.endswith("To delete them, add --yes"), "by no other option"
    found = plan(filled(), purge=True, accept=CONFIRMED)
    assert not found.refused
    assert conflicts_text(found)[0].endswith("(accepted)")
    assert held(filled()) == [3, 0, 1], "a plan deletes nothing"


def test_nothing_is_confirmed_by_another_option() -> None:
    assert plan(filled(), purge=True, accept=[ConflictKind.FOREIGN_DATA]).refused
    topic = only(plan(filled(), accept=CONFIRMED))
    assert (set(reasons(topic)), topic.purge) == ({ConflictKind.FOREIGN_DATA}, None), "--yes alone deletes nothing"
    assert "or empty this one with --purge" in reasons(topic)[ConflictKind.FOREIGN_DATA]


def test_there_is_nothing_to_empty() -> None:
    for world in (existing(), World()):
        world.put(10, 19)
        assert (only(plan(world, purge=True)).purge, plan(world, purge=True).refused) == (None, False)


def test_only_the_selected_partitions_are_emptied() -> None:
    topic = only(plan(filled(), select(partitions=[0]), purge=True))
    assert topic.purge is not None
    assert list(topic.purge.ends) == [T[0]]


def test_what_this_restore_has_begun_is_not_emptied() -> None:
    world = filled()
    begin(world)
    assert only(plan(world, purge=True)).purge is None
    assert not plan(world, purge=True).refused
    begin(world, topic_id="id-before")
    topic = only(plan(world, purge=True, accept=CONFIRMED))
    assert (set(reasons(topic)), topic.purge) == ({ConflictKind.OTHER_TARGET}, None)


@pytest.mark.parametrize(("policy", "is_refused"), [("compact", True), ("compact,delete", False), ("delete", False)])
def test_a_topic_that_is_only_compacted_cannot_be_emptied(policy: str, is_refused: bool) -> None:
    world = filled()
    world.admin.settings["t"] = {"cleanup.policy": policy}
    found = plan(world, purge=True, accept=list(ConflictKind))
    assert found.refused == is_refused
    if is_refused:
        why = next(c.reason for c in only(found).conflicts if c.kind is ConflictKind.NOT_ALLOWED)
        assert "cleanup.policy to delete until it is restored" in why


# --- carried out ------------------------------------------------------------------------------------------------------


def test_it_is_emptied_once() -> None:
    world = filled()
    found = plan(world, purge=True, accept=CONFIRMED)
    setup(world).prepare(found, begun=set())
    assert held(world) == [0, 0, 0]
    world.broker.append(T[0], b"restored")
    setup(world).prepare(found, begun={"t"})
    assert held(world) == [1, 0, 0]


def test_a_process_that_was_frozen_deletes_nothing_that_a_later_one_wrote() -> None:
    world = filled()
    late = plan(world, purge=True, accept=CONFIRMED)
    setup(world).prepare(plan(world, purge=True, accept=CONFIRMED), begun=set())
    world.broker.append(T[0], b"restored", b"restored")
    with pytest.raises(TargetError, match=r"records were written to t/0 since this was planned"):
        setup(world).prepare(late, begun=set())
    assert held(world) == [2, 0, 0]


def test_records_that_somebody_still_writes_are_kept_and_reported() -> None:
    world = filled()
    found = plan(world, purge=True, accept=CONFIRMED)
    world.broker.append(T[1], b"theirs")
    with pytest.raises(TargetError, match="stop their writers, and plan again"):
        setup(world).prepare(found, begun=set())
    assert held(world) == [0, 1, 0]


def test_a_refusal_ends_it() -> None:
    world = filled()
    found = plan(world, purge=True, accept=CONFIRMED)
    world.admin.keeps["t"] = "not authorised: allow DELETE"
    with pytest.raises(TargetError, match="allow DELETE"):
        setup(world).prepare(found, begun=set())
    world.admin.away = True
    with pytest.raises(BrokerUnavailable):
        setup(world).prepare(found, begun=set())


class Killed(Exception):
    pass


def killing(when: str) -> Callable[[Step, str], None]:
    def kill(step: Step, at: str) -> None:
        if (step, at) == (Step.DELETE_RECORDS, when):
            raise Killed

    return kill


@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_killed_it_goes_on(when: str) -> None:
    world = filled()
    observe(killing(when))
    try:
        with pytest.raises(Killed):
            setup(world).prepare(plan(world, purge=True, accept=CONFIRMED), begun=set())
    finally:
        observe(None)
    again: RestorePlan = plan(world, purge=True, accept=CONFIRMED)
    assert (only(again).purge is None) == (when == AFTER), "there is nothing left to empty"
    setup(world).prepare(again, begun=set())
    assert held(world) == [0, 0, 0]


@property_examples()
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=4))
def test_exactly_what_was_planned_is_deleted(partitions: list[tuple[int, int, int]]) -> None:
    """For each partition: records before the plan, of which some were trimmed, and records after it."""
    broker = FakeBroker()
    names = broker.create("t", partitions=len(partitions))
    for name, (count, trimmed, _) in zip(names, partitions, strict=True):
        broker.append(name, *[b"theirs"] * count)
        broker.trim(name, min(trimmed, count))
    admin = FakeAdmin(broker)
    purge = Purge(admin.watermarks(names))
    assert purge.offsets == sum(len(broker.logs[name].records) for name in names)
    for name, (_, _, later) in zip(names, partitions, strict=True):
        broker.append(name, *[b"later"] * later)
    if any(later for _, _, later in partitions):
        with pytest.raises(TargetError):
            carry_out(admin, purge)
    else:
        carry_out(admin, purge)
    assert [[r.value for r in broker.logs[n].records.values()] for n in names] == [
        [b"later"] * p[2] for p in partitions
    ]
