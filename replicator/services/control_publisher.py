"""Builds the publisher of this region's control objects: heartbeats, catalogue, watermarks, groups, schemas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import partial

from egress.catalog.election import Election
from egress.catalog.group_observer import GroupObserver
from egress.catalog.heartbeat_topic import HeartbeatTopic
from egress.catalog.lineage import Lineages
from egress.catalog.observer import CatalogObserver, SelectedTopics
from egress.catalog.publication import Publication
from egress.catalog.publisher import ControlPublisher
from egress.catalog.schema_observer import SchemaObserver
from egress.catalog.watermark_observer import WatermarkObserver
from formats.control.catalog import Catalog, decode_catalog, encode_catalog
from formats.control.group_snapshot import GroupSnapshot, decode_group_snapshot, encode_group_snapshot
from formats.control.keys import catalog_prefix, groups_prefix, heartbeat_prefix, schemas_prefix, watermarks_prefix
from formats.control.schemas import SchemaSnapshot, decode_schemas, encode_schemas
from formats.control.watermarks import SourceWatermarks, decode_watermarks, encode_watermarks
from formats.group_selection import select_groups
from formats.messages.ledger import DEFAULT_LEDGER, Ownership, ownership
from formats.topic_selection import select
from infra.archive.generations import Generations
from infra.archive.lease import this_process
from infra.contracts.cluster import Committed, TopicPartition
from infra.contracts.storage import ObjectStore
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from infra.kafka.cluster.groups import KafkaGroups
from infra.kafka.cluster.log_ends import KafkaLogEnds
from infra.kafka.cluster.schema_registry import schema_registry
from infra.kafka.internal_topics.heartbeats import KafkaHeartbeatWriter, OwnHeartbeats
from infra.kafka.internal_topics.whole_topic import read_whole
from infra.runtime.call_budget import CallBudget
from infra.runtime.failures import Attempt
from infra.settings.current import InForce
from replicator.config import Config, EgressSettings
from replicator.services.wiring import ServiceContext

GROUPS_AT_ONCE = 4  # each has a consumer client, of some threads and connections, while its offsets are read
GROUP_TIMEOUT = timedelta(seconds=5)  # of each request: a group that gives no answer keeps the others waiting
RESTATE_AFTER = timedelta(minutes=1)  # of watermarks: what thinning keeps of a busy source, too


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
        interval=lambda: settings.refresh_interval,
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
            observe=WatermarkObserver(topics, KafkaLogEnds(admin.connection), committed, writer, around.clock).observe,
            has_same_content=SourceWatermarks.has_same_content,
            interval=lambda: settings.watermark_interval,
            clock=around.clock,
            pool=pool,
            restate_after=RESTATE_AFTER,
        )
    schemas, registry = None, config.schema_registry
    if registry is not None:
        schemas = Publication(
            attempt=Attempt.SCHEMAS,
            generations=Generations(objects, schemas_prefix(config.s3.prefix, config.region)),
            encode=encode_schemas,
            decode=decode_schemas,
            observe=SchemaObserver(schema_registry(registry), writer).observe,
            has_same_content=SchemaSnapshot.has_same_content,
            interval=lambda: registry.interval,
            clock=around.clock,
            pool=around.pool(1, "schemas"),
        )
    return ControlPublisher(
        catalog=catalog,
        watermarks=watermarks,
        groups=_groups(config, around, objects=objects, admin=admin, topics=topics, writer=writer, current=current),
        schemas=schemas,
        heartbeats=Generations(objects, heartbeat_prefix(config.s3.prefix, config.region)),
        election=Election(writer, settings.heartbeat_interval),
        clock=around.clock,
        health=around.health,
        stop=around.stop,
        topic=_heartbeat_topic(config, around, admin) if settings.write_heartbeats else None,
    )


def _groups(
    config: Config,
    around: ServiceContext,
    *,
    objects: ObjectStore,
    admin: KafkaAdmin,
    topics: SelectedTopics,
    writer: str,
    current: InForce[EgressSettings],
) -> Publication[GroupSnapshot]:
    observer = GroupObserver(
        topics=topics,
        groups=KafkaGroups(
            config.cluster.properties("admin"),
            config.cluster.properties("consumer"),
            timeout=GROUP_TIMEOUT,
            connection=admin.connection,
        ),
        select=lambda names: select_groups(names, current.value.group_rules, config.own_groups),
        named=lambda: current.value.named_groups,
        budget=CallBudget(lambda: current.value.group_calls_per_second, around.clock, around.stop),
        pool=around.pool(GROUPS_AT_ONCE, "group"),
        writer=writer,
    )
    return Publication(
        attempt=Attempt.GROUPS,
        generations=Generations(objects, groups_prefix(config.s3.prefix, config.region)),
        encode=encode_group_snapshot,
        decode=decode_group_snapshot,
        observe=observer.observe,
        has_same_content=GroupSnapshot.has_same_content,
        interval=lambda: current.value.group_refresh_interval,
        clock=around.clock,
        pool=around.pool(1, "groups"),  # of its own: many groups may take longer than the other intervals
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
