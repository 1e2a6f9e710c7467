"""What the state of delivery is read from, of one configuration."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from infra.archive.source_reports import SourceReports
from replicator.services.clients import Clients
from replicator.services.routing import Routed, routed
from replicator.status.ingress import IngressSources, IngressStatus, Planned
from replicator.status.lag import LagSources, PartitionLag


def ingress_sources(reach: Clients, routed: Routed) -> IngressSources:
    """Raises ConfigError without [ingress]."""
    config, plan = reach.config, routed.routing
    return IngressSources(
        settings=reach.ingress,
        region=config.region,
        own_topics=config.own_topics,
        plan=Planned(refused=plan.reasons, kept_away=plan.kept_away_paths, followed=plan.followed),
        catalogs=routed.catalogs,
        admin=reach.admin,
        cluster_id=reach.cluster_id,
        groups=reach.groups,
        checkpoints=reach.checkpoints,
        store=reach.store,
        control=reach.control,
        proofs=reach.proofs,
        reports=SourceReports(reach.objects, config.s3.prefix),
        topic_ids=reach.topic_ids,
    )


def partition_lags(reach: Clients, now: datetime) -> Sequence[PartitionLag]:
    """Raises ConfigError without [ingress], StoreUnavailable, BrokerUnavailable, TargetError."""
    return _lag_sources(reach, routed(reach)).read(now, reach.pool)


def lags_of(reach: Clients, routed: Routed, status: IngressStatus, now: datetime) -> Sequence[PartitionLag]:
    """Of a status that was read. Raises StoreUnavailable."""
    return _lag_sources(reach, routed).of(status, now, reach.pool)


def _lag_sources(reach: Clients, routed: Routed) -> LagSources:
    return LagSources(ingress_sources(reach, routed), reach.objects, reach.config.s3.prefix)
