"""Copies of copies: what came from this cluster is not copied back, and what arrives on two ways is delivered once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.catalog import MERGED, Catalog, RemovedTopic
from formats.errors import BrokerUnavailable, CheckpointConflict
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey
from formats.segment import SourcePartition
from ingress.catalog.desired import SourceTopic
from ingress.routing.archived import RoutingPlan
from ingress.routing.copies import delivered_ways, repeated, ways_of
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
    assert found.reasons == {}, "nothing stops, and no operator has to decide"


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


def gone(*lineage: str) -> RemovedTopic:
    return RemovedTopic(name="t", topic_id="id-t", removed_at=datetime(2026, 1, 1, tzinfo=UTC), lineage=lineage)


@pytest.mark.parametrize("exists", ["b", "c", ""])
def test_a_way_whose_topic_was_removed_is_one_of_the_ways(exists: str) -> None:
    """What the archive has of it is still delivered; once, and from a topic that exists, where there is one."""
    world = two_ways()
    for region in "bc":
        world.put(0, 3, topic="t", region=region)
        if region != exists:
            world.publish_catalog(region=region, cluster_id=region, removed=[gone("o")])
    assert [one.region for one in plan(world).chosen["t"]] == [exists or "b"]


def test_a_removed_way_with_which_delivery_began_is_kept() -> None:
    world = two_ways()
    world.put(0, 3, topic="t", region="b")
    world.publish_catalog(region="b", cluster_id="b", removed=[gone("o")])
    world.target.checkpoints[way("b")] = position()
    assert [one.region for one in plan(world).chosen["t"]] == ["b"]


def test_a_removed_topic_whose_records_came_from_this_cluster_is_not_copied_back() -> None:
    world = World(source_settings("^.*", "{topic}"))
    world.put(0, 3, topic="t")
    world.publish_catalog(removed=[gone("b", "cluster")])
    found = plan(world)
    assert found.chosen == {}
    assert "are not copied back" in found.kept_away[0].reason


def two_ways() -> World:
    """The way by b counts, unless one of them was delivered."""
    world = World(*(source_settings("^.*", "{topic}", region=region, allow_merge=True) for region in "bc"))
    for region in "bc":
        world.publish_catalog(source_topic("t", lineage=["o"]), region=region, cluster_id=region)
    return world


def way(region: str, *, partition: int = 0, destination: str = "t", incarnation: str = "") -> CheckpointKey:
    return CheckpointKey(SourcePartition(region, "t", partition, incarnation), destination)


def position(author: Author = Author.EXACTLY_ONCE, begun_at: int | None = 0) -> Checkpoint:
    return Checkpoint(5, "id-t", datetime(2026, 1, 1, tzinfo=UTC), author, begun_at=begun_at)


@pytest.mark.parametrize("key", [way("c"), way("c", partition=7), way("c", incarnation="later")])
def test_the_way_with_which_delivery_began_is_kept(key: CheckpointKey) -> None:
    world = two_ways()
    world.target.checkpoints[key] = position()
    found = plan(world)
    assert [one.region for one in found.chosen["t"]] == ["c"]
    (kept_away,) = found.kept_away
    assert kept_away.topic.region == "b"
    assert "where their delivery began" in kept_away.reason
    assert "exclude t from the source of c, and then give b/t a position" in kept_away.reason
    assert found.reasons == {}, "nothing stops, and no operator has to decide"


def test_a_position_that_is_in_conflict_was_delivered() -> None:
    world = two_ways()
    world.target.conflicts[way("c")] = CheckpointConflict("both cannot be true")
    assert [one.region for one in plan(world).chosen["t"]] == ["c"]


@pytest.mark.parametrize("key", [way("c", destination="u"), way("d")])
def test_positions_of_other_topics_say_nothing_about_the_way(key: CheckpointKey) -> None:
    world = two_ways()
    world.target.checkpoints[key] = position()
    assert [one.region for one in plan(world).chosen["t"]] == ["b"]


def test_where_both_were_delivered_the_nearest_counts() -> None:
    """Both arrived while their origin was not known: each has its position."""
    world = two_ways()
    world.target.checkpoints |= {way("b"): position(), way("c"): position()}
    assert [one.region for one in plan(world).chosen["t"]] == ["b"]


@pytest.mark.parametrize("seeded", [position(Author.SEED, None), position(begun_at=None)])
def test_where_both_were_delivered_the_one_that_an_operator_gave_a_position_counts(seeded: Checkpoint) -> None:
    """At its seed, and after it."""
    world = two_ways()
    world.target.checkpoints |= {way("b"): position(), way("c"): seeded}
    found = plan(world)
    assert [one.region for one in found.chosen["t"]] == ["c"]
    assert "an operator gave them a position" in found.kept_away[0].reason


def test_no_way_is_chosen_while_the_checkpoints_cannot_be_read() -> None:
    world = two_ways()
    world.target.away = True
    with pytest.raises(BrokerUnavailable):
        plan(world)


def test_the_checkpoints_are_read_only_where_a_topic_arrives_on_several_ways() -> None:
    world = World(*(source_settings("^.*", "{topic}", region=region, allow_merge=True) for region in "bc"))
    for region in "bc":
        world.publish_catalog(source_topic("t"), region=region, cluster_id=region)
    world.target.away = True
    assert len(plan(world).chosen["t"]) == 2


@property_examples()
@given(st.data(), st.dictionaries(st.sampled_from("bcdef"), st.integers(1, 3), min_size=2))
def test_one_way_is_delivered_and_every_process_chooses_the_same(data: st.DataObject, lengths: dict[str, int]) -> None:
    """`lengths`: clusters that the records went through, by the region of the way."""
    catalogs = {
        region: Catalog(
            cluster_id=region,
            writer="test",
            observed_at=datetime(2026, 1, 1, tzinfo=UTC),
            topics={"t": source_topic(lineage=[*(f"{region}{n}" for n in range(length - 1)), "o"])},
        )
        for region, length in lengths.items()
    }
    begun = data.draw(st.sets(st.sampled_from(sorted(lengths))))
    known = delivered_ways({way(region): position() for region in begun})
    sources = [SourceTopic(region=region, name="t") for region in lengths]
    answers = []
    for seen in (sources, data.draw(st.permutations(sources))):
        (ways,) = ways_of(seen, catalogs)
        answers.append({one.region for one in sources} - {one.region for one in repeated(ways, "t", known)})
    assert answers[0] == answers[1], "the order in which they are seen decides nothing"
    (chosen,) = answers[0]
    among = begun or lengths.keys()
    assert chosen == min(among, key=lambda region: (lengths[region], region))


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
