"""Replication loops within one file and across several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.settings import EgressSettings, EgressTopicSettings
from formats.topic_selection import TopicPattern, TopicRule
from ingress.settings import IngressSettings
from ingress.source_settings import IngressSource
from replicator.config.mirrors import Loop, Mirror, loops
from tests.examples import property_examples

Sources = Sequence[tuple[str, str, str]]  # region, topic, destination


def mirror(region: str, egress: Sequence[str] = (), *sources: tuple[str, str, str], cluster: str = "") -> Mirror:
    rules = tuple(TopicRule(TopicPattern(text), EgressTopicSettings()) for text in egress)
    delivered = tuple(
        IngressSource(region=r, topic=TopicPattern(text), destination_topic=destination or None)
        for r, text, destination in sources
    )
    return Mirror(
        name=f"{region}.toml",
        region=region,
        cluster=cluster or region,
        egress=EgressSettings(topics=rules) if rules else None,
        ingress=IngressSettings(sources=delivered) if delivered else None,
    )


@pytest.mark.parametrize(
    "mirrors",
    [
        pytest.param([mirror("a", ["^.*"], ("a", "^.*", ""))], id="itself"),
        pytest.param([mirror("a", ["^.*"], ("b", "^.*", "")), mirror("b", ["^.*"], ("a", "^.*", ""))], id="growing"),
        pytest.param(
            [mirror("a", ["t"], ("b", "t", "t")), mirror("b", ["t"], ("a", "t", "t"))], id="one name everywhere"
        ),
        pytest.param(
            [
                mirror("a", ["^orders.*"], ("c", "^.*", "{topic}")),
                mirror("b", ["^.*"], ("a", "^.*", "{topic}")),
                mirror("c", ["^.*"], ("b", "^orders.*", "{topic}")),
            ],
            id="three in a ring",
        ),
        pytest.param(
            [mirror("a", ["^(x|y)[.].*"], ("b", "^.*", "y.{topic}")), mirror("b", ["^y.*"], ("a", "^.*", "y.{topic}"))],
            id="by a name that an alternative allows",
        ),
        pytest.param(
            [mirror("a", ["^.*"], cluster="one"), mirror("b", (), ("a", "^.*", "{topic}.copy"), cluster="one")],
            id="two files of one cluster",
        ),
    ],
)
def test_a_loop_is_found(mirrors: list[Mirror]) -> None:
    [loop] = loops(mirrors)
    assert_goes_round(loop)
    assert "delivered again" in loop.described(with_files=True)


@pytest.mark.parametrize(
    "mirrors",
    [
        pytest.param([], id="nothing"),
        pytest.param([mirror("a", ["^.*"]), mirror("b", (), ("a", "^.*", ""))], id="one way"),
        pytest.param(
            [
                mirror("a", ["^orders[.].*"], ("b", "^orders[.].*", "eu.{topic}")),
                mirror("b", ["^orders[.].*"], ("a", "^orders[.].*", "us.{topic}")),
            ],
            id="both ways, prefixed",
        ),
        pytest.param(
            [
                mirror("a", ["^(?!eu[.]).*"], ("b", "^(?!us[.]).*", "eu.{topic}")),
                mirror("b", ["^(?!us[.]).*"], ("a", "^(?!eu[.]).*", "us.{topic}")),
            ],
            id="all but the copies",
        ),
        pytest.param(
            [mirror("a", ["t"], ("b", "t", "u")), mirror("b", ["t"], ("a", "t", "u"))], id="not archived again"
        ),
        pytest.param([mirror("a", ["^.*"], ("b", "^.*", ""))], id="the other one's file is not here"),
    ],
)
def test_no_loop_is_invented(mirrors: list[Mirror]) -> None:
    assert list(loops(mirrors)) == []


def assert_goes_round(loop: Loop) -> None:
    """Each hop leads to the next, and the last to the topic of the first, or to a longer name."""
    for hop, then in zip(loop.hops, loop.hops[1:], strict=False):
        assert (hop.delivered_by.cluster, hop.destination) == (then.archived_by.cluster, then.topic)
    first, last = loop.hops[0], loop.hops[-1]
    assert last.delivered_by.cluster == first.archived_by.cluster
    assert last.destination == first.topic or len(last.destination) > len(first.topic)
    for hop in loop.hops:
        assert hop.archived_by.egress is not None
        assert any(rule.pattern.matches(hop.topic) for rule in hop.archived_by.egress.topics)


# --- against brute force: names without expressions make a finite graph ---------------------------------------------

REGIONS, NAMES = "abc", ("t", "u", "v")


@dataclass(frozen=True)
class File:
    egress: frozenset[str]
    sources: Mapping[tuple[str, str], str]  # (region, topic) -> destination


FILES = st.lists(
    st.builds(
        File,
        egress=st.frozensets(st.sampled_from(NAMES)),
        sources=st.dictionaries(
            st.tuples(st.sampled_from(REGIONS), st.sampled_from(NAMES)), st.sampled_from(NAMES), max_size=3
        ),
    ),
    min_size=1,
    max_size=3,
)


@given(FILES)
@property_examples()
def test_exactly_the_existing_loops_are_found(files: list[File]) -> None:
    mirrors, edges = [], set[tuple[tuple[str, str], tuple[str, str]]]()
    for region, file in zip(REGIONS, files, strict=False):
        taken: dict[str, tuple[str, str]] = {}
        sources = {key: to for key, to in file.sources.items() if taken.setdefault(to, key) == key}  # none is merged
        mirrors.append(mirror(region, sorted(file.egress), *((r, t, to) for (r, t), to in sources.items())))
        edges |= {((r, t), (region, to)) for (r, t), to in sources.items()}
    archived = {(region, name) for region, file in zip(REGIONS, files, strict=False) for name in file.egress}
    edges = {(here, there) for here, there in edges if here in archived}
    reached = {here: {there for h, there in edges if h == here} for here, _ in edges}
    grown = True
    while grown:
        grown = False
        for there in reached.values():
            more = set().union(*(reached.get(one, set()) for one in there)) - there
            there.update(more)
            grown = grown or bool(more)
    is_round = any(here in there for here, there in reached.items())
    found = list(loops(mirrors))
    assert bool(found) == is_round
    for loop in found:
        assert_goes_round(loop)


TEXTS = st.sampled_from(["^.*", "^x.*", "^y[.].*", "^(?!y[.]).*", "x", "y.x"])
TEMPLATES = st.sampled_from(["{topic}", "y.{topic}", "{topic}.z", ""])


@given(st.lists(st.tuples(st.lists(TEXTS, min_size=1, max_size=2), TEXTS, TEMPLATES), min_size=1, max_size=3))
@property_examples()
def test_every_loop_found_is_real(files: list[tuple[list[str], str, str]]) -> None:
    """In a ring of regions, each delivering from the previous one. Every reported loop is real, and every loop found by
    following names long enough is reported."""
    mirrors = [
        mirror(
            REGIONS[n],
            list(dict.fromkeys(egress)),
            (REGIONS[n - 1 % len(files)], text, template if text[0] == "^" else ""),
        )
        for n, (egress, text, template) in enumerate(files)
    ]
    found = list(loops(mirrors))
    for loop in found:
        assert_goes_round(loop)
    endless = False
    for start in range(len(files)):
        for name in ("x", "y.x", "y.", "x."):
            topic, region = name, start
            for _ in range(40):
                archives = mirrors[region]
                assert archives.egress is not None
                if not any(rule.pattern.matches(topic) for rule in archives.egress.topics):
                    break
                to = next(
                    (
                        n
                        for n, one in enumerate(mirrors)
                        if one.ingress is not None and one.ingress.source_of(REGIONS[region], topic) is not None
                    ),
                    None,
                )
                if to is None:
                    break
                there = mirrors[to].ingress
                assert there is not None
                source = there.source_of(REGIONS[region], topic)
                assert source is not None
                topic, region = source.destination(topic), to
            else:
                endless = True
    assert not endless or found


@pytest.mark.parametrize(("policy", "count"), [("default", 0), ("identity", 1), (None, 1)])
def test_a_ring_is_no_loop_under_the_default_policy(policy: str | None, count: int) -> None:
    def region(here: str, source: str) -> Mirror:
        sources = (IngressSource(region=source, topic=TopicPattern("^.*")),)
        ingress = IngressSettings(sources=sources, replication_policy=policy)
        return replace(mirror(here, ["^.*"]), ingress=ingress)

    assert len(list(loops([region("a", "c"), region("b", "a"), region("c", "b")]))) == count
