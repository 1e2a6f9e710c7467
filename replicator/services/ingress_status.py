"""What the state of delivery is read from, of one configuration."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from infra.archive.last_good import catalogs_in
from infra.archive.source_reports import SourceReports
from ingress.routing.archived import ArchivedTopics
from replicator.config import IngressSettings
from replicator.services.clients import Clients
from replicator.status.ingress import IngressSources, Planned
from replicator.status.lag import LagSources, PartitionLag


def ingress_sources(reach: Clients) -> IngressSources | None:
    """None: the file delivers nothing."""
    return None if reach.config.ingress is None else _sources(reach, reach.config.ingress)


def partition_lags(reach: Clients, now: datetime) -> Sequence[PartitionLag]:
    """Raises ConfigError without [ingress], StoreUnavailable, BrokerUnavailable, TargetError."""
    sources = LagSources(_sources(reach, reach.ingress), reach.objects, reach.config.s3.prefix)
    return sources.read(now, reach.pool)


def _sources(reach: Clients, settings: IngressSettings) -> IngressSources:
    config = reach.config
    return IngressSources(
        settings=settings,
        region=config.region,
        own_topics=config.own_topics,
        plan=partial(_planned, reach, settings),
        admin=reach.admin,
        groups=reach.groups,
        checkpoints=reach.checkpoints,
        store=reach.store,
        control=reach.control,
        proofs=reach.proofs,
        reports=SourceReports(reach.objects, config.s3.prefix),
    )


def _planned(reach: Clients, settings: IngressSettings) -> Planned:
    config = reach.config
    catalogs = catalogs_in(reach.objects, config.s3.prefix).refresh(settings.regions)
    cluster_id = reach.admin.cluster_id()
    topics = ArchivedTopics(reach.store, reach.control, config.own_topics, config.region, cluster_id=cluster_id)
    plan = topics.plan(settings, catalogs)
    return Planned(refused=plan.reasons, kept_away=plan.kept_away_paths, followed=plan.followed)
