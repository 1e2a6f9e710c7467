"""Catalogues in a bucket, as the egress of a source writes them."""

from __future__ import annotations

import io
from datetime import datetime, timedelta

from formats.control.catalog import Catalog, CatalogTopic, encode_catalog
from formats.control.keys import catalog_prefix
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import ConfigSource, ConfigValue
from infra.archive.generations import Generations
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
    data = encode_catalog(catalog)
    key = Generations(place.objects, catalog_prefix("data", REGION)).key(number)
    place.objects.put_new(key, io.BytesIO(data), len(data))


def acls_of(place: Place, *topics: str) -> set[AclBinding]:
    """Those that these topics have; they are removed, so that the next test does not find them."""
    admin = KafkaCatalogAdmin(AdminConnection(place.cluster.properties, timeout=timedelta(seconds=20)))
    found = {one for one in admin.acls() if one.resource_name in topics}
    admin.delete_acls(found)
    return found
