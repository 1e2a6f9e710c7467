"""Builds what keeps the destinations of a cluster like their sources, and writes heartbeats to it."""

from __future__ import annotations

from collections.abc import Collection

from infra.archive.archive import Archive
from infra.archive.source_reports import SourceHeartbeats
from infra.contracts.internal_topics import Ledger
from infra.contracts.storage import ObjectStore
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from infra.kafka.internal_topics.heartbeats import KafkaHeartbeatWriter
from infra.runtime.lifecycle import Clock
from infra.settings.current import InForce
from infra.settings.kafka import ROLES
from ingress.catalog.acl_applier import AclApplier, principals_of
from ingress.catalog.applier import CatalogApplier
from ingress.catalog.creator import TopicCreator
from ingress.catalog.data_age import OldestRecords
from ingress.catalog.first_copy import FirstCopies, WatermarksOf
from ingress.catalog.mirror_topics import MirrorTopics
from ingress.catalog.ownership import LedgerView
from ingress.catalog.removals import RemovedSources
from ingress.catalog.settings import CatalogSettings
from ingress.heartbeats import HeartbeatRound, Heartbeats
from ingress.settings import IngressSettings
from replicator.config import Config
from replicator.services.wiring import ServiceContext


def creator_of(settings: IngressSettings, admin: KafkaAdmin, ledger: Ledger, clock: Clock) -> TopicCreator:
    return TopicCreator(admin, ledger, clock, settings.replication_factor)


def own_principals(config: Config, settings: CatalogSettings) -> Collection[str]:
    """Of all clients, since each may have a principal of its own; empty when one is not known."""
    return principals_of([config.cluster.properties(role) for role in ROLES], settings.own_principals)


def applier_of(
    config: Config,
    current: InForce[IngressSettings],
    *,
    admin: KafkaAdmin,
    ledger: Ledger,
    archive: Archive,
    watermarks: WatermarksOf,
    clock: Clock,
) -> CatalogApplier:
    settings = current.value
    catalog_admin, view = KafkaCatalogAdmin(admin.connection), LedgerView(ledger)
    copies = FirstCopies(archive.segments, archive.control, watermarks)
    return CatalogApplier(
        admin=admin,
        catalog_admin=catalog_admin,
        ledger=view,
        creator=creator_of(settings, admin, ledger, clock),
        acls=AclApplier(
            admin=catalog_admin,
            ledger=view,
            settings=current,
            clock=clock,
            here=config.region,
            own_principals=own_principals(config, settings),
        ),
        copies=copies,
        records=OldestRecords(archive),
        removals=RemovedSources(copies),
        settings=current,
        clock=clock,
    )


def heartbeats_of(
    config: Config,
    current: InForce[IngressSettings],
    around: ServiceContext,
    *,
    admin: KafkaAdmin,
    ledger: Ledger,
    objects: ObjectStore,
) -> Heartbeats:
    settings = current.value
    writer = KafkaHeartbeatWriter(config.cluster.properties("producer"))
    around.resources.callback(writer.close)
    factor = settings.internal_replication_factor
    topics = MirrorTopics(
        admin=admin,
        catalog_admin=KafkaCatalogAdmin(admin.connection),
        ledger=ledger,
        creator=TopicCreator(admin, ledger, around.clock, factor, "ingress.internal_replication_factor"),
        settings=current,
        clock=around.clock,
    )
    return Heartbeats(
        settings=current,
        round=HeartbeatRound(
            here=config.region, source=SourceHeartbeats(objects, config.s3.prefix), topics=topics, writer=writer
        ),
        pool=around.pool(1, "heartbeats"),
    )
