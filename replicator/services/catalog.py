"""Builds what keeps the destinations of a cluster like their sources."""

from __future__ import annotations

from collections.abc import Collection

from infra.archive.archive import Archive
from infra.archive.last_good import watermarks_in
from infra.contracts.internal_topics import Ledger
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from infra.kafka.internal_topics.ledger import KafkaLedger
from infra.runtime.lifecycle import Clock
from infra.settings.current import InForce
from infra.settings.kafka import ROLES
from ingress.catalog.acl_applier import AclApplier, principals_of
from ingress.catalog.applier import CatalogApplier
from ingress.catalog.creator import TopicCreator
from ingress.catalog.first_copy import FirstCopies
from ingress.catalog.ownership import LedgerView
from ingress.catalog.settings import CatalogSettings
from ingress.settings import IngressSettings
from replicator.config import Config


def ledger_of(config: Config, settings: IngressSettings) -> KafkaLedger:
    """To be closed. Raises ConfigError."""
    return KafkaLedger(
        settings.ledger_topic,
        consumer=config.cluster.properties("consumer"),
        producer=config.cluster.properties("producer"),
    )


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
    clock: Clock,
) -> CatalogApplier:
    settings = current.value
    catalog_admin, view = KafkaCatalogAdmin(admin.connection), LedgerView(ledger)
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
            own_principals=own_principals(config, settings),
        ),
        copies=FirstCopies(
            archive.segments, archive.control, watermarks_in(archive.segments.objects, config.s3.prefix)
        ),
        settings=current,
        clock=clock,
    )
