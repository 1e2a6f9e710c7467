"""Catalogues, watermarks and snapshots of groups in a bucket, as the egress of a source writes them."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from formats.control.catalog import Catalog, CatalogTopic, encode_catalog
from formats.control.group_snapshot import (
    CLASSIC,
    CommittedOffset,
    GroupSnapshot,
    SnapshotGroup,
    TopicCommits,
    encode_group_snapshot,
)
from formats.control.keys import catalog_prefix, groups_prefix, watermarks_prefix
from formats.control.watermarks import SourceWatermarks, TopicWatermarks, encode_watermarks
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import ConfigSource, ConfigValue
from infra.archive.generations import Generations
from infra.contracts.storage import ObjectStore
from infra.kafka.cluster.admin_connection import AdminConnection
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from tests.replicator.restore.history import REGION
from tests.replicator.restore.place import Place


def acl(principal: str, operation: str, topic: str) -> AclBinding:
    return AclBinding(
        resource_type="TOPIC",
        resource_name=topic,
        pattern_type="LITERAL",
        principal=f"User:{principal}",
        host="*",
        operation=operation,
        permission="ALLOW",
    )


def publish(place: Place, number: int, at: datetime, principal: str, **configs: str) -> None:
    """A catalogue of the topic orders, which `principal` may read and write."""
    topic = CatalogTopic(
        name="orders",
        topic_id="",
        partitions=2,
        replication_factor=3,
        configs={name.replace("_", "."): ConfigValue(value, ConfigSource.TOPIC) for name, value in configs.items()},
    )
    catalog = Catalog(
        cluster_id="source",
        writer="test",
        observed_at=at,
        topics={"orders": topic},
        acls=frozenset({acl(principal, "READ", "orders"), acl(principal, "WRITE", "orders")}),
    )
    _put(place.objects, catalog_prefix("data", REGION), number, encode_catalog(catalog))


def publish_watermarks(
    objects: ObjectStore, number: int, found: SourceWatermarks, *, prefix: str = "data", region: str = REGION
) -> None:
    _put(objects, watermarks_prefix(prefix, region), number, encode_watermarks(found))


def publish_groups(
    objects: ObjectStore, number: int, found: GroupSnapshot, *, prefix: str = "data", region: str = REGION
) -> None:
    _put(objects, groups_prefix(prefix, region), number, encode_group_snapshot(found))


def _put(objects: ObjectStore, prefix: str, number: int, data: bytes) -> None:
    objects.put_new(Generations(objects, prefix).key(number), io.BytesIO(data), len(data))


def watermarks(
    at: datetime, ends: Mapping[str, Sequence[int | None]], *, settled: bool | Mapping[str, Collection[int]] = False
) -> SourceWatermarks:
    """With ids such as "id-orders". `settled`: every partition, none, or these; a second later."""
    of_topic = {
        name: frozenset(range(len(column)) if settled is True else settled.get(name, ()) if settled else ())
        for name, column in ends.items()
    }
    return SourceWatermarks(
        cluster_id="source",
        writer="test",
        observed_at=at,
        topics={
            name: TopicWatermarks(
                topic_id=f"id-{name}",
                low=(0,) * len(column),
                high=tuple(column),
                stable=tuple(column),
                position=tuple(column),
                settled=of_topic[name],
            )
            for name, column in ends.items()
        },
        settled_at=at + timedelta(seconds=1) if any(of_topic.values()) else None,
    )


def snapshot(at: datetime, **groups: Mapping[str, Mapping[int, int]]) -> GroupSnapshot:
    """Offsets by partition, by topic, by group."""
    return GroupSnapshot(
        cluster_id="source",
        writer="test",
        observed_at=at,
        groups={
            group: SnapshotGroup(
                kind=CLASSIC,
                state="empty",
                members=0,
                topics={
                    name: TopicCommits.of(f"id-{name}", {p: CommittedOffset(next_offset=n) for p, n in offsets.items()})
                    for name, offsets in topics.items()
                },
            )
            for group, topics in groups.items()
        },
    )


def acls_of(place: Place, *topics: str) -> set[AclBinding]:
    """Those that these topics have; they are removed, so that the next test does not find them."""
    admin = KafkaCatalogAdmin(AdminConnection(place.cluster.properties, timeout=timedelta(seconds=20)))
    found = {one for one in admin.acls() if one.resource_name in topics}
    admin.delete_acls(found)
    return found
