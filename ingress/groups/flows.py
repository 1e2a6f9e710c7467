"""Which topics of this cluster have the group checkpoints and offset syncs of which source region. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from formats.errors import PluginFailed
from ingress.settings import IngressSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFlow:
    """Groups of one source region."""

    region: str
    checkpoints: str = ""  # topic of this cluster; empty: none, since no replication policy names it
    offset_syncs: str = ""


def group_flows(settings: IngressSettings) -> tuple[Sequence[GroupFlow], Mapping[str, str]]:
    """Each region once, in the order of the file; and by region, why some are left out. The first source of a region
    that has a replication policy names its topics."""
    flows: dict[str, GroupFlow] = {}
    problems: dict[str, str] = {}
    for source in settings.sources:
        if source.syncs_nothing or flows.get(source.region, GroupFlow(region="")).checkpoints:
            continue
        try:
            policy = source.policy
            flows[source.region] = GroupFlow(
                region=source.region,
                checkpoints="" if policy is None else policy.checkpoints_topic(source.source_alias),
                offset_syncs="" if policy is None else policy.offset_syncs_topic(source.source_alias),
            )
        except PluginFailed as error:
            problems[source.region] = str(error)
    return list(flows.values()), problems
