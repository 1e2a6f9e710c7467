"""5,000 topics of a real cluster: what the catalogue costs beside the bare calls of the client, and that one changed
topic is one change. Larger still, in memory: tests/ingress/catalog/test_large_catalog.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide what it documents
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from egress.catalog.lineage import Lineages
from egress.catalog.observer import CatalogObserver, SelectedTopics
from formats.control.catalog import Catalog, encode_catalog
from formats.messages.ledger import Ownership
from formats.policies.topic_configs import ConfigChange, ConfigSource, ConfigValue
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.catalog_admin import BATCH, KafkaCatalogAdmin
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from ingress.catalog.desired import SourceTopic, desired_topics
from ingress.catalog.differ import ActualTopic, CatalogPlan, ChangeConfigs, CreateTopic, plan_changes
from ingress.catalog.settings import CatalogSettings

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.cpu]

TOPICS = 5_000
SECONDS = 60.0  # of a call
PATIENCE = timedelta(minutes=5)  # a broker makes 70 logs a second
MOST = 1.5  # times the bare calls
PLAN_SECONDS = 2.0
REGION = "a"
RETENTION = "86400000"


def batches(names: list[str]) -> list[list[str]]:
    return [names[at : at + BATCH] for at in range(0, len(names), BATCH)]


def bare_calls(admin: AdminClient, names: list[str]) -> None:
    """The calls of one observation, and nothing done with their answers."""
    admin.list_topics(timeout=SECONDS)
    for some in batches(names):
        for future in admin.describe_topics(TopicCollection(some), request_timeout=SECONDS).values():
            future.result()
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in some]
        for future in admin.describe_configs(resources, request_timeout=SECONDS).values():
            future.result()
    for kind in (ResourceType.TOPIC, ResourceType.GROUP):
        anything: Any = None
        every = AclBindingFilter(
            kind, anything, ResourcePatternType.ANY, anything, anything, AclOperation.ANY, AclPermissionType.ANY
        )
        admin.describe_acls(every, request_timeout=SECONDS).result()


def seconds_of(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def plan(catalog: Catalog, actual: Mapping[str, ActualTopic]) -> CatalogPlan:
    destinations = {f"{REGION}.{name}": [SourceTopic(region=REGION, name=name)] for name in catalog.topics}
    return plan_changes(
        desired_topics(destinations, {REGION: catalog}, CatalogSettings()),
        actual,
        {name: one.topic_id for name, one in actual.items()},
        keep={},
    )


def test_the_catalogue_costs_little_more_than_the_calls(
    run_stack: Callable[..., AbstractContextManager[LocalStack]], unique: Callable[[str], str]
) -> None:
    prefix = unique("many")
    names = [f"{prefix}.{number}" for number in range(TOPICS)]
    with run_stack(regions=("a",)) as stack:  # of its own: a broker that deletes as many topics is busy for minutes
        properties: dict[str, Any] = {"bootstrap.servers": stack.brokers["a"].bootstrap}
        client = AdminClient(properties)
        for some in batches(names):
            new = [NewTopic(name, 1, 1, config={"retention.ms": RETENTION}) for name in some]
            for future in client.create_topics(new, operation_timeout=SECONDS, request_timeout=SECONDS).values():
                future.result()
        admin = KafkaAdmin(properties, timeout=timedelta(seconds=SECONDS))
        assert wait_until(lambda: admin.topics().keys() >= set(names), PATIENCE)
        ours = KafkaCatalogAdmin(admin.connection)
        topics = SelectedTopics(admin, ours, lambda found: [name for name in found if name.startswith(prefix)])
        observer = CatalogObserver(topics, Lineages(Ownership), "w")
        observed: list[Catalog] = []
        bare, whole = [], []
        for _ in range(3):  # in turn, since other work on the machine changes the times of both
            bare.append(seconds_of(lambda: bare_calls(client, names)))
            whole.append(seconds_of(lambda: observed.append(observer.observe(None, datetime.now(UTC)))))
        catalog = observed[-1]
        assert catalog.topics.keys() == set(names)
        data = encode_catalog(catalog)
        print(f"bare {sorted(bare)} s, observed {sorted(whole)} s, {len(data):,} bytes")
        assert sorted(whole)[1] <= MOST * sorted(bare)[1]

        actual = made_as(plan(catalog, {}))
        began = time.process_time()
        assert plan(catalog, actual) == CatalogPlan()
        assert time.process_time() - began < PLAN_SECONDS

        assert not ours.change_configs(names[7], ConfigChange(set={"retention.ms": "1000"}))
        changed = observer.observe(catalog, datetime.now(UTC))
        (change,) = plan(changed, actual).changes
        assert isinstance(change, ChangeConfigs)
        assert (change.name, dict(change.change.set)) == (f"{REGION}.{names[7]}", {"retention.ms": "1000"})


def made_as(created: CatalogPlan) -> Mapping[str, ActualTopic]:
    """A cluster in which these topics were created so."""
    made = [one for one in created.changes if isinstance(one, CreateTopic)]
    return {
        one.name: ActualTopic(
            name=one.name,
            topic_id=f"id of {one.name}",
            partitions=one.partitions,
            configs={name: ConfigValue(value, ConfigSource.TOPIC) for name, value in one.configs.items()},
        )
        for one in made
    }
