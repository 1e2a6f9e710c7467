"""Copies of copies: what came from this cluster is not copied back, and what arrives on two ways is delivered once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.catalog import MERGED
from ingress.routing.archived import RoutingPlan
from tests.examples import property_examples
from tests.ingress.world import World, source_settings, source_topic

HOUR = timedelta(hours=1)


def plan(world: World) -> RoutingPlan:
    return world.archived_topics().plan(world.settings, world.catalogs().refresh(world.settings.regions))


def test_topics_of_the_catalogue_are_planned_before_anything_is_stored() -> None:
    world = World(source_settings("^.*", "{topic}"))
    world.publish_catalog(source_topic("t"), source_topic("u"), source_topic("replicator.ledger"))
    found = plan(world)
    assert sorted(found.chosen) == ["t", "u"]
    assert not found.idle


@pytest.mark.parametrize("destination", ["{topic}", None, "a.{topic}"])
def test_what_came_from_this_cluster_is_not_copied_back(destination: str | None) -> None:
    world = World(source_settings("^.*", destination))
    world.publish_catalog(source_topic("t", lineage=["b", "cluster"]), source_topic("u", lineage=["b"]))
    world.put(0, 3, topic="t")
    found = plan(world)
    assert [one[0].source.name for one in found.chosen.values()] == ["u"]
    assert "are not copied back" in found.kept_away[0].reason
    assert found.reasons == {}, "nothing stops, and nobody has to decide"


def test_a_topic_of_the_source_cluster_itself_is_no_copy() -> None:
    """Both regions may be one cluster: names tell the topics apart."""
    world = World(source_settings("^.*", None))
    world.publish_catalog(source_topic("t"), source_topic("t.ingress", lineage=["cluster"]), cluster_id="cluster")
    assert list(plan(world).chosen) == ["t.ingress"]


def test_a_topic_that_is_newer_than_the_catalogue_waits_for_the_next_one() -> None:
    """It may be a copy of one of this cluster's topics."""
    world = World(source_settings("^.*", None, first_segment_delay=HOUR))
    world.publish_catalog(source_topic("t"))
    world.clock.advance(60)
    world.claim(0, topic="u")
    world.put(0, 3, topic="u")
    assert list(plan(world).chosen) == ["t.ingress"]
    world.publish_catalog(source_topic("t"), source_topic("u", lineage=["cluster"]))
    assert list(plan(world).chosen) == ["t.ingress"]
    world.publish_catalog(source_topic("t"), source_topic("u"))
    assert sorted(plan(world).chosen) == ["t.ingress", "u.ingress"]


def test_a_topic_that_no_catalogue_lists_is_delivered_in_the_end() -> None:
    """It was deleted before it was observed."""
    world = World(source_settings("^.*", None, first_segment_delay=HOUR))
    world.publish_catalog(source_topic("t"))
    world.claim(0, topic="u")
    world.put(0, 3, topic="u")
    assert "u.ingress" not in plan(world).chosen
    world.clock.advance(3600)
    assert "u.ingress" in plan(world).chosen


def test_an_archive_from_before_the_catalogue_is_delivered_at_once() -> None:
    world = World(source_settings("^.*", None))
    world.claim(0, topic="u")
    world.put(0, 3, topic="u")
    world.put(0, 3, topic="ancestor")
    world.clock.advance(7200)
    world.publish_catalog(source_topic("t"))
    assert sorted(plan(world).chosen) == ["ancestor.ingress", "t.ingress", "u.ingress"]


@pytest.mark.parametrize(
    ("first", "second", "wanted"), [(["o"], ["x", "o"], "b"), (["x", "o"], ["o"], "c"), (["o"], ["o"], "b")]
)
def test_records_that_arrive_on_two_ways_are_delivered_once(first: list[str], second: list[str], wanted: str) -> None:
    sources = [source_settings("^.*", "{topic}", region=region, allow_merge=True) for region in "bc"]
    world = World(*sources)
    world.publish_catalog(source_topic("t", lineage=first), region="b", cluster_id="b")
    world.publish_catalog(source_topic("t", lineage=second), region="c", cluster_id="c")
    found = plan(world)
    assert [one.region for one in found.chosen["t"]] == [wanted]
    assert found.refused == []


def test_topics_of_different_origin_are_merged_where_that_is_allowed() -> None:
    world = World(*(source_settings("^.*", "{topic}", region=region, allow_merge=True) for region in "bc"))
    world.publish_catalog(source_topic("t"), region="b", cluster_id="b")
    world.publish_catalog(source_topic("t"), region="c", cluster_id="c")
    assert len(plan(world).chosen["t"]) == 2


def test_a_topic_where_several_meet_is_no_copy_of_one_of_them() -> None:
    sources = [source_settings("^.*", "{topic}", region=region, allow_merge=True) for region in "ac"]
    world = World(*sources)
    world.publish_catalog(source_topic("t"), region="a", cluster_id="a")
    world.publish_catalog(source_topic("t", lineage=["a", "b", MERGED]), region="c", cluster_id="c")
    assert [one.region for one in plan(world).chosen["t"]] == ["a", "c"]


def test_a_topic_where_several_meet_is_not_copied_back_to_any() -> None:
    world = World(source_settings("^.*", None))
    world.publish_catalog(source_topic("t", lineage=["b", "cluster", MERGED]))
    assert plan(world).chosen == {}


def test_a_fail_back_may_deliver_what_came_from_here() -> None:
    world = World(source_settings("t", "t", ignore_lineage=True))
    world.publish_catalog(source_topic("t", lineage=["cluster"]))
    assert list(plan(world).chosen) == ["t"]


@property_examples()
@given(
    st.integers(2, 4),
    st.sampled_from(["{topic}", None, "{region}.{topic}"]),
    st.lists(st.sampled_from("tu"), unique=True),
)
def test_a_ring_comes_to_rest(size: int, destination: str | None, topics: list[str]) -> None:
    """Each cluster copies everything of the one before it, its copies of others' topics, too."""
    clusters = [f"c{n}" for n in range(size)]
    here: list[dict[str, tuple[str, ...]]] = [{f"{topic}{n}": () for topic in topics} for n in range(size)]
    counts = []
    for _ in range(size * 2 + 2):
        for n, cluster in enumerate(clusters):
            before = clusters[n - 1]
            name = destination and destination.replace("{region}", before)
            world = World(source_settings("^.*", name, region=before))
            world.admin.cluster = cluster
            known = [source_topic(topic, lineage=lineage) for topic, lineage in here[n - 1].items()]
            world.publish_catalog(*known, region=before, cluster_id=before)
            catalogs = world.catalogs().refresh([before])
            for made, (one,) in world.archived_topics().plan(world.settings, catalogs).chosen.items():
                here[n].setdefault(made, one.source.lineage(catalogs))
        counts.append(sum(map(len, here)))
    assert counts[-1] == counts[-2] == counts[size], "each topic is in each cluster, once"
    assert counts[-1] == size * size * len(topics)
