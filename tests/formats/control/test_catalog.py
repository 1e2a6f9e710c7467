"""Catalogues as bytes, and what they say of topics that are gone."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.catalog import Catalog, CatalogTopic, RemovedTopic, decode_catalog, encode_catalog, with_removals
from formats.errors import MalformedEvent
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import ConfigSource, ConfigValue

T0 = datetime(2026, 1, 1, tzinfo=UTC)
words = st.text("ab.é", min_size=1, max_size=5)
configs = st.dictionaries(words, st.builds(ConfigValue, words, st.sampled_from(ConfigSource)))
lineages = st.lists(words, max_size=2).map(tuple)
topics = st.builds(
    CatalogTopic,
    name=words,
    topic_id=words,
    partitions=st.integers(1, 9),
    replication_factor=st.integers(0, 3),
    configs=st.none() | configs,
    lineage=lineages,
)
acls = st.builds(
    AclBinding,
    resource_type=words,
    resource_name=words,
    pattern_type=words,
    principal=words,
    host=words,
    operation=words,
    permission=words,
)
catalogs = st.builds(
    Catalog,
    cluster_id=words,
    writer=words,
    observed_at=st.datetimes(timezones=st.just(UTC)),
    topics=st.lists(topics, max_size=4).map(lambda some: {one.name: one for one in some}),
    removed=st.lists(
        st.builds(
            RemovedTopic,
            name=words,
            topic_id=words,
            removed_at=st.datetimes(timezones=st.just(UTC)),
            lineage=st.none() | lineages,
        ),
        unique_by=lambda one: (one.name, one.topic_id),
    ).map(tuple),
    acls=st.none() | st.frozensets(acls, max_size=3),
    problems=st.dictionaries(words, words, max_size=2),
)


@given(catalogs)
def test_round_trip_in_the_same_bytes(catalog: Catalog) -> None:
    data = encode_catalog(catalog)
    assert decode_catalog(data) == catalog
    assert encode_catalog(decode_catalog(data)) == data


def catalog(*topics: CatalogTopic, at: datetime = T0, cluster: str = "c") -> Catalog:
    return Catalog(cluster_id=cluster, writer="w", observed_at=at, topics={one.name: one for one in topics})


def topic(name: str, topic_id: str = "id") -> CatalogTopic:
    return CatalogTopic(name=name, topic_id=topic_id, partitions=1, replication_factor=1, configs={})


def test_configs_that_topics_share_are_written_once() -> None:
    shared = {f"config.{n}": ConfigValue(str(n), ConfigSource.DEFAULT) for n in range(30)}
    many = [replace(topic(f"t{n}"), configs=shared) for n in range(100)]
    own = replace(topic("own"), configs={**shared, "config.0": ConfigValue("9", ConfigSource.TOPIC)})
    without = replace(topic("without"), configs={})
    data = encode_catalog(catalog(*many, own, without))
    written = {one["name"]: one for one in json.loads(gzip.decompress(data))["topics"]}
    assert written["t0"]["configs"] == {}
    assert written["own"]["configs"] == {"config.0": ["9", "topic"]}
    assert len(written["without"]["without"]) == 30
    assert decode_catalog(data) == catalog(*many, own, without)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        gzip.compress(b"{}"),
        gzip.compress(b'{"v": 2}'),
        encode_catalog(catalog(topic("t")))[:-9],
        gzip.compress(b'{"v":1,"topics":[{}],"configs":{},"acls":null,"removed":[],"problems":{}}'),
    ],
    ids=["nothing", "not packed", "empty", "newer", "cut off", "a topic without a name"],
)
def test_anything_else_is_an_error_that_says_so(data: bytes) -> None:
    with pytest.raises(MalformedEvent, match="not a catalogue"):
        decode_catalog(data)


def test_who_observed_it_and_when_makes_no_difference() -> None:
    one = catalog(topic("t"))
    assert replace(one, writer="other", observed_at=T0 + timedelta(days=1)).has_same_content(one)
    assert not replace(one, topics={}).has_same_content(one)


class TestRemovals:
    later = T0 + timedelta(hours=1)

    def test_a_topic_that_is_gone_is_recorded_as_removed(self) -> None:
        found = with_removals(catalog(topic("a"), at=self.later), catalog(topic("a"), topic("b")), existing={"a"})
        assert found.removed == (RemovedTopic(name="b", topic_id="id", removed_at=self.later, lineage=()),)

    def test_it_stays_recorded_with_the_time_at_which_it_was_observed(self) -> None:
        gone = RemovedTopic(name="b", topic_id="id", removed_at=T0)
        before = replace(catalog(topic("a")), removed=(gone,))
        assert with_removals(catalog(topic("a"), at=self.later), before, existing={"a"}).removed == (gone,)

    def test_another_incarnation_removes_the_one_before_it(self) -> None:
        found = with_removals(catalog(topic("a", "new"), at=self.later), catalog(topic("a", "old")), existing={"a"})
        assert found.removed == (RemovedTopic(name="a", topic_id="old", removed_at=self.later, lineage=()),)

    def test_another_cluster_removes_nothing(self) -> None:
        assert with_removals(catalog(cluster="d"), catalog(topic("a")), existing=()).removed == ()

    def test_a_topic_that_is_not_selected_any_more_was_not_removed(self) -> None:
        found = with_removals(catalog(at=self.later), catalog(topic("a"), topic("b")), existing={"b"})
        assert [one.name for one in found.removed] == ["a"]

    def test_it_keeps_the_lineage_that_the_topic_had(self) -> None:
        copy = replace(topic("b"), lineage=("x", "o"))
        found = with_removals(catalog(at=self.later), catalog(copy), existing=())
        assert found.lineage_of("b") == ("c", "x", "o")
        after = with_removals(catalog(at=self.later + timedelta(hours=1)), found, existing=())
        assert decode_catalog(encode_catalog(after)).lineage_of("b") == ("c", "x", "o")

    def test_a_lineage_that_could_not_be_read_is_not_known_afterwards(self) -> None:
        before = replace(catalog(topic("b")), problems={"lineage": "not permitted"})
        assert with_removals(catalog(at=self.later), before, existing=()).lineage_of("b") == ()

    def test_of_several_incarnations_the_last_counts(self) -> None:
        gone = [
            RemovedTopic(name="b", topic_id=id_, removed_at=at, lineage=(id_,))
            for id_, at in (("z", T0), ("a", self.later))
        ]
        assert replace(catalog(), removed=tuple(gone)).lineage_of("b") == ("c", "a")
        assert replace(catalog(topic("b")), removed=tuple(gone)).lineage_of("b") == ("c",), "it is there again"

    def test_a_removal_as_it_was_written_before_is_read(self) -> None:
        """Without lineages; and three values each, which is what earlier readers take."""
        gone = RemovedTopic(name="b", topic_id="id", removed_at=T0, lineage=("o",))
        message = json.loads(gzip.decompress(encode_catalog(replace(catalog(), removed=(gone,)))))
        assert message["removed"] == [["b", "id", T0.isoformat()]]
        assert message.pop("removed_lineages") == [["b", "id", ["o"]]]
        read = decode_catalog(gzip.compress(json.dumps(message).encode()))
        assert read.removed == (replace(gone, lineage=None),)
        assert "removed_lineages" not in json.loads(gzip.decompress(encode_catalog(read)))
