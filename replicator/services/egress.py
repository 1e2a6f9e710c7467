"""Builds egress from its parts: this region's topics into the archive."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from egress.controller import EgressController, EgressParts
from egress.lag import LagGauge
from egress.open_transactions import StuckTransactions
from egress.segments.builder import SegmentBuilder
from egress.segments.spool import Spool
from egress.settings import EgressTopicSettings
from egress.start.archive_lookup import ArchiveLookup
from egress.start.decision import StartDecision
from egress.start.resolver import StartResolver
from egress.start_lookup import StartLookup
from egress.topics.claims import TopicClaims
from egress.topics.incarnation_check import Confirmations
from egress.topics.watcher import TopicWatcher
from formats.errors import ConfigError
from formats.segment import Segment, SourcePartition
from infra.archive.upload import Uploader
from infra.contracts.cluster import TopicPartition
from infra.kafka.client.properties import with_metadata_refresh
from infra.kafka.client.topic_configs import TopicConfigs
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.log_ends import KafkaLogEnds
from infra.kafka.cluster.log_probe import KafkaLogProbe
from infra.kafka.consumer.source_consumer import KafkaSourceConsumer
from infra.runtime import log_fields
from infra.runtime.cores import usable_cores
from infra.runtime.service import Service
from infra.settings.current import Current
from replicator.config import Config, EgressSettings
from replicator.config.reload import EGRESS
from replicator.services.archive import archive_in
from replicator.services.control_publisher import control_publisher
from replicator.services.reload import ReloadedFile, reloading_service
from replicator.services.segment_formats import SegmentFormats
from replicator.services.wiring import START_PATIENCE, ServiceContext, program

if TYPE_CHECKING:
    import boto3

log = logging.getLogger(__name__)

LONGEST_LINGER = timedelta(milliseconds=100)  # of a poll of the source: finished uploads wait for it


def build_egress(
    config: Config,
    *,
    file: ReloadedFile | None = None,
    session: boto3.Session | None = None,
    around: ServiceContext | None = None,
) -> Service:
    """A service that archives this region's topics. `file`: where `config` is from; its changes are taken over.
    `session`: for a bucket whose section names neither keys nor a profile. `around`: made of `config`, by a caller that
    watches the service. Raises ConfigError, BrokerUnavailable."""
    if config.egress is None:
        raise config.without("egress", "; add [egress] with at least one topic")
    settings, around = config.egress, around or ServiceContext(config, session)
    current = Current(settings)
    with around.building():
        admin = KafkaAdmin(config.cluster.properties("admin"), first_contact=START_PATIENCE)
        objects = around.objects(config.s3, threads=settings.upload_threads + 8, writes_as=config.region)
        archive = archive_in(objects, config)
        properties = with_metadata_refresh(config.cluster.properties("consumer"), settings.refresh_interval)
        isolation = isolation_level(config)
        # one budget: a quarter for fetched messages, half for records being collected and encoded, and a quarter for
        # encoded segments that wait (`open_spool`)
        budget = settings.memory_budget
        cluster_id = admin.cluster_id()
        consumer = KafkaSourceConsumer(
            properties,
            group_id=settings.group_id,
            isolation_level=isolation,
            memory_bytes=budget // 4,
            linger=_linger(settings),
            metrics=around.metrics,
        )
        confirmations = Confirmations(admin, around.pool(1, "confirm"))
        formats = SegmentFormats(config, archive.format)
        spool = around.resources.enter_context(open_spool(settings))
        builder = SegmentBuilder(
            format_of=lambda source: formats.of(settings_of(watcher, source)),
            confirm=confirmations.ask,
            uploader=Uploader(archive, source_compacted=lambda segment: source_compacted(admin, segment)),
            spool=spool,
            memory_bytes=budget // 2,
            encode_threads=encode_threads(),
            upload_threads=settings.upload_threads,
        )
        if builder.spool_limit < builder.spool_maximum:
            log.warning(
                "spool_disk_small",
                extra={
                    log_fields.PATH: str(spool.directory),
                    log_fields.BYTES: builder.spool_limit,
                    log_fields.WANTED: builder.spool_maximum,
                    log_fields.NEXT: "nothing is lost, but segments are sealed before they are full, and reading waits "
                    "for uploads: set egress.spool_dir to a larger disk, or lower egress.memory_budget",
                },
            )
        # while two lookups of starts are under way, topics and lag are still refreshed
        pool, listing_pool = around.pool(3, "ask"), around.pool(8, "list")
        own = frozenset() if config.ingress is None else config.ingress.own_topics
        claims = TopicClaims(config.region, archive.control, around.clock)
        lookup = ArchiveLookup(archive)
        resolver = StartResolver(
            region=config.region,
            cluster_id=cluster_id,
            consumer=consumer,
            admin=admin,
            probe=KafkaLogProbe(config.cluster.properties("consumer"), admin=config.cluster.properties("admin")),
            archive=lookup,
            claims=claims,
            decision=StartDecision(
                region=config.region,
                admin=admin,
                archive=lookup,
                control=archive.control,
                clock=around.clock,
                accept_missing_archive=settings.on_archive_behind == "continue",
            ),
        )
        watcher = TopicWatcher(admin, current, own, cluster_id, settings.refresh_interval, pool, claims.claimed)
        controller = EgressController(
            EgressParts(
                region=config.region,
                isolation_level=isolation,
                writer=program(),
                created_by=config.created_by or "",
                consumer=consumer,
                start_lookup=StartLookup(resolver, pool, listing_pool),
                watcher=watcher,
                confirmations=confirmations,
                builder=builder,
                lag=LagGauge(
                    admin,
                    KafkaLogEnds(admin.connection),
                    builder,
                    around.metrics,
                    settings.lag_interval,
                    pool,
                    StuckTransactions(settings.stuck_transaction_after) if isolation == "read_committed" else None,
                ),
                clock=around.clock,
                metrics=around.metrics,
                health=around.health,
                stop=around.stop,
                abandon=around.abandon,
                shutdown_timeout=settings.shutdown_timeout,
            )
        )
        loops = {"egress": controller.run}
        if settings.heartbeat_interval:
            loops["catalog"] = control_publisher(
                config, around, objects, admin, consumer.committed, current=current
            ).run
        return reloading_service(
            around,
            loops,
            settings.shutdown_timeout,
            file=file,
            running=config,
            reads=EGRESS,
            apply=lambda changed: current.replace(changed.egress or settings),  # a section is never taken away
        )


def settings_of(watcher: TopicWatcher, source: SourcePartition) -> EgressTopicSettings | None:
    """The settings of the topic now; None if it is not selected any more."""
    selected = watcher.topics.get(source.topic)
    return None if selected is None else selected.settings


def encode_threads() -> int:
    """One for each core of this process, since the codec runs without the GIL; each holds a row group."""
    return min(max(usable_cores(), 2), 8)


def open_spool(settings: EgressSettings) -> Spool:
    """The spool for encoded segments. Raises ConfigError if its directory cannot be used."""
    try:
        return Spool(settings.spool_dir, settings.memory_budget // 4)
    except OSError as error:
        raise ConfigError([f"egress.spool_dir: cannot be used: {error}; set it to a directory with room"]) from error


def _linger(settings: EgressSettings) -> timedelta:
    """A twentieth of the shortest maximum segment age, limited by `LONGEST_LINGER`."""
    return min(min(rule.settings.max_segment_age for rule in settings.topics) / 20, LONGEST_LINGER)


def isolation_level(config: Config) -> str:
    """What the source's records are read with."""
    return config.cluster.properties("consumer").get("isolation.level", "read_committed")


def source_compacted(admin: KafkaAdmin, segment: Segment) -> bool:
    """Whether the log may have dropped records since a segment of it was stored: compacted, or trimmed."""
    partition = TopicPartition(segment.source.topic, segment.source.partition)
    marks = admin.watermarks([partition]).get(partition)
    trimmed = marks is not None and marks.low > segment.offsets.start
    return trimmed or TopicConfigs(admin.configs(segment.source.topic)).is_compacted
