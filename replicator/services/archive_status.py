"""What the state of the archive is read from, of one configuration: egress, groups of the sources, and compaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from compaction.schedule import OVERDUE, missed_times, next_run
from infra.archive.compaction_runs import CompletedRuns
from infra.archive.group_reports import GroupReports
from infra.archive.job_heartbeats import HeartbeatStore
from infra.archive.lease import NAME, is_dead
from replicator.services.clients import Clients
from replicator.status.compaction import CompactionSources, CompactionStatus
from replicator.status.egress import EgressSources
from replicator.status.groups import GroupsStatus, read_groups


def egress_sources(reach: Clients) -> EgressSources:
    """Raises ConfigError without [egress]."""
    config = reach.config
    if config.egress is None:
        raise config.without("egress", "; this command needs the settings of the archive")
    return EgressSources(
        region=config.region,
        settings=config.egress,
        own_topics=config.own_topics,
        admin=reach.admin,
        cluster_id=reach.cluster_id,
        groups=reach.groups,
        probe=reach.probe,
        store=reach.store,
        control=reach.control,
        proofs=reach.proofs,
    )


def groups_status(reach: Clients) -> Sequence[GroupsStatus]:
    """Of this region's groups, where egress stores them, and of those of the regions that ingress delivers. Raises
    StoreUnavailable."""
    config = reach.config
    regions = [] if config.egress is None else [config.region]
    regions += [] if config.ingress is None else config.ingress.regions
    return read_groups(GroupReports(reach.objects, config.s3.prefix), dict.fromkeys(regions))


def compaction_status(reach: Clients, now: datetime) -> CompactionStatus | None:
    """None without [compaction]. Raises ConfigError for an invalid cron expression."""
    config = reach.config
    if config.compaction is None:
        return None
    sources = CompactionSources(
        settings=config.compaction,
        region=config.region,
        control=reach.control,
        heartbeats=HeartbeatStore(reach.objects, config.s3.prefix, config.region),
        runs=CompletedRuns(reach.objects, config.s3.prefix, config.region),
        lease=NAME,
        is_dead=is_dead,
        next_run=next_run,
        missed_times=missed_times,
        overdue=OVERDUE,
    )
    return sources.read(now)
