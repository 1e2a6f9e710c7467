"""Builds ingress from its parts: an archive into this region's topics.

service = build_ingress(load(Path("replicator.toml")))
service.start(); …; service.stop(); service.join(timedelta(seconds=30))
"""

from __future__ import annotations

import logging
import random
import uuid
from datetime import timedelta
from functools import partial
from threading import Semaphore
from typing import TYPE_CHECKING

from formats.errors import MalformedKey
from infra.archive.last_good import catalogs_in
from infra.archive.notification_probes import NotificationProbes
from infra.archive.run_reader import SegmentRunReader
from infra.archive.source_reports import SourceReports
from infra.contracts.producer import TargetWriter
from infra.kafka.client.properties import with_metadata_refresh
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.groups import KafkaGroups
from infra.kafka.cluster.target_records import KafkaTargetRecords
from infra.kafka.consumer.placement import KafkaPlacement
from infra.kafka.internal_topics.checkpoint_editor import KafkaCheckpointEditor
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore
from infra.kafka.internal_topics.ensure import checkpoint_problems, ensure_internal_topics
from infra.kafka.internal_topics.event_log import KafkaEventLog
from infra.kafka.internal_topics.parked_reporter import BackgroundParkedReporter
from infra.kafka.producer.at_least_once import AtLeastOnceWriter
from infra.kafka.producer.timestamps import TargetTimestamps
from infra.kafka.producer.transactional import TransactionalWriter
from infra.runtime import log_fields
from infra.runtime.metrics import Metrics
from infra.runtime.service import Service
from infra.settings.current import Current
from ingress.catalog.sync import CatalogSync
from ingress.controller import IngressController, IngressParts
from ingress.delivery.rounds import ROUND_LINGER, Delivery
from ingress.delivery.sizes import (
    DECODING_THREADS,
    DELIVERY_WIDTH,
    PRODUCER_BYTES,
    READING_THREADS,
    ROUND_BYTES,
    ROUND_RECORDS,
    RUN_AGE,
    RUN_BYTES,
    SMALL_WIDTH,
)
from ingress.group_ownership import GroupOwnership
from ingress.groups.topic_ids import ClaimedTopicIds
from ingress.notification_intake import Intake
from ingress.routing.archived import ArchivedTopics
from ingress.routing.destinations import DestinationFinder
from ingress.routing.path_owner import PathOwners
from ingress.segment_stages import SegmentStages
from ingress.source_metrics import SourceMetrics
from ingress.topics_not_arrived import TopicsNotArrived
from replicator.config import Config, IngressSettings
from replicator.config.reload import INGRESS
from replicator.services.archive import archive_in
from replicator.services.catalog import applier_of, creator_of, heartbeats_of
from replicator.services.groups import groups_of
from replicator.services.ledger import ledger_of
from replicator.services.preserving import check_preserving, preserving_writer
from replicator.services.reload import ReloadedFile, reloading_service
from replicator.services.wiring import PROBE_TIMEOUT, START_PATIENCE, ServiceContext, s3_store

if TYPE_CHECKING:
    import boto3

log = logging.getLogger(__name__)

OPEN_TRANSACTION = timedelta(seconds=10)  # added to the transaction timeout, for the broker to abort it


