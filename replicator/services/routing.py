"""Which archived topics go where, as the configuration and the catalogues of the source regions say now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from formats.control.catalog import Catalog
from infra.archive.last_good import catalogs_in
from ingress.routing.archived import ArchivedTopics, RoutingPlan
from replicator.services.clients import Clients


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """The archived topics with their destinations, by the catalogues of the source regions."""

    catalogs: Mapping[str, Catalog]  # in force, by region
    unreadable: Mapping[str, str]  # region → why its newest catalogue is not in force
    routing: RoutingPlan


def routed(reach: Clients) -> Routed:
    """Raises ConfigError, StoreUnavailable, BrokerUnavailable and TargetError."""
    config, settings = reach.config, reach.ingress
    catalogs = catalogs_in(reach.objects, config.s3.prefix)
    found = catalogs.refresh(settings.regions)
    topics = ArchivedTopics(
        reach.store,
        reach.control,
        reach.checkpoints,
        config.own_topics,
        config.region,
        cluster_id=reach.cluster_id,
    )
    return Routed(catalogs=found, unreadable=dict(catalogs.problems), routing=topics.plan(settings, found))
