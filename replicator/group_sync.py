"""What is done with the offsets of consumer groups in this cluster, for commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from formats.errors import TargetError
from infra.archive.group_reports import GroupReports
from infra.contracts.internal_topics import Ledger
from infra.kafka.cluster.group_commits import KafkaGroupCommits
from ingress.groups.round import by_group
from ingress.groups.sync_plan import SyncDecision
from ingress.groups.target_groups import TargetGroups
from replicator.offsets import TranslatedOffsets
from replicator.services.clients import Clients
from replicator.services.ledger import ledger_in


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDecisions:
    """What the next round does with the groups of one source region."""

    region: str
    groups: Mapping[str, Sequence[SyncDecision]] = field(default_factory=dict)
    problem: str = ""  # why it cannot be read


def target_groups(clients: Clients, ledger: Ledger, *, allow_rewind: bool = False) -> TargetGroups:
    return TargetGroups(
        groups=clients.groups,
        writer=KafkaGroupCommits(clients.config.cluster.properties("consumer")),
        ledger=ledger,
        pool=clients.pool,
        allow_rewind=allow_rewind,
    )


def group_decisions(clients: Clients, now: datetime) -> Sequence[GroupDecisions]:
    """Of each source region whose groups are synchronised here, and of which a snapshot has arrived. Writes nothing.
    Raises StoreUnavailable, BrokerUnavailable."""
    config = clients.config
    if config.ingress is None or not config.groups.sync:
        return []
    reports = GroupReports(clients.objects, config.s3.prefix)
    arrived = reports.refresh(list(config.ingress.regions))
    if not arrived:
        return []
    try:
        target = target_groups(clients, ledger_in(clients, create=False), allow_rewind=config.groups.allow_rewind)
    except TargetError as error:
        return [GroupDecisions(region=region, problem=str(error)) for region in sorted(arrived)]
    found = []
    for region, report in sorted(arrived.items()):
        try:
            positions = TranslatedOffsets.open(clients, region).positions(report.snapshot)
            is_newest = partial(reports.is_still_newest, region, report)
            groups = target.sync(by_group(positions), now, dry_run=True, region=region, is_newest=is_newest)
        except TargetError as error:
            found.append(GroupDecisions(region=region, problem=str(error)))
        else:
            found.append(GroupDecisions(region=region, groups=groups))
    return found
