"""A destination is deleted with its source where that is asked for, and only when it is certain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest

from formats.control.catalog import MERGED, RemovedTopic
from infra.contracts.cluster import TopicPartition
from infra.runtime import crash_points
from infra.runtime.crash_points import Step
from ingress.catalog.applier import CatalogApplier, ClusterPlan
from ingress.routing.archived import kept_like_sources
from tests.ingress.acls import READ
from tests.ingress.process import joined
from tests.ingress.world import DELAY, REGION, World, source_settings, source_topic

P0 = TopicPartition("copy", 0)
LATER = (DELAY, 300.0, 40.0, 40.0)  # seconds: what is stored is listed every five minutes


class Removal:
    """Topic t is delivered to copy, with an ACL, and `others` are as well."""

    def __init__(
        self, removals: Literal["report", "mirror"] = "mirror", others: int = 1, poison: int | None = None
    ) -> None:
        names = ["t", *(f"t{number}" for number in range(others))]
        self.world = World(*(source_settings(name, name.replace("t", "copy")) for name in names))
        self.world.settings = replace(self.world.settings, removals=removals, protect=False)
        self.world.publish_catalog(*map(source_topic, names), acls=[READ])
        if poison is not None:
            self.world.target.poison[P0] = {poison}
        for name in names:
            self.world.claim(0, topic=name, topic_id=f"id-{name}")
            self.world.put(0, 3, topic=name)
        self.process = joined(self.world, *(TopicPartition(n.replace("t", "copy"), 0) for n in names))
        self.wait()
        self.names = names

    def wait(self) -> None:
        for seconds in LATER:
            self.process.later(seconds, turns=8)

    def removed(self, *gone: str, topic_id: str = "id-{}") -> None:
        """At the source, where Kafka keeps the ACLs of a topic that is gone."""
        tombs = [RemovedTopic(name=one, topic_id=topic_id.format(one), removed_at=self.world.clock.at) for one in gone]
        self.world.publish_catalog(
            *(source_topic(one) for one in self.names if one not in gone), removed=tombs, acls=[READ]
        )

    @property
    def exists(self) -> bool:
        return "copy" in self.world.admin.describe(["copy"])

    def plan(self, applier: CatalogApplier, regions: Sequence[str] = (REGION,)) -> ClusterPlan:
        found = self.process.controller._watcher.found
        kept = kept_like_sources({name: one.routes for name, one in found.destinations.items()})
        catalogs = self.world.catalogs().refresh(regions)
        return applier.plan(kept, catalogs, self.process.controller._checkpoints.positions)

    @property
    def reports(self) -> list[str]:
        return list(self.plan(self.world.applier()).reports)


def of_copy(removal: Removal) -> str:
    [report] = [one for one in removal.reports if "gone at the source" in one]
    return report


def test_it_is_deleted_with_its_acls_once_and_not_created_again() -> None:
    removal = Removal()
    assert removal.world.catalog_admin.bindings == {replace(READ, resource_name="copy")}
    removal.removed("t")
    removal.wait()
    assert not removal.exists
    assert removal.world.catalog_admin.bindings == set()
    again = joined(removal.world, TopicPartition("copy0", 0))
    for seconds in LATER:
        again.later(seconds)
    assert not removal.exists, "the archive still has its segments"
    assert (removal.process.problems, again.problems, again.ready) == ({}, {}, True)
    assert removal.world.admin.describe(["copy0"])


def test_by_default_it_stays_and_that_is_reported() -> None:
    removal = Removal(removals="report")
    removal.removed("t")
    removal.wait()
    assert removal.exists
    assert of_copy(removal) == "copy: a/t is gone at the source; this topic is kept"


def test_an_absence_is_no_removal_nor_is_that_of_another_topic_of_this_name() -> None:
    removal = Removal()
    removal.world.publish_catalog(source_topic("t0"))
    removal.wait()
    assert removal.exists
    removal.removed("t", topic_id="another")
    removal.wait()
    assert removal.exists
    assert "is not known" in of_copy(removal)


def test_it_waits_until_everything_is_delivered() -> None:
    removal = Removal(poison=2)
    removal.removed("t")
    removal.wait()
    assert removal.exists
    assert "not everything that is stored of it is delivered" in of_copy(removal)
    del removal.world.target.poison[P0]
    removal.process.later(600, turns=8)
    removal.wait()
    assert not removal.exists
    assert removal.world.checkpoint() == 4


def test_segments_may_still_arrive_for_a_while() -> None:
    removal = Removal()
    removal.removed("t")
    removal.process.later(DELAY - 1, turns=8)
    assert removal.exists
    assert "may still arrive" in of_copy(removal)


@pytest.mark.parametrize("who", ["recreated", "foreign"])
def test_a_topic_of_somebody_else_stays(who: str) -> None:
    removal = Removal()
    if who == "recreated":
        removal.world.broker.recreate("copy")
    else:
        removal.world.ledger.records.clear()
    removal.process.stop()
    removal.process = joined(removal.world, P0)
    removal.removed("t")
    removal.wait()
    assert removal.exists


@pytest.mark.parametrize(("others", "gone", "goes"), [(0, 1, True), (3, 2, True), (3, 3, False), (1, 2, False)])
def test_more_than_half_of_a_source_never_goes_at_once(others: int, gone: int, *, goes: bool) -> None:
    removal = Removal(others=others)
    removal.removed(*removal.names[:gone])
    removal.wait()
    assert removal.exists is not goes
    if not goes:
        assert any("more than half are never deleted" in one for one in removal.reports)


def test_a_deletion_that_is_refused_is_a_problem_and_tried_again() -> None:
    removal = Removal()
    removal.world.catalog_admin.keeps["copy"] = "allow DELETE on the topic"
    removal.removed("t")
    removal.wait()
    assert "allow DELETE" in removal.process.problems["copy at the source"]
    removal.world.catalog_admin.keeps.clear()
    removal.wait()
    removal.wait()
    assert not removal.exists
    assert removal.process.problems == {}


def test_a_topic_that_is_created_again_before_the_deletion_stays() -> None:
    removal = Removal()
    removal.removed("t")
    removal.world.clock.advance(DELAY)
    applier = removal.world.applier()
    plan = removal.plan(applier)
    assert "delete copy, since a/t is gone at the source" in plan.changes
    removal.world.broker.recreate("copy")
    applier.apply(plan)
    assert removal.exists


@pytest.mark.parametrize(
    ("own", "other", "stays"),
    [
        (("b",), ("origin", ()), True),  # only the copy is gone
        (("b",), ("c", ("b",)), True),
        (("b",), ("c", ("d", "b")), False),
        ((), ("b", ("source",)), False),  # the copies of what is gone
        (("b",), ("elsewhere", ()), False),
        (("b", MERGED), ("c", ("b", MERGED)), False),
    ],
)
def test_a_copy_whose_records_are_still_there_as_near_is_no_reason(
    own: tuple[str, ...], other: tuple[str, tuple[str, ...]], *, stays: bool
) -> None:
    """The other way was left out since this one had begun."""
    removal = Removal()
    gone = RemovedTopic(name="t", topic_id="id-t", removed_at=removal.world.clock.at, lineage=own)
    cluster_id, lineage = other
    removal.world.publish_catalog(removed=[gone])
    removal.world.publish_catalog(
        source_topic("t", lineage=lineage), region="b", cluster_id="b" if cluster_id == "origin" else cluster_id
    )
    removal.world.clock.advance(DELAY)
    plan = removal.plan(removal.world.applier(), [REGION, "b"])
    assert ("delete copy, since a/t is gone at the source" in plan.changes) is not stays
    assert any("the same records are still in b/t" in one for one in plan.reports) is stays


class Died(BaseException):
    """Not caught by anything, like a kill."""


@pytest.mark.parametrize("step", [Step.DELETE_ACLS, Step.RECORD_OWNERSHIP, Step.DELETE_TOPIC])
@pytest.mark.parametrize("when", [crash_points.BEFORE, crash_points.AFTER])
def test_a_removal_that_dies_on_the_way_is_completed_by_the_next_one(step: Step, when: str) -> None:
    removal = Removal()
    removal.removed("t")

    def die(at: Step, moment: str) -> None:
        if (at, moment) == (step, when):
            raise Died

    crash_points.observe(die)
    try:
        with pytest.raises(Died):
            removal.wait()
    finally:
        crash_points.observe(None)
    removal.process = joined(removal.world, P0, TopicPartition("copy0", 0))
    removal.wait()
    assert not removal.exists
    assert removal.world.catalog_admin.bindings == set()
    assert removal.process.problems == {}
