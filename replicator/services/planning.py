"""What ingress would change in this cluster, by the catalogues, the archive and the cluster as they are now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from formats.errors import TargetError
from infra.archive.last_good import watermarks_in
from infra.runtime.lifecycle import SystemClock
from infra.settings.current import Current
from ingress.catalog.applier import ClusterPlan
from ingress.catalog.desired import is_left_gone, not_created
from ingress.catalog.differ import Drift
from ingress.routing.archived import kept_like_sources
from replicator.services.catalog import applier_of
from replicator.services.clients import Clients
from replicator.services.ledger import ledger_in
from replicator.services.preserve_plan import preserve_plan
from replicator.services.routing import Routed
from replicator.status.destinations import DestinationsStatus
from replicator.status.empty_sources import empty_sources


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressPlan:
    """`plan`, and what it is made of."""

    plan: ClusterPlan
    changes: Sequence[str]
    problems: Mapping[str, str]
    observed_at: Mapping[str, datetime]  # of the catalogue in force, by region
    without_catalog: Sequence[str]  # regions


def planned(reach: Clients, routed: Routed) -> IngressPlan:
    """Changes nothing. Raises ConfigError, StoreUnavailable, BrokerUnavailable and TargetError."""
    config, settings = reach.config, reach.ingress
    found, routing = routed.catalogs, routed.routing
    applier = applier_of(
        config,
        Current(settings),
        admin=reach.admin,
        ledger=ledger_in(reach, create=False),
        archive=reach.archive,
        watermarks=watermarks_in(reach.objects, config.s3.prefix).refresh,
        clock=SystemClock(),
    )
    plan = applier.plan(
        kept_like_sources(routing.chosen),
        found,
        reach.checkpoints.read(),
        stale=routed.unreadable.keys(),
    )
    unlisted = [name for name, some in routing.chosen.items() if not any(one.source.found_in(found) for one in some)]
    existing = reach.admin.describe(unlisted) if unlisted else {}
    missing = [
        name
        for name in unlisted
        if name not in existing and not is_left_gone([one.source for one in routing.chosen[name]], found, settings)
    ]
    created = [f"create {name} as its segments say" for name in missing if settings.create_topics]
    if not settings.create_topics:
        waiting = (Drift(name, not_created(None)) for name in missing)
        plan = replace(plan, topics=replace(plan.topics, reports=(*plan.topics.reports, *waiting)))
    preserved = preserve_plan(reach.archive, routing.chosen, reach.checkpoints.read(), settings)
    never_arrived = empty_sources(reach.store, settings.regions, config.region)
    refused = {one.topic.name: one.reason for one in [*routing.withheld, *routing.refused, *routing.unnamed]}
    return IngressPlan(
        plan=plan,
        changes=[*created, *plan.changes, *preserved.notes],
        problems={**never_arrived, **refused, **routed.unreadable, **plan.problems, **preserved.problems},
        observed_at={region: catalog.observed_at for region, catalog in sorted(found.items())},
        without_catalog=[region for region in settings.regions if region not in found],
    )


def compared(reach: Clients, routed: Routed) -> DestinationsStatus:
    """For `status`: what the cluster refuses to say is a problem of its own. Raises as `planned` does, except
    TargetError."""
    if not reach.ingress.alters_cluster:
        at = {region: catalog.observed_at for region, catalog in sorted(routed.catalogs.items())}
        return DestinationsStatus(changed_at=at, refused=routed.unreadable)
    try:
        found = planned(reach, routed)
    except TargetError as error:
        return DestinationsStatus(unknown=str(error))
    return DestinationsStatus(
        changed_at=found.observed_at,
        without_catalog=tuple(found.without_catalog),
        changes=len(found.changes),
        differences=tuple(found.plan.reports),
        refused={**routed.unreadable, **found.plan.problems},
    )
