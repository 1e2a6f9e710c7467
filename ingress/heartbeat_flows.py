"""Which topics of this cluster have the heartbeats of which source region, as the configuration names them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from formats.errors import PluginFailed
from formats.incarnation import LEGAL_NAME
from formats.topic_selection import is_internal
from ingress.settings import IngressSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatFlow:
    """Where heartbeats of one source region go."""

    region: str
    alias: str
    topic: str  # of the flow itself
    source_topic: str  # of the source
    lineage: tuple[str, ...] = ()  # of the source's topic: the id of its cluster


def heartbeat_flows(settings: IngressSettings) -> tuple[Sequence[HeartbeatFlow], Mapping[str, str]]:
    """Flows in the order of the file, each topic of a source once; and by region, why some are left out."""
    flows: dict[str, HeartbeatFlow] = {}  # by topic of the source
    problems: dict[str, str] = {}
    for source in settings.sources:
        try:
            topics = source.heartbeat_topics
        except PluginFailed as error:
            problems[source.region] = str(error)
            continue
        if topics is None:
            continue
        wrong = next((name for name in topics if not _may_be_created(name, settings.own_topics)), "")
        if wrong or topics[0] == topics[1]:
            problems[source.region] = f"its replication policy names heartbeats {wrong or topics[0]!r}, which cannot be"
            continue
        flow = HeartbeatFlow(region=source.region, alias=source.source_alias, topic=topics[0], source_topic=topics[1])
        if flows.setdefault(flow.source_topic, flow).region != flow.region:
            problems[source.region] = f"{flow.source_topic} has the heartbeats of another region: set another alias"
    return list(flows.values()), problems


def _may_be_created(name: str, own: Collection[str]) -> bool:
    return LEGAL_NAME.fullmatch(name) is not None and not is_internal(name, own)