def build_ingress(
    config: Config,
    *,
    take_over: str = "",
    file: ReloadedFile | None = None,
    session: boto3.Session | None = None,
    around: ServiceContext | None = None,
) -> Service:
    """A service that delivers an archive to this region's topics. `take_over`: the consumer group that this one
    replaces. `file`: where `config` is from; its changes are taken over. `session`: for a bucket or a queue whose
    section names neither keys nor a profile. Raises ConfigError, BrokerUnavailable, TargetError."""
    if config.ingress is None or config.sqs is None:  # [sqs] is there where [ingress] is
        raise config.without("ingress", "; add [ingress] with at least one source, and [sqs]")
    settings, around = config.ingress, around or ServiceContext(config, session)
    current = Current(settings)
    needs_ledger = settings.alters_cluster or config.groups.sync
    with around.building():
        admin = KafkaAdmin(config.cluster.properties("admin"), first_contact=START_PATIENCE)
        ensure_internal_topics(
            admin,
            segment_events_topic=settings.segment_events_topic,
            segment_events_retention=settings.segment_events_retention,
            checkpoint_topic=settings.checkpoint_topic,
            offset_map_topic=settings.offset_map_topic,
            ledger_topic=settings.ledger_topic if needs_ledger else "",
            replication_factor=settings.internal_replication_factor,
        )
        cluster_id = admin.cluster_id()
        ledger = ledger_of(config, settings.ledger_topic)
        around.resources.callback(ledger.close)
        malformed = _MalformedKeys(around.metrics)
        objects = around.objects(config.s3, threads=16)
        archive = archive_in(objects, config, malformed)
        # a refused read would keep one of the few places for as long as an operator takes, and partitions share these
        delivered = archive_in(around.objects(config.s3, threads=READING_THREADS, raises_refusals=True), config)
        reports = SourceReports(objects, config.s3.prefix)
        event_log = KafkaEventLog(
            config.cluster.properties("consumer"),
            settings.segment_events_topic,
            producer=config.cluster.properties("producer"),
        )
        around.resources.callback(event_log.close)
        checkpoints = KafkaCheckpointStore(config.cluster.properties("consumer"), settings.checkpoint_topic)
        around.resources.callback(checkpoints.close)
        editor = KafkaCheckpointEditor(config.cluster.properties("producer"), settings.checkpoint_topic)
        around.resources.callback(editor.close)
        claims = KafkaCheckpointEditor(config.cluster.properties("producer"), settings.checkpoint_topic)
        around.resources.callback(claims.close)
        notes = BackgroundParkedReporter(checkpoints, editor, around.stop)
        writer = _writer(config, settings)
        around.resources.callback(writer.close, timedelta(seconds=2))
        consumer = config.cluster.properties("consumer")
        member = with_metadata_refresh(consumer, settings.refresh_interval)
        placement = KafkaPlacement(member, group_id=settings.group_id)
        preserving = preserving_writer(config, settings, admin, placement)
        around.resources.callback(preserving.close, timedelta(seconds=2))
        stages = SegmentStages(around.metrics, around.clock)
        delivery = Delivery(
            reader=SegmentRunReader(
                delivered,
                settings.batch_size,
                RUN_BYTES,
                expect=PathOwners(delivered.control).expect,
                opened=stages.opened,
                max_age=RUN_AGE,
                decoding=Semaphore(DECODING_THREADS),
            ),
            writer=writer,
            timestamps=TargetTimestamps(admin, around.clock),
            pool=around.pool(READING_THREADS, "read"),
            clock=around.clock,
            metrics=around.metrics,
            stop=around.stop,
            abandon=around.abandon,
            preserving=preserving,
            fence=placement.fence,
            width=DELIVERY_WIDTH,
            small_width=SMALL_WIDTH,
            round_records=ROUND_RECORDS,
            round_bytes=ROUND_BYTES,
            linger=ROUND_LINGER,
        )
        controller = IngressController(
            IngressParts(
                placement=placement,
                event_log=event_log,
                checkpoints=checkpoints,
                checkpoint_problems=partial(checkpoint_problems, admin, settings.checkpoint_topic),
                ownership=GroupOwnership(
                    topic=settings.checkpoint_topic,
                    group_id=settings.group_id,
                    take_over=take_over,
                    checkpoints=checkpoints,
                    editor=claims,
                    cluster_id=admin.cluster_id,
                    groups=KafkaGroups(config.cluster.properties("admin"), config.cluster.properties("consumer")),
                    clock=around.clock,
                    make_id=lambda: uuid.uuid4().hex,
                ),
                target_records=KafkaTargetRecords(
                    admin,
                    config.cluster.properties("consumer"),
                    read_within=settings.transaction_timeout + OPEN_TRANSACTION,
                ),
                notes=notes,
                store=archive.segments,
                control=archive.control,
                finder=DestinationFinder(
                    archive,
                    ArchivedTopics(
                        archive.segments,
                        archive.control,
                        checkpoints,
                        settings.own_topics,
                        config.region,
                        clock=around.clock,
                        cluster_id=cluster_id,
                    ),
                    admin,
                    current,
                    creator_of(settings, admin, ledger, around.clock),
                    catalogs_in(objects, config.s3.prefix),
                    cluster_id=cluster_id,
                ),
                delivery=delivery,
                stages=stages,
                catalog=CatalogSync(
                    applier_of(
                        config,
                        current,
                        admin=admin,
                        ledger=ledger,
                        archive=archive,
                        watermarks=reports.watermarks,
                        clock=around.clock,
                    )
                    if settings.alters_cluster
                    else None,
                    around.pool(1, "catalog"),
                    settings.refresh_interval,
                    around.health,
                ),
                sources=SourceMetrics(
                    reports,
                    ClaimedTopicIds(archive.control),
                    TopicsNotArrived(settings=current, own_topics=config.own_topics, here=config.region),
                    around.metrics,
                    around.pool(1, "source"),
                    settings.refresh_interval,
                ),
                heartbeats=heartbeats_of(config, current, around, admin=admin, ledger=ledger, objects=objects),
                groups=groups_of(config, current, around, admin=admin, ledger=ledger, objects=objects),
                pool=around.pool(8, "list"),
                checkpoint_pool=around.pool(1, "checkpoints"),
                clock=around.clock,
                jitter=lambda interval: interval * random.uniform(0.75, 1.25),
                metrics=around.metrics,
                health=around.health,
                stop=around.stop,
                abandon=around.abandon,
                relist_interval=settings.relist_interval,
                refresh_interval=settings.refresh_interval,
                shutdown_timeout=settings.shutdown_timeout,
            )
        )
        intake = Intake(
            around.queue(config.sqs),
            event_log,
            config.s3.prefix,
            current,
            controller.wants,
            min(config.sqs.wait, max(settings.shutdown_timeout / 2, timedelta(seconds=1))),  # a shutdown waits for it
            around.metrics,
            around.health,
            around.stop,
            around.clock,
            lambda: controller.has_begun,
            # without the retries of the others: segments do not wait for a doctor
            NotificationProbes(
                s3_store(config.s3, 1, around.resources, once=True, session=session, read_timeout=PROBE_TIMEOUT),
                config.s3.prefix,
                config.region,
            ).answer,
        )
        loops = {"ingress": controller.run, "delivery": delivery.run, "intake": intake.run, "notes": notes.run}
        return reloading_service(
            around,
            loops,
            settings.shutdown_timeout,
            file=file,
            running=config,
            reads=INGRESS,
            apply=lambda changed: current.replace(changed.ingress or settings),  # a section is never taken away
            check=check_preserving,
        )


