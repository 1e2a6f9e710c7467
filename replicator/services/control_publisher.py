"""Builds the publisher of this region's control objects: heartbeats, catalogue, watermarks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from egress.catalog.election import Election
from egress.catalog.heartbeat_topic import HeartbeatTopic
from egress.catalog.lineage import Lineages
from egress.catalog.observer import CatalogObserver, SelectedTopics
from egress.catalog.publication import Publication
from egress.catalog.publisher import ControlPublisher
from egress.catalog.schema_observer import SchemaObserver
from egress.catalog.watermark_observer import WatermarkObserver
from formats.control.catalog import Catalog, decode_catalog, encode_catalog
from formats.control.keys import catalog_prefix, heartbeat_prefix, schemas_prefix, watermarks_prefix
from formats.control.schemas import SchemaSnapshot, decode_schemas, encode_schemas
from formats.control.watermarks import SourceWatermarks, decode_watermarks, encode_watermarks
from formats.messages.ledger import DEFAULT_LEDGER, Ownership, ownership
from formats.topic_selection import select
from infra.archive.generations import Generations
from infra.archive.lease import this_process
from infra.contracts.cluster import Committed, TopicPartition
from infra.contracts.storage import ObjectStore
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from infra.kafka.cluster.log_ends import KafkaLogEnds
from infra.kafka.cluster.schema_registry import schema_registry
from infra.kafka.internal_topics.heartbeats import KafkaHeartbeatWriter, OwnHeartbeats
from infra.kafka.internal_topics.whole_topic import read_whole
from infra.runtime.failures import Attempt
from infra.settings.current import InForce
from replicator.config import Config, EgressSettings
from replicator.services.wiring import ServiceContext


def control_publisher(
    config: Config,
    around: ServiceContext,
    objects: ObjectStore,
    admin: KafkaAdmin,
    committed: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Committed]],
    *,
    current: InForce[EgressSettings],
) -> ControlPublisher:
    """`committed`: of the group of egress, from any thread."""
    settings = current.value
    own = frozenset() if config.ingress is None else config.ingress.own_topics
    writer = this_process()
    topics = SelectedTopics(
        admin, KafkaCatalogAdmin(admin.connection), lambda names: select(names, current.value.rules, own).keys()
    )
    pool = around.pool(2, "observe")  # one of them may wait for the cluster
    catalog = Publication(
        attempt=Attempt.CATALOG,
        generations=Generations(objects, catalog_prefix(config.s3.prefix, config.region)),
        encode=encode_catalog,
        decode=decode_catalog,
        observe=CatalogObserver(topics, Lineages(partial(_ledger, config, admin)), writer).observe,
        has_same_content=Catalog.has_same_content,
        interval=settings.refresh_interval,
        clock=around.clock,
        pool=pool,
    )
    watermarks = None
    if settings.watermark_interval:
        watermarks = Publication(
            attempt=Attempt.WATERMARKS,
            generations=Generations(objects, watermarks_prefix(config.s3.prefix, config.region)),
            encode=encode_watermarks,
            decode=decode_watermarks,
            observe=WatermarkObserver(topics, KafkaLogEnds(admin.connection), committed, writer).observe,
            has_same_content=SourceWatermarks.has_same_content,
            interval=settings.watermark_interval,
            clock=around.clock,
            pool=pool,
        )
    schemas = None
    if config.schema_registry is not None:
        schemas = Publication(
            attempt=Attempt.SCHEMAS,
            generations=Generations(objects, schemas_prefix(config.s3.prefix, config.region)),
            encode=encode_schemas,
            decode=decode_schemas,
            observe=SchemaObserver(schema_registry(config.schema_registry), writer).observe,
            has_same_content=SchemaSnapshot.has_same_content,
            interval=config.schema_registry.interval,
            clock=around.clock,
            pool=around.pool(1, "schemas"),
        )
    return ControlPublisher(
        catalog=catalog,
        watermarks=watermarks,
        schemas=schemas,
        heartbeats=Generations(objects, heartbeat_prefix(config.s3.prefix, config.region)),
        election=Election(writer, settings.heartbeat_interval),
        clock=around.clock,
        health=around.health,
        stop=around.stop,
        topic=_heartbeat_topic(config, around, admin) if settings.write_heartbeats else None,
    )


def _heartbeat_topic(config: Config, around: ServiceContext, admin: KafkaAdmin) -> HeartbeatTopic:
    writer = KafkaHeartbeatWriter(config.cluster.properties("producer"))
    around.resources.callback(writer.close)
    return HeartbeatTopic(OwnHeartbeats(admin, writer, config.region).write, around.pool(1, "heartbeats"))


def _ledger(config: Config, admin: KafkaAdmin) -> Ownership:
    """What the ingress of this cluster created; nothing where there is none."""
    topic = DEFAULT_LEDGER if config.ingress is None else config.ingress.ledger_topic
    if topic not in admin.describe([topic]):
        return Ownership()
    return ownership(read_whole(config.cluster.properties("consumer"), topic))[0]
