"""Heartbeats in topics of this cluster, as MirrorMaker 2's clients expect them.

    every `heartbeat_interval`, by the process that has partition 0 of the first destination of a source region:
      the flow lives ───────────────────────────────────────> heartbeats
      a heartbeat of the region has arrived, and is new ────> <alias>.heartbeats, with the region's own time
      none, or the same one ────────────────────────────────> nothing: the pipe stands still

The requests run on a pool, so delivery never waits for a heartbeat. What is new is known from the second read on, so a
process that takes over repeats nothing. What was not written is not written later: the next one says more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime

from formats.control.heartbeat import WriterHeartbeat
from formats.errors import ReplicatorError, StoreUnavailable, TargetError
from formats.messages.mirrormaker import MirrorHeartbeat
from formats.records.milliseconds import ms_at_or_before
from infra.archive.source_reports import SourceHeartbeats
from infra.contracts.internal_topics import HeartbeatWriter
from infra.runtime import log_fields
from infra.runtime.lookups import Lookup
from infra.runtime.retry import REFUSED_FOR
from infra.settings.current import InForce
from ingress.catalog.mirror_topics import MirrorTopics
from ingress.heartbeat_flows import HeartbeatFlow, heartbeat_flows
from ingress.routing.destinations import RoutingTable
from ingress.settings import IngressSettings

log = logging.getLogger(__name__)

NEXT = "records are delivered all the same; mend it, or set heartbeats = false for the sources of this region"


def held_regions(found: RoutingTable, kept: Collection[str]) -> frozenset[str]:
    """Regions whose heartbeats this process writes: those of which it has partition 0 of the first destination. `kept`:
    destinations whose partition 0 it has."""
    first: dict[str, str] = {}  # destination by region
    for name in sorted(found.destinations):
        for route in found.destinations[name].routes:
            first.setdefault(route.region, name)
    return frozenset(region for region, name in first.items() if name in kept)


@dataclass(slots=True, kw_only=True)
class HeartbeatRound:
    """One round of writing: blocks. Use from one thread at a time. What fails is logged once."""

    here: str  # this region
    source: SourceHeartbeats
    topics: MirrorTopics
    writer: HeartbeatWriter
    _known: dict[str, WriterHeartbeat | None] = field(default_factory=dict)  # by topic of the source: written, or seen
    _refused: dict[str, datetime] = field(default_factory=dict)  # by topic: until when
    _logged: dict[str, str] = field(default_factory=dict)  # by topic, or region

    def write(self, flows: Sequence[HeartbeatFlow], delivered: Collection[str], now: datetime) -> None:
        """`delivered`: topics that records are delivered to, in any process: no heartbeats of ours."""
        for gone in self._known.keys() - {flow.source_topic for flow in flows}:
            del self._known[gone]  # another process may write it now
        for flow in flows:
            if flow.topic not in delivered:
                beat = MirrorHeartbeat(
                    source_alias=flow.alias, target_alias=self.here, timestamp_ms=ms_at_or_before(now)
                )
                self._write(flow.topic, beat, source=f"{self.here}/{flow.topic}", lineage=(), now=now)
        try:
            newest = self.source.refresh(sorted({flow.region for flow in flows}))
        except StoreUnavailable as error:
            log.info("heartbeats_not_seen", extra={log_fields.ERROR: str(error)})
            return
        for flow in flows:
            if flow.source_topic not in delivered:
                self._write_of_source(flow, newest[flow.region], now)

    def report(self, problems: Mapping[str, str]) -> None:
        for subject, why in problems.items():
            self._failed(subject, why)

    def _write_of_source(self, flow: HeartbeatFlow, arrived: WriterHeartbeat | None, now: datetime) -> None:
        if flow.source_topic not in self._known:
            self._known[flow.source_topic] = arrived  # another process may have written it
        if arrived is None or arrived == self._known[flow.source_topic]:
            return
        beat = MirrorHeartbeat(
            source_alias=self.here, target_alias=flow.alias, timestamp_ms=ms_at_or_before(arrived.written_at)
        )
        if self._write(flow.source_topic, beat, source=f"{flow.region}/{flow.topic}", lineage=flow.lineage, now=now):
            self._known[flow.source_topic] = arrived

    def _write(
        self, topic: str, beat: MirrorHeartbeat, *, source: str, lineage: tuple[str, ...], now: datetime
    ) -> bool:
        """Whether it was written."""
        if now < self._refused.get(topic, now):
            return False
        try:
            self.topics.ensure(topic, source=source, lineage=lineage)
            self.writer.write(topic, beat)
        except ReplicatorError as error:
            self.topics.forget(topic)
            if isinstance(error, TargetError):
                self._refused[topic] = now + REFUSED_FOR
            self._failed(topic, str(error))
            return False
        self._refused.pop(topic, None)
        self._logged.pop(topic, None)
        return True

    def _failed(self, subject: str, why: str) -> None:
        if self._logged.get(subject) != why:
            log.warning(
                "heartbeats_not_written",
                extra={log_fields.TOPIC: subject, log_fields.ERROR: why, log_fields.NEXT: NEXT},
            )
        self._logged[subject] = why


@dataclass(slots=True, kw_only=True)
class Heartbeats:
    """Use from the controller's thread only; the requests run on `pool`."""

    settings: InForce[IngressSettings]
    round: HeartbeatRound
    pool: Executor
    _lookup: Lookup[None] = field(init=False)

    def __post_init__(self) -> None:
        self._lookup = Lookup(self.pool)

    def poll(self, found: RoutingTable, kept: Callable[[], Collection[str]], now: datetime) -> None:
        """`kept`: destinations whose partition 0 this process has."""
        self._lookup.collect()  # failures are in the log
        if self._lookup.is_due(now):
            self._lookup.due_at = now + self.settings.value.heartbeat_interval
            self._lookup.ask(self._write, found, kept(), now)

    def _write(self, found: RoutingTable, kept: Collection[str], now: datetime) -> None:
        flows, problems = heartbeat_flows(self.settings.value)
        # without a catalogue the egress is one without heartbeats, and the lineage of the topic is not known
        held = held_regions(found, kept) & found.catalogs.keys()
        self.round.report({region: why for region, why in problems.items() if region in held})
        mine = [
            replace(flow, lineage=(found.catalogs[flow.region].cluster_id,)) for flow in flows if flow.region in held
        ]
        self.round.write(mine, {*found.destinations, *(key.destination_topic for key in found.stopped)}, now)
