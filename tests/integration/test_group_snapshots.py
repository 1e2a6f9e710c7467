"""Snapshots of the groups of a real cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from egress.catalog.group_observer import GroupObserver
from egress.catalog.observer import SelectedTopics
from egress.settings import EgressSettings, EgressTopicSettings
from formats.control.group_snapshot import (
    CommittedOffset,
    GroupSnapshot,
    decode_group_snapshot,
    encode_group_snapshot,
)
from formats.topic_selection import TopicPattern, TopicRule
from infra.contracts.cluster import Committed, TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from infra.kafka.cluster.groups import KafkaGroups
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.call_budget import CallBudget
from infra.runtime.lifecycle import Stop, SystemClock
from replicator.services.control_publisher import GROUP_TIMEOUT, GROUPS_AT_ONCE
from tests.infra.cluster import Cluster
from tests.infra.kafka_groups import PATIENCE, commit, member, share_member
from tests.infra.principal import DESCRIBE, DESCRIBE_CONFIGS, GROUP, TOPIC, Principal

pytestmark = pytest.mark.integration

PER_SECOND = EgressSettings(topics=(TopicRule(TopicPattern("t"), EgressTopicSettings()),)).group_calls_per_second


@dataclass
class Source:
    """Topics and groups of one test, by a word that all their names begin with."""

    cluster: Cluster
    word: str
    pool: ThreadPoolExecutor
    before: GroupSnapshot | None = None

    def name(self, of: str) -> str:
        return f"{self.word}-{of}"

    def observer(self, properties: Mapping[str, str]) -> GroupObserver:
        quiet = {**properties, "log_level": "0"}
        admin = KafkaAdmin(quiet)
        return GroupObserver(
            topics=SelectedTopics(admin, KafkaCatalogAdmin(admin.connection), self.own),
            groups=KafkaGroups(quiet, quiet, timeout=GROUP_TIMEOUT, connection=admin.connection),
            select=self.own,
            named=list,
            budget=CallBudget(lambda: PER_SECOND, SystemClock(), Stop()),
            pool=self.pool,
            writer="w",
        )

    def own(self, names: Iterable[str]) -> Collection[str]:
        return [name for name in names if name.startswith(self.word)]

    def commit(self, group: str, topic: str, **offsets: int) -> None:
        """By partition, as in p0=5."""
        commits = {TopicPartition(self.name(topic), int(p[1:])): Committed(offset, "") for p, offset in offsets.items()}
        commit(self.cluster.properties, self.name(group), commits)


@pytest.fixture
def source(stack: LocalStack, unique: Callable[[str], str]) -> Iterator[Source]:
    with ThreadPoolExecutor(GROUPS_AT_ONCE) as pool:
        yield Source(Cluster(stack.brokers["a"]), unique("groups"), pool)


def offsets(found: GroupSnapshot, source: Source, group: str, topic: str = "t") -> Mapping[int, int]:
    """By partition."""
    commits = found.groups[source.name(group)].topics[source.name(topic)]
    return {partition: one.next_offset for partition, one in commits.items()}


def test_groups_of_every_kind_and_state(source: Source) -> None:
    topic, gone = source.name("t"), source.name("gone")
    first, second = source.cluster.create(topic, 2)
    source.cluster.create(gone)
    for n in range(5):
        source.cluster.put(topic, None, b"%d" % n)
    source.cluster.cut(topic, 2)
    source.commit("at-start", "t", p0=2)
    source.commit("at-end", "t", p0=5, p1=0)
    source.commit("before-start", "t", p0=0)
    source.commit("of-both", "t", p0=3)
    source.commit("of-both", "gone", p0=1)
    source.commit("of-gone", "gone", p0=1)
    observer = source.observer(source.cluster.properties)
    found = observer.observe(None, datetime.now(UTC))
    assert (found.problems, found.unreadable, found.unsupported) == ({}, {}, {})
    assert offsets(found, source, "at-start") == {0: 2}
    assert offsets(found, source, "at-end") == {0: 5, 1: 0}
    assert offsets(found, source, "before-start") == {0: 0}
    assert offsets(found, source, "of-gone", "gone") == {0: 1}
    assert {(one.kind, one.state, one.members) for one in found.groups.values()} == {("classic", "empty", 0)}
    topic_id = observer.topics.shapes()[topic].topic_id
    assert topic_id
    assert {one.topics[topic].topic_id for one in found.groups.values() if topic in one.topics} == {topic_id}

    source.cluster.delete(gone)
    properties = source.cluster.properties
    epoch = {second: Committed(4, "where", 0)}
    with (
        member(properties, source.name("classic"), "classic", {first: Committed(1, "")}),
        member(properties, source.name("consumer"), "consumer", epoch),
        share_member(properties, source.name("share"), topic),
    ):

        def observed() -> GroupSnapshot:
            again = source.observer(properties)  # which asks for share groups at once
            source.before = again.observe(found, datetime.now(UTC))
            return source.before

        assert wait_until(
            lambda: bool(observed().unsupported) and source.name("of-gone") not in observed().groups, PATIENCE
        ), source.before
        seen = observed()
    assert seen.unsupported == {source.name("share"): "other"}
    assert (seen.problems, seen.unreadable) == ({}, {})
    assert set(seen.groups[source.name("of-both")].topics) == {topic}
    classic, consumer_group = (seen.groups[source.name(kind)] for kind in ("classic", "consumer"))
    assert [(one.kind, one.state, one.members) for one in (classic, consumer_group)] == [
        ("classic", "stable", 1),
        ("consumer", "stable", 1),
    ]
    assert dict(consumer_group.topics[topic].items())[second.partition] == CommittedOffset(
        next_offset=4, leader_epoch=0, metadata="where"
    )
    assert offsets(seen, source, "classic") == {first.partition: 1}


def test_a_right_that_goes_takes_no_offsets_with_it(source: Source) -> None:
    for topic in ("t", "u"):
        source.cluster.create(source.name(topic))
    for group in ("one", "two"):
        source.commit(group, "t", p0=1)
        source.commit(group, "u", p0=2)
    limited = Principal(source.cluster.broker, source.name("limited"))
    limited.allow(TOPIC, source.name("t"), DESCRIBE, DESCRIBE_CONFIGS)
    limited.allow(TOPIC, source.name("u"), DESCRIBE)
    limited.allow(GROUP, source.name("one"), DESCRIBE)
    limited.allow(GROUP, source.name("two"), DESCRIBE)
    observer = source.observer(limited.properties)
    first = observer.observe(None, datetime.now(UTC))
    assert set(first.groups) == {source.name("one"), source.name("two")}
    assert first.problems == {}

    limited.forbid(GROUP, source.name("two"), DESCRIBE)
    limited.forbid(TOPIC, source.name("u"), DESCRIBE)
    for group in ("one", "two"):
        source.commit(group, "t", p0=7)
        source.commit(group, "u", p0=8)
    second = observer.observe(first, datetime.now(UTC))
    assert [offsets(second, source, "one", topic) for topic in "tu"] == [{0: 7}, {0: 2}]
    assert [offsets(second, source, "two", topic) for topic in "tu"] == [{0: 1}, {0: 2}]
    assert set(second.unreadable) == {source.name("two")}
    assert "allow DESCRIBE" in second.unreadable[source.name("two")]
    assert set(second.problems) == {"groups", "topics"}
    assert second.groups[source.name("two")].as_of == first.observed_at


@pytest.mark.long
def test_five_hundred_groups_of_a_hundred_partitions(source: Source) -> None:
    """Within the default budget of requests, which takes 20 s of it."""
    source.cluster.create(source.name("t"), 100)
    wanted = {f"g{n:03}": {f"p{p}": n * 1000 + p for p in range(100)} for n in range(500)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda group: source.commit(group, "t", **wanted[group]), wanted))
    observer = source.observer(source.cluster.properties)
    began, processor = time.monotonic(), time.process_time()
    found = observer.observe(None, datetime.now(UTC))
    took = timedelta(seconds=time.monotonic() - began)
    data = encode_group_snapshot(found)
    print(f"observed in {took}, {time.process_time() - processor:.1f} s of processor time, {len(data)} bytes")
    assert (found.problems, len(found.groups)) == ({}, 500)
    for group, expected in wanted.items():
        assert offsets(found, source, group) == {int(p[1:]): offset for p, offset in expected.items()}
    assert decode_group_snapshot(data) == found
    assert took < timedelta(seconds=60)
