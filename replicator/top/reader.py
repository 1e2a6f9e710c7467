"""Reads the state as `status` does, again and again, on a thread of its own: the terminal never waits for a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Protocol

from formats.errors import ReplicatorError
from infra.contracts.cluster import TopicPartition
from infra.runtime.lifecycle import Clock, Stop
from infra.settings.units import format_age
from replicator.config import Config
from replicator.services.archive_status import egress_sources
from replicator.services.clients import Clients
from replicator.services.ingress_status import ingress_sources, lags_of
from replicator.services.routing import routed
from replicator.status.egress import EgressStatus
from replicator.status.sources import SourceStatus
from replicator.top.snapshot import (
    FlowName,
    Group,
    Row,
    Snapshot,
    archive_rows,
    complete_as_of,
    delivery_rows,
    with_rates,
)

OLDEST_READ = 10  # partitions whose first record that is not archived is read, the furthest behind first


class TopReader:
    """Reads one region. For one thread."""

    def __init__(self, reach: Clients) -> None:
        self._reach = reach

    @property
    def config(self) -> Config:
        return self._reach.config

    def read(self, now: datetime) -> Snapshot:
        """Raises what the clients raise."""
        rows: list[Row] = []
        groups: list[Group] = []
        problems: list[str] = []
        lines: list[str] = []
        complete: datetime | None = None
        if self.config.egress is not None:
            archive = egress_sources(self._reach).read(now, self._reach.pool)
            rows += archive_rows(archive, self._oldest(archive), now)
            problems += archive.problems
            gaps = sum(p.losses for p in archive.partitions)
            groups.append(Group(flow=FlowName.ARCHIVE, name=archive.group_id, members=archive.group.members, gaps=gaps))
        if self.config.ingress is not None:
            found = routed(self._reach)
            delivery = ingress_sources(self._reach, found).read(now, self._reach.pool)
            lags = lags_of(self._reach, found, delivery, now)
            rows += delivery_rows(delivery, lags)
            problems += delivery.problems
            complete = complete_as_of(lags)
            skipped = sum(1 for p in delivery.partitions if p.skipped)
            groups.append(
                Group(
                    flow=FlowName.DELIVER,
                    name=delivery.group_id,
                    members=delivery.group.members,
                    parked=len(delivery.parked),
                    gaps=skipped,
                )
            )
            lines += [_source(one, now) for one in delivery.sources]
        return Snapshot(
            region=self.config.region,
            at=now,
            rows=rows,
            groups=groups,
            sources=lines,
            problems=problems,
            complete_as_of=complete,
        )

    def _oldest(self, status: EgressStatus) -> Mapping[str, datetime]:
        waiting = sorted((p for p in status.partitions if p.lag), key=lambda p: -p.lag)[:OLDEST_READ]
        names = {TopicPartition(p.source.topic, p.source.partition): str(p.source) for p in waiting}
        first = {TopicPartition(p.source.topic, p.source.partition): p.ends.high - p.lag for p in waiting}
        found = self._reach.probe.timestamps(first) if first else {}
        return {names[partition]: at for partition, at in found.items()}


def _source(one: SourceStatus, now: datetime) -> str:
    age = "" if one.heartbeat_at is None else format_age(now - one.heartbeat_at)
    beat = f"heartbeat {age} ago" if age else "no heartbeat has arrived"
    return f"source {one.region}: {', '.join(filter(None, (beat, one.behind_text)))}"


class Reads(Protocol):
    def read(self, now: datetime) -> Snapshot: ...


class Watching:
    """The last reading, and why there was none since then. Read it from any thread."""

    def __init__(self, open_reader: Callable[[], Reads], clock: Clock, interval: timedelta) -> None:
        """`open_reader`: called on the thread that reads, until it succeeds."""
        self._open, self._clock, self.interval = open_reader, clock, interval
        self._lock = threading.Lock()
        self._last: Snapshot | None = None
        self._trouble = ""
        self._since: datetime | None = None
        self._stop = Stop()

    def start(self) -> None:
        threading.Thread(target=self._run, name="top", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def last(self) -> tuple[Snapshot | None, str]:
        """The last reading with rates, and the trouble since then; empty: there is none."""
        with self._lock:
            return self._last, self._trouble

    @property
    def reading_since(self) -> datetime | None:
        """When the reading under way began; None: none is."""
        with self._lock:
            return self._since

    def _run(self) -> None:
        reader: Reads | None = None
        while not self._stop.is_set():
            with self._lock:
                self._since = self._clock.now()
            try:
                reader = reader or self._open()
                found = reader.read(self._clock.now())
            except Exception as error:  # if the thread ended, an old state would stay on the screen
                kind = "" if isinstance(error, ReplicatorError) else f"{type(error).__name__}: "
                with self._lock:
                    self._trouble, self._since = f"{kind}{error}", None
            else:
                with self._lock:
                    self._last, self._trouble, self._since = with_rates(found, self._last), "", None
            self._stop.wait(self.interval)
