"""A cluster of 5,000 topics with 20 partitions each and 20,000 ACLs: bytes of a generation, and processor time of ours
alone. The same on a real cluster: tests/integration/test_many_topics.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

import pytest

from formats.control.catalog import Catalog, CatalogTopic, decode_catalog, encode_catalog
from formats.control.watermarks import SourceWatermarks, TopicWatermarks, decode_watermarks, encode_watermarks
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import KEEPS_TIMESTAMPS, ConfigSource, ConfigValue
from ingress.catalog.acl_differ import AclPlan, plan_acls
from ingress.catalog.desired import SourceTopic, desired_acls, desired_topics
from ingress.catalog.differ import ActualTopic, CatalogPlan, ChangeConfigs, plan_changes
from ingress.catalog.settings import CatalogSettings

pytestmark = [pytest.mark.long, pytest.mark.cpu]

TOPICS, PARTITIONS, ACLS = 5_000, 20, 20_000
PLAN_SECONDS = 2.0
AT = datetime(2026, 1, 1, tzinfo=UTC)
REGION = "a"
OWN = {"retention.ms": "1000"}
DEFAULTS = {f"config.{n:02d}": str(n) for n in range(28)}  # as many as Kafka's topics have

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What `work` returns, and its processor time in seconds."""
    began = time.process_time()
    found = work()
    return found, time.process_time() - began


def name_of(number: int) -> str:
    return f"team-{number % 50}.topic-{number}"


def topic(number: int, **own: str) -> CatalogTopic:
    configs = {name: ConfigValue(value, ConfigSource.DEFAULT) for name, value in DEFAULTS.items()}
    configs |= {name: ConfigValue(value, ConfigSource.TOPIC) for name, value in (OWN | own).items()}
    return CatalogTopic(
        name=name_of(number), topic_id=f"{number:022d}", partitions=PARTITIONS, replication_factor=3, configs=configs
    )


def binding(number: int) -> AclBinding:
    return AclBinding(
        resource_type="TOPIC",
        resource_name=name_of(number % TOPICS),
        pattern_type="LITERAL",
        principal=f"User:{number // TOPICS}-{number % 97}",
        host="*",
        operation="READ" if number % 2 else "WRITE",
        permission="ALLOW",
    )


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    topics = {one.name: one for one in map(topic, range(TOPICS))}
    acls = frozenset(map(binding, range(ACLS)))
    assert len(acls) == ACLS
    return Catalog(cluster_id="c", writer="w", observed_at=AT, topics=topics, acls=acls)


def test_a_catalogue_of_many_topics_is_small(catalog: Catalog) -> None:
    data, seconds = timed(lambda: encode_catalog(catalog))
    read, seconds_to_read = timed(lambda: decode_catalog(data))
    print(f"{len(data):,} bytes; written in {seconds:.2f} s, read in {seconds_to_read:.2f} s")
    assert read == catalog
    assert len(data) < 100 * (TOPICS + ACLS)
    assert seconds < PLAN_SECONDS
    assert seconds_to_read < PLAN_SECONDS


def test_watermarks_of_many_partitions_are_small() -> None:
    column = tuple(range(10**9, 10**9 + PARTITIONS))
    topics = {
        name_of(n): TopicWatermarks(topic_id=f"{n:022d}", low=column, high=column, stable=column, position=column)
        for n in range(TOPICS)
    }
    marks = SourceWatermarks(cluster_id="c", writer="w", observed_at=AT, topics=topics)
    data, seconds = timed(lambda: encode_watermarks(marks))
    read, seconds_to_read = timed(lambda: decode_watermarks(data))
    print(f"{len(data):,} bytes; written in {seconds:.2f} s, read in {seconds_to_read:.2f} s")
    assert read == marks
    assert len(data) < 100 * TOPICS * PARTITIONS
    assert seconds + seconds_to_read < PLAN_SECONDS


def planned(
    catalog: Catalog, actual: Mapping[str, ActualTopic], acls: frozenset[AclBinding], ours: frozenset[AclBinding]
) -> tuple[CatalogPlan, AclPlan]:
    """As `CatalogApplier.plan` does, without the calls of the cluster."""
    destinations: Mapping[str, Sequence[SourceTopic]] = {
        f"{REGION}.{name}": [SourceTopic(region=REGION, name=name)] for name in catalog.topics
    }
    catalogs, settings = {REGION: catalog}, CatalogSettings()
    topics = plan_changes(
        desired_topics(destinations, catalogs, settings),
        actual,
        {name: one.topic_id for name, one in actual.items()},
        keep={},
    )
    wanted = desired_acls(destinations, catalogs, settings)
    return topics, plan_acls(
        wanted, acls, ours, protected=destinations, own_principals=["User:replicator"], are_all_known=True
    )


def test_one_changed_topic_is_one_change(catalog: Catalog) -> None:
    actual = {
        f"{REGION}.{one.name}": ActualTopic(
            name=f"{REGION}.{one.name}",
            topic_id=f"here-{one.topic_id}",
            partitions=one.partitions,
            configs={
                name: ConfigValue(value, ConfigSource.TOPIC) for name, value in {**OWN, **KEEPS_TIMESTAMPS}.items()
            },
        )
        for one in catalog.topics.values()
    }
    foreign = frozenset(replace(binding(n), operation="WRITE", principal="User:x") for n in range(TOPICS))
    _, first = planned(catalog, actual, foreign, frozenset())
    acls = foreign | first.create
    (topics, left), seconds = timed(lambda: planned(catalog, actual, acls, first.create))
    print(f"planned in {seconds:.2f} s")
    assert (topics, left.create, left.delete) == (CatalogPlan(), frozenset(), frozenset())
    assert seconds < PLAN_SECONDS

    changed = topic(7, **{"retention.ms": "2000"})
    now = replace(catalog, topics={**catalog.topics, changed.name: changed})
    assert not now.has_same_content(catalog)
    (topics, left), seconds = timed(lambda: planned(now, actual, acls, first.create))
    (change,) = topics.changes
    assert isinstance(change, ChangeConfigs)
    assert (change.name, dict(change.change.set)) == (f"{REGION}.{changed.name}", {"retention.ms": "2000"})
    assert not left.create
    assert not left.delete
    assert seconds < PLAN_SECONDS
