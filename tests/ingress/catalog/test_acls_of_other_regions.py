"""ACLs of groups and prefixes, which are of no destination alone: who may revoke them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from formats.messages.ledger import Failover, FailoverPhase, OwnedTopic
from tests.ingress.acls import READ
from tests.ingress.catalog.test_applier import delivered, follow
from tests.ingress.process import Process
from tests.ingress.world import HERE, World, source_settings, source_topic

GROUP = replace(READ, resource_type="GROUP", resource_name="billing")
PREFIX = replace(READ, resource_name="orders.", pattern_type="PREFIXED", operation="WRITE")


def mirrored() -> tuple[World, Process]:
    """Of t from region a, and of u from region z, whose catalogue has both ACLs."""
    world = World(source_settings(), source_settings("u", "copy-u", region="z"))
    world.settings = replace(world.settings, acls="dr-full", protect=False)
    world.publish_catalog(source_topic("u"), region="z", acls=[GROUP, PREFIX, replace(READ, resource_name="u")])
    world.publish_catalog(source_topic(), acls=[READ])
    process = delivered(world)
    follow(process, 2)
    assert {GROUP, PREFIX} <= world.catalog_admin.bindings
    return world, process


def fail_over(world: World) -> None:
    world.ledger.write([Failover(region="z", epoch=1, phase=FailoverPhase.ACTIVE, at=world.clock.at)])


def test_a_region_revokes_what_it_revoked_at_its_own() -> None:
    world, process = mirrored()
    world.publish_catalog(source_topic("u"), region="z", acls=[PREFIX, replace(READ, resource_name="u")])
    follow(process, 3)
    assert GROUP not in world.catalog_admin.bindings
    assert PREFIX in world.catalog_admin.bindings


def test_a_region_that_was_failed_over_from_revokes_nothing() -> None:
    """It may come back as an empty cluster, while its consumers are here."""
    world, process = mirrored()
    fail_over(world)
    world.publish_catalog(region="z", acls=[])
    follow(process, 3)
    assert {GROUP, PREFIX} <= world.catalog_admin.bindings


def test_nor_does_it_grant_anything() -> None:
    world, process = mirrored()
    fail_over(world)
    later = replace(GROUP, resource_name="later")
    world.publish_catalog(source_topic("u"), region="z", acls=[GROUP, PREFIX, later])
    follow(process, 3)
    assert later not in world.catalog_admin.bindings


def test_a_source_that_left_the_file_has_revoked_nothing() -> None:
    world, process = mirrored()
    process.current.replace(replace(world.settings, sources=(source_settings(),)))
    follow(process, 3)
    assert {GROUP, PREFIX} <= world.catalog_admin.bindings


@pytest.mark.parametrize("source", [f"{HERE}/heartbeats", "rehearsal of z.u"])
def test_topics_of_this_regions_own_are_of_no_source_that_could_have_granted_them(source: str) -> None:
    """Heartbeats, which are there wherever a source has a policy, and what a rehearsal made."""
    world, process = mirrored()
    own = OwnedTopic(name="own", topic_id="id-own", source=source, at=world.clock.at)
    world.ledger.write([own])
    world.publish_catalog(source_topic("u"), region="z", acls=[PREFIX, replace(READ, resource_name="u")])
    follow(process, 3)
    assert GROUP not in world.catalog_admin.bindings
    assert PREFIX in world.catalog_admin.bindings
