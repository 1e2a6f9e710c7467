"""The composition root: builds each service of its parts. Nothing of ours but the CLI and users imports this.

with open("replicator.toml") as file: ...
service = build_egress(load(Path("replicator.toml")))
service.start(); …; service.stop(); service.join(timedelta(seconds=30))
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from egress.bucket_sync import BucketSync, Place, SyncLoop, SyncResult
from egress.controller import EgressController, EgressParts
from egress.lag import LagGauge
from egress.open_transactions import StuckTransactions
from egress.segments.builder import Assembly
from egress.segments.spool import Spool
from egress.start.archive_lookup import ArchiveLookup
from egress.start.resolver import Resolver
from egress.start_lookup import Positioning
from egress.topics.claims import Places
from egress.topics.incarnation_check import Confirmations
from egress.topics.watcher import TopicWatcher
from formats.errors import ConfigError, MalformedKey, StoreUnavailable
from formats.registry import load as load_format
from formats.segment import Segment
from infra.archive.control import ControlStore
from infra.archive.run_reader import PieceReader
from infra.archive.segments import SegmentStore
from infra.archive.upload import Uploader
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import TargetWriter
from infra.kafka.client.properties import refreshed
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.groups import KafkaGroups
from infra.kafka.cluster.log_probe import KafkaLogProbe
from infra.kafka.cluster.target_records import KafkaTargetRecords
from infra.kafka.consumer.placement import KafkaPlacement
from infra.kafka.consumer.source_consumer import KafkaSourceConsumer
from infra.kafka.internal_topics.checkpoint_editor import KafkaCheckpointEditor
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore
from infra.kafka.internal_topics.ensure import checkpoint_problems, ensure_internal_topics
from infra.kafka.internal_topics.event_log import KafkaEventLog
from infra.kafka.internal_topics.parked_notes import BackgroundNotes
from infra.kafka.producer.at_least_once import AtLeastOnceWriter
from infra.kafka.producer.timestamps import TargetTimestamps
from infra.kafka.producer.transactional import TransactionalWriter
from infra.runtime import log_fields
from infra.runtime.lifecycle import Stop
from infra.runtime.metrics import Metrics
from infra.runtime.service import Service
from ingress.controller import IngressController, IngressParts
from ingress.delivery.rounds import ROUND_LINGER, Delivery
from ingress.group_ownership import GroupOwnership
from ingress.notification_intake import Intake
from ingress.routing.archived import WishFinder
from ingress.routing.destinations import DestinationFinder
from ingress.routing.path_owner import PlaceOwners
from replicator.config import Config, EgressSettings, IngressSettings
from replicator.services.wiring import Surroundings, program

__all__ = ["build_egress", "build_ingress", "build_sync"]

log = logging.getLogger(__name__)

MIB = 1024 * 1024
RUN_BYTES = 8 * MIB
DELIVERY_WIDTH = 8  # pieces read and produced at a time
ROUND_RECORDS = 50_000  # of a backlog, in one transaction: below 10,000 they cost throughput
PRODUCER_BYTES = 64 * MIB
OPEN_TRANSACTION = timedelta(seconds=10)  # beyond its timeout, for the broker to end it
LONGEST_LINGER = timedelta(milliseconds=100)  # of a poll of the source: uploads that end wait for it
SYNC_SHUTDOWN = timedelta(seconds=10)
SYNC_COMPARED = 200  # objects of a round of the service: comparing one may mean to read it, at both ends
START_PATIENCE = timedelta(seconds=30)  # of a service for a cluster that may be starting, too


def build_egress(config: Config) -> Service:
    """This region's topics → the archive. Raises ConfigError, BrokerUnavailable."""
    if config.egress is None:
        raise ConfigError(["egress: missing; add [egress] with at least one topic"], source=config.source)
    settings, around = config.egress, Surroundings(config)
    with around.building():
        admin = KafkaAdmin(config.cluster.properties("admin"), first_contact=START_PATIENCE)
        objects = around.objects(config.s3, threads=settings.upload_threads + 8, writes_as=config.region)
        store, control = SegmentStore(objects, config.s3.prefix), ControlStore(objects, config.s3.prefix)
        segment_format = load_format(config.format, config.format_options)
        properties = refreshed(config.cluster.properties("consumer"), settings.topic_refresh_interval)
        isolation = properties.get("isolation.level", "read_committed")
        # one budget: what the client fetched, the records being gathered and encoded, the encoded that wait
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
        spool = around.resources.enter_context(open_spool(settings))
        assembly = Assembly(
            format=segment_format,
            confirm=confirmations.ask,
            uploader=Uploader(store, segment_format, may_thin=lambda segment: _may_thin(admin, segment)),
            spool=spool,
            memory_bytes=budget // 2,
            encode_threads=2,
            upload_threads=settings.upload_threads,
        )
        if assembly.spool_limit < assembly.spool_most:
            log.warning(
                "spool_disk_small",
                extra={
                    log_fields.PATH: str(spool.directory),
                    log_fields.BYTES: assembly.spool_limit,
                    log_fields.WANTED: assembly.spool_most,
                    log_fields.NEXT: "nothing is lost, but segments are sealed before they are full, and reading waits "
                    "for uploads: set egress.spool_dir to a larger disk, or lower egress.memory_budget",
                },
            )
        pool, listing_pool = around.pool(2, "ask"), around.pool(8, "list")
        own = frozenset() if config.ingress is None else config.ingress.own_topics
        places = Places(config.region, control, around.clock)
        resolver = Resolver(
            region=config.region,
            cluster_id=cluster_id,
            consumer=consumer,
            admin=admin,
            probe=KafkaLogProbe(config.cluster.properties("consumer")),
            archive=ArchiveLookup(store, control, segment_format),
            control=control,
            places=places,
            clock=around.clock,
            accept_missing_archive=settings.on_archive_behind == "continue",
        )
        watcher = TopicWatcher(
            admin, settings.topics, own, cluster_id, settings.topic_refresh_interval, pool, places.claimed
        )
        controller = EgressController(
            EgressParts(
                region=config.region,
                isolation_level=isolation,
                writer=program(),
                consumer=consumer,
                positioning=Positioning(resolver, pool, listing_pool),
                watcher=watcher,
                confirmations=confirmations,
                assembly=assembly,
                lag=LagGauge(
                    admin,
                    assembly,
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
        return around.service({"egress": controller.run}, settings.shutdown_timeout)


def build_ingress(config: Config, *, take_over: str = "") -> Service:
    """An archive → this region's topics. `take_over`: the consumer group that this one replaces. Raises ConfigError,
    BrokerUnavailable, TargetError."""
    problems = [f"{name}: missing" for name in ("ingress", "sqs") if getattr(config, name) is None]
    if config.ingress is None or config.sqs is None:
        raise ConfigError(problems, source=config.source)
    settings, around = config.ingress, Surroundings(config)
    with around.building():
        admin = KafkaAdmin(config.cluster.properties("admin"), first_contact=START_PATIENCE)
        ensure_internal_topics(
            admin,
            segment_events_topic=settings.segment_events_topic,
            segment_events_retention=settings.segment_events_retention,
            checkpoint_topic=settings.checkpoint_topic,
            replication_factor=settings.internal_replication_factor,
        )
        malformed = _MalformedKeys(around.metrics)
        objects = around.objects(config.s3, threads=16)
        store = SegmentStore(objects, config.s3.prefix, malformed)
        control = ControlStore(objects, config.s3.prefix)
        segment_format = load_format(config.format, config.format_options)
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
        notes = BackgroundNotes(checkpoints, editor, around.stop)
        writer = _writer(config, settings)
        around.resources.callback(writer.close, timedelta(seconds=2))
        member = refreshed(config.cluster.properties("consumer"), settings.topic_refresh_interval)
        placement = KafkaPlacement(member, group_id=settings.group_id)
        delivery = Delivery(
            reader=PieceReader(
                store, segment_format, settings.batch_size, RUN_BYTES, expect=PlaceOwners(control).expect
            ),
            writer=writer,
            timestamps=TargetTimestamps(admin, around.clock),
            pool=around.pool(2, "read"),
            clock=around.clock,
            metrics=around.metrics,
            stop=around.stop,
            abandon=around.abandon,
            fence=placement.fence,
            width=DELIVERY_WIDTH,
            round_records=ROUND_RECORDS,
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
                store=store,
                control=control,
                finder=DestinationFinder(
                    store,
                    WishFinder(store, control, settings, settings.own_topics),
                    segment_format,
                    admin,
                    settings,
                    cluster_id=admin.cluster_id(),
                ),
                delivery=delivery,
                pool=around.pool(8, "list"),
                checkpoint_pool=around.pool(1, "checkpoints"),
                clock=around.clock,
                jitter=lambda interval: interval * random.uniform(0.75, 1.25),
                metrics=around.metrics,
                health=around.health,
                stop=around.stop,
                abandon=around.abandon,
                relist_interval=settings.relist_interval,
                refresh_interval=settings.topic_refresh_interval,
                shutdown_timeout=settings.shutdown_timeout,
            )
        )
        intake = Intake(
            around.queue(config.sqs),
            event_log,
            config.s3.prefix,
            frozenset(s.region for s in settings.sources),
            controller.wants,
            min(config.sqs.wait, max(settings.shutdown_timeout / 2, timedelta(seconds=1))),  # a stop waits for it
            around.metrics,
            around.health,
            around.stop,
            lambda: controller.has_begun,
        )
        loops = {"ingress": controller.run, "delivery": delivery.run, "intake": intake.run, "notes": notes.run}
        return around.service(loops, settings.shutdown_timeout)


def build_sync(config: Config, *, once: Callable[[SyncResult], None] | None = None) -> Service:
    """This region's archive → another bucket, until it is stopped; or one round, whose result goes to `once`. Raises
    ConfigError."""
    if config.sync is None:
        raise ConfigError(["sync: missing; add [sync.destination]"], source=config.source)
    settings, around = config.sync, Surroundings(config)
    with around.building():
        width = 8
        sync = BucketSync(
            config.region,
            Place(around.objects(config.s3, threads=width + 4, once=once is not None), config.s3.prefix),
            Place(
                around.objects(settings.destination, threads=width + 4, once=once is not None, writes_as=config.region),
                settings.destination.prefix,
            ),
            settings.topics,
            settings.levels,
            around.pool(width, "copy"),
            width,
            around.metrics,
            around.stop,
            alive=lambda: around.health.turn(around.clock.now()),
            most_compared=SYNC_COMPARED if once is None else None,
        )
        queue = around.queue(settings.queue) if settings.queue else None
        queue_wait = min(settings.queue.wait, SYNC_SHUTDOWN / 2) if settings.queue else timedelta()
        loop = SyncLoop(sync, queue, queue_wait, settings.interval, around.clock, around.health, around.stop)
        if once is not None:
            return around.service({"sync": lambda: once(_once(sync, around.stop))}, SYNC_SHUTDOWN)
        loops = {"sync": loop.run}
        if settings.queue is not None:
            loops["sync-queue"] = loop.follow
        return around.service(loops, SYNC_SHUTDOWN)


def open_spool(settings: EgressSettings) -> Spool:
    """Raises ConfigError."""
    try:
        return Spool(settings.spool_dir, settings.memory_budget // 8)
    except OSError as error:
        raise ConfigError([f"egress.spool_dir: cannot be used: {error}; set it to a directory with room"]) from error


def _linger(settings: EgressSettings) -> timedelta:
    """A twentieth of what the archive may be behind."""
    return min(min(rule.settings.max_segment_age for rule in settings.topics) / 20, LONGEST_LINGER)


def _writer(config: Config, settings: IngressSettings) -> TargetWriter:
    properties = config.cluster.properties("producer")
    if settings.delivery == "at-least-once":
        return AtLeastOnceWriter(properties, checkpoint_topic=settings.checkpoint_topic, memory_bytes=PRODUCER_BYTES)
    # with a name of its own a process that comes back ends its last transaction at once; else that takes the timeout
    instance = config.cluster.properties("consumer").get("group.instance.id", "")
    return TransactionalWriter(
        properties,
        transactional_id=f"{settings.group_id}.{instance or uuid.uuid4().hex}",
        exclusive=not instance,
        transaction_timeout=settings.transaction_timeout,
        checkpoint_topic=settings.checkpoint_topic,
        memory_bytes=PRODUCER_BYTES,
    )


class _MalformedKeys:
    """Counts and names keys below our prefix that are no segment's, each once. Safe to call from several threads."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._seen: set[str] = set()

    def __call__(self, error: MalformedKey) -> None:
        if str(error) not in self._seen and len(self._seen) < 10_000:
            self._seen.add(str(error))
            self._metrics.count("malformed_keys", 1)
            log.warning("malformed_key", extra={log_fields.ERROR: str(error)})


def _once(sync: BucketSync, stop: Stop) -> SyncResult:
    """Raises StoreUnavailable when a listing or copies failed, each a line of the log, or when it was stopped."""
    result = sync.once()
    if result.failed or stop.is_set():
        what = f"{result.failed} objects could not be copied" if result.failed else "stopped before the end"
        raise StoreUnavailable(f"sync: {what}, {result.copied} were; run it again")
    return result


def _may_thin(admin: KafkaAdmin, segment: Segment) -> bool:
    partition = TopicPartition(segment.source.topic, segment.source.partition)
    marks = admin.watermarks([partition]).get(partition)
    trimmed = marks is not None and marks.low > segment.offsets.start
    return trimmed or "compact" in admin.configs(segment.source.topic).get("cleanup.policy", "")
