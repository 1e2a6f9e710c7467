"""The next process completes what one that dies at any durable step leaves; topics and ACLs of others stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.policies.acls import AclBinding
from formats.policies.topic_configs import CREATED_WITH
from infra.runtime import crash_points
from infra.runtime.crash_points import Step
from ingress.catalog.desired import KeptTopic, SourceTopic
from tests.examples import property_examples
from tests.ingress.world import REGION, World, source_topic

KEPT = {
    name: KeptTopic(
        sources=[SourceTopic(region=REGION, name=name)], archived=[], first_segment_delay=timedelta(minutes=1)
    )
    for name in ("mine", "foreign")
}
DEFAULTS = {"segment.bytes": "1073741824", "segment.ms": "604800000"}
FOREIGN = AclBinding(
    resource_type="TOPIC",
    resource_name="mine",
    pattern_type="LITERAL",
    principal="User:foreign",
    host="*",
    operation="READ",
    permission="ALLOW",
)


class Died(BaseException):
    """Not caught by anything, like a kill."""


@contextmanager
def dies_at(number: int) -> Iterator[list[Died]]:
    """At the so-manieth end of a durable step; 0 and up. The list has the death, if it came to that."""
    count, deaths = 0, list[Died]()

    def observe(_step: Step, _when: str) -> None:
        nonlocal count
        count += 1
        if count > number:
            raise Died

    crash_points.observe(observe)
    try:
        yield deaths
    except Died as died:
        deaths.append(died)
    finally:
        crash_points.observe(None)


def run(world: World) -> None:
    """One process: it creates what is missing, then makes it like its source."""
    catalogs = world.catalogs().refresh([REGION])
    applier = world.applier()
    for name in KEPT.keys() - world.admin.describe(KEPT.keys()).keys():
        topic = catalogs[REGION].topics[name]
        configs = {key: one.value for key, one in (topic.configs or {}).items() if one.source.value == "topic"}
        world.creator().create(name, topic.partitions, configs, source=f"a/{name}", lineage=("source",))
    for _ in range(2):
        applier.apply(applier.plan(KEPT, catalogs, {}))


configs = st.dictionaries(st.sampled_from(["segment.bytes", "segment.ms"]), st.sampled_from(["1", "2"]))
grants = st.frozensets(st.sampled_from(["User:a", "User:b"]))
states = st.tuples(st.integers(1, 4), configs, grants)


State = tuple[int, dict[str, str], frozenset[str]]


@pytest.mark.parametrize("death", range(20))
def test_after_each_step_the_next_one_completes_it(death: int) -> None:
    first = (2, {"segment.bytes": "1"}, frozenset({"User:a", "User:b"}))
    world = World()
    publish(world, first)
    with dies_at(death) as died:
        run(world)
    assert bool(died) is (death < 16), "two creations have 6 ends of steps each, ACLs have 4"
    expect_like_the_source(first, (3, {"segment.ms": "2"}, frozenset({"User:b"})), [death])


@property_examples()
@given(states, states, st.lists(st.integers(0, 15), max_size=4))
def test_whatever_dies_the_next_one_completes_it(first: State, second: State, deaths: list[int]) -> None:
    expect_like_the_source(first, second, deaths)


def expect_like_the_source(first: State, second: State, deaths: list[int]) -> None:
    world = World()
    world.broker.create("foreign", partitions=1)
    world.admin.settings["foreign"] = {"segment.bytes": "7"}
    world.catalog_admin.bindings.add(FOREIGN)
    unset: State = (second[0], {}, second[2])
    for partitions, settings, principals in (first, second, unset):
        publish(world, (max(partitions, first[0]), settings, principals))
        for number in deaths:
            with dies_at(number):
                run(world)
        run(world)
        assert world.admin.describe(["mine"])["mine"].partition_count == max(partitions, first[0])
        assert {
            key: value for key, value in world.admin.settings["mine"].items() if key not in CREATED_WITH
        } == settings
        assert world.catalog_admin.bindings == {FOREIGN, *(replace(FOREIGN, principal=one) for one in principals)}
    assert world.admin.settings["foreign"] == {"segment.bytes": "7"}
    assert world.admin.describe(["foreign"])["foreign"].partition_count == 1
    assert world.ledger.read().topic("mine", "id-mine") is not None
    assert world.ledger.read().topic("foreign", "id-foreign") is None
    assert FOREIGN not in world.ledger.read().acls


def publish(world: World, state: State) -> None:
    partitions, settings, principals = state
    world.publish_catalog(
        *(source_topic(name, partitions=partitions, configs=settings, defaults=DEFAULTS) for name in KEPT),
        acls=[replace(FOREIGN, principal=one) for one in principals],
    )


@pytest.mark.parametrize("are_known", [True, False])
def test_a_topic_is_ours_where_no_configs_cross(*, are_known: bool) -> None:
    """Its creator died before that was written down; configs are not mirrored, or the source does not show them."""
    for death in range(12):
        world = World()
        if are_known:
            world.settings = replace(world.settings, configs="off")
        topics = [source_topic(name) for name in KEPT]
        world.publish_catalog(*(one if are_known else replace(one, configs=None) for one in topics))
        world.broker.create("foreign", partitions=2)
        with dies_at(death):
            run(world)
        run(world)
        assert world.ledger.read().topic("mine", "id-mine") is not None, death
        assert world.ledger.read().topic("foreign", "id-foreign") is None
