"""A record with the id of a schema, mirrored to another region, and read there with that region's registry."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from infra.archive.last_good import schemas_in
from infra.contracts.cluster import TopicPartition
from infra.kafka.cluster.schema_registry import schema_registry
from infra.settings.schema_registry import SchemaRegistrySettings
from replicator.schemas import SchemaRestore, archived_schemas
from replicator.services.clients import Clients
from replicator.services.egress import build_egress
from replicator.services.ingress import build_ingress
from replicator.status.schemas import read_topic_schemas
from tests.fakes.schema_registry import FakeRegistry, serving
from tests.infra.cluster import Cluster
from tests.integration.test_control_plane import Regions, await_, regions  # noqa: F401 - the fixture

pytestmark = [pytest.mark.integration, pytest.mark.long]

ORDER = '{"type":"record","name":"Order","fields":[{"name":"item","type":"string"}]}'


def registry_at(url: str) -> SchemaRegistrySettings:
    return SchemaRegistrySettings(url=url, interval=timedelta(seconds=1))


def test_a_mirrored_record_is_read_with_the_registry_of_its_region(regions: Regions) -> None:  # noqa: F811
    """The registry of region b resolves the id of region a; each has given out other ids for itself."""
    source, target = FakeRegistry(), FakeRegistry()
    topic, copy = f"{regions.word}.orders", f"a.{regions.word}.orders"
    Cluster(regions.stack.brokers["a"]).create(topic, partitions=1)
    number = source.add(f"{topic}-value", ORDER, id=4711)
    target.add("of region b", '"string"')
    with serving(source) as there, serving(target) as here:
        egress = replace(regions.egress("a"), schema_registry=registry_at(there))
        ingress = replace(regions.ingress("b", "a"), schema_registry=registry_at(here))
        regions.start(build_egress(egress))
        regions.start(build_ingress(ingress))
        with Cluster(regions.stack.brokers["a"]).producer() as producer:
            producer.produce(topic, b"\x00" + struct.pack(">I", number) + b"\x0abread", partition=0)
        await_(lambda: copy in regions.topics("b") and regions.count("b", copy, 0) == 1)

        with Clients(ingress) as reach:
            await_(lambda: "a" in schemas_in(reach.objects, ingress.s3.prefix).refresh(["a"]))
            found = archived_schemas(reach.objects, ingress.s3.prefix, "a")
            assert ingress.schema_registry is not None
            restore = SchemaRestore(registry=schema_registry(ingress.schema_registry), source=found.snapshot)
            restore.run(restore.plan(datetime.now(UTC)))
            infos = list(reach.store.walk("a", topic))
            [status] = read_topic_schemas(reach.archive, infos, {"a": found.snapshot}, reach.pool)
        assert (status.path, status.found.ids, status.has_copy, status.unknown) == (topic, (number,), True, ())

        [record] = Cluster(regions.stack.brokers["b"]).records(TopicPartition(copy, 0))
        assert record.value is not None
        (carried,) = struct.unpack(">I", record.value[1:5])
        schema = schema_registry(ingress.schema_registry).schema(carried)
        assert schema is not None
        assert (schema.text, record.value[6:]) == (ORDER, b"bread")