def _writer(config: Config, settings: IngressSettings) -> TargetWriter:
    properties = config.cluster.properties("producer")
    if settings.delivery == "at-least-once":
        return AtLeastOnceWriter(
            properties,
            checkpoint_topic=settings.checkpoint_topic,
            offset_map_topic=settings.offset_map_topic,
            memory_bytes=PRODUCER_BYTES,
        )
    # with a fixed id a restarted process aborts its last transaction at once; otherwise that takes the timeout
    instance = config.cluster.properties("consumer").get("group.instance.id", "")
    return TransactionalWriter(
        properties,
        transactional_id=f"{settings.group_id}.{instance or uuid.uuid4().hex}",
        exclusive=not instance,
        transaction_timeout=settings.transaction_timeout,
        checkpoint_topic=settings.checkpoint_topic,
        offset_map_topic=settings.offset_map_topic,
        memory_bytes=PRODUCER_BYTES,
    )


class _MalformedKeys:
    """Counts and logs keys below the prefix that are not segment keys, each once. Safe to call from several threads."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._seen: set[str] = set()

    def __call__(self, error: MalformedKey) -> None:
        if str(error) not in self._seen and len(self._seen) < 10_000:
            self._seen.add(str(error))
            self._metrics.count("malformed_keys", 1)
            log.warning("malformed_key", extra={log_fields.ERROR: str(error)})
