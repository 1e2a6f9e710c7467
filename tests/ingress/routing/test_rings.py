"""Regions that replicate each other in any shape: under the default policy the topics stay finitely many."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.policies.names import DefaultReplicationPolicy, hops
from formats.topic_selection import TopicPattern, select
from ingress.settings import IngressSettings
from ingress.source_settings import IngressSource

REGIONS = ("a", "b", "c")
RING = frozenset({("a", "b"), ("b", "c"), ("c", "a")})
BOTH_WAYS = frozenset({(x, y) for x in REGIONS for y in REGIONS if x != y})

Edges = Collection[tuple[str, str]]  # from, to
Topics = Mapping[str, frozenset[str]]  # of each region


def settings_of(region: str, edges: Edges, separator: str) -> IngressSettings | None:
    sources = tuple(
        IngressSource(region=source, topic=TopicPattern("^.*")) for source, target in sorted(edges) if target == region
    )
    if not sources:
        return None
    return IngressSettings(sources=sources, replication_policy="default", replication_policy_separator=separator)


def replicated_once(topics: Topics, edges: Edges, separator: str) -> Topics:
    """The topics after every region archived all of its topics, and delivered those of its sources."""
    after = dict(topics)
    for region in REGIONS:
        settings = settings_of(region, edges, separator)
        for source in () if settings is None else settings.sources:
            chosen = select(topics[source.region], [source.rule], ())
            kept = {topic for topic in chosen if not source.refusal(topic, region)}
            after[region] |= {source.destination(topic) for topic in kept}
    return after


names = st.frozensets(st.sampled_from(["orders", "clicks", "x", "dotted.name"]), max_size=3)


@given(
    st.fixed_dictionaries(dict.fromkeys(REGIONS, names)),
    st.sampled_from([RING, BOTH_WAYS]) | st.frozensets(st.sampled_from(sorted(BOTH_WAYS))),
    st.sampled_from([".", "_", "__"]),
)
def test_m05_the_topics_reach_a_fixed_point(local: dict[str, frozenset[str]], edges: Edges, separator: str) -> None:
    topics: Topics = local
    for _ in REGIONS:
        topics = replicated_once(topics, edges, separator)
    assert replicated_once(topics, edges, separator) == topics
    policy = DefaultReplicationPolicy(separator)
    for region in REGIONS:
        for topic in topics[region] - local[region]:
            way = [alias for alias in hops(policy, topic) if alias in REGIONS]
            assert len(set(way)) == len(way), f"{topic} of {region} names a region twice"
            assert region not in way


@pytest.mark.parametrize("edges", [RING, BOTH_WAYS])
def test_every_topic_reaches_every_region(edges: Edges) -> None:
    topics: Topics = {region: frozenset({f"of-{region}"}) for region in REGIONS}
    for _ in range(10):
        topics = replicated_once(topics, edges, ".")
    for region in REGIONS:
        originals = {DefaultReplicationPolicy().original_topic(topic) for topic in topics[region]}
        assert originals == {"of-a", "of-b", "of-c"}
    assert len(topics["a"]) == (3 if edges == RING else 5)
