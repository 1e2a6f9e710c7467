"""The console's threads: one refreshes the state, one lists segment maps, and one answers requests from both."""

from __future__ import annotations

import gc
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Protocol

from formats.errors import ConfigError
from infra.runtime import log_fields
from infra.runtime.http_server import HttpServer, Request, Response
from infra.runtime.lifecycle import Clock, Stop
from infra.runtime.threaded_service import ThreadedService
from replicator.console.access import HEADERS, AccessRules
from replicator.console.history import LagHistory, LagKey
from replicator.console.job_pages import CompactionRun, observed_runs
from replicator.console.reader import add_sample
from replicator.console.segment_map import PartitionSegments
from replicator.console.segment_maps import SegmentMaps
from replicator.console.settled import settled_offsets
from replicator.console.site import ConsoleSite, PartitionKey
from replicator.console.state import ConsoleState, PartitionRow

log = logging.getLogger(__name__)

SHARE = 4  # a refresh takes at most a quarter of the time: after a long one the next begins later
MAP_TICK = timedelta(milliseconds=250)  # between two listings of segment maps
GRACE = timedelta(seconds=2)  # for a refresh in progress, when the console ends: nothing is lost with it


class ReadsState(Protocol):
    """Implemented by `replicator.console.reader.StateReader`. `segment_map` is called on another thread than the rest.
    No method raises for a cluster or a bucket that cannot be read."""

    def first(self) -> ConsoleState: ...

    def refresh(self, before: ConsoleState) -> ConsoleState: ...

    def earlier_lags(self, rows: Sequence[PartitionRow]) -> Sequence[tuple[datetime, Mapping[LagKey, int | None]]]: ...

    def segment_map(self, where: PartitionKey, settled: Mapping[str, int]) -> PartitionSegments:
        """`settled`: of `settled_offsets`, of a state that was read before."""


class LiveState:
    """What was read last. A `ConsoleSource`: any thread may ask; `refresh` and `list_one` have a thread each."""

    def __init__(self, reader: ReadsState, clock: Clock, max_age: timedelta) -> None:
        self._reader, self._clock = reader, clock
        self._maps = SegmentMaps(max_age)
        self.state = reader.first()
        self.reading_since: datetime | None = None
        self.history = LagHistory()
        self.runs: Sequence[CompactionRun] = ()

    def refresh(self) -> timedelta:
        """Returns how long it took."""
        began = self.reading_since = self._clock.now()
        state = self._reader.refresh(self.state)
        # an answer that is an error refers to itself by its traceback, and to its client: without this, the client's
        # threads and connections stay for many refreshes
        gc.collect()
        now = self._clock.now()
        if not self.state.rows and state.rows:
            for at, lags in self._reader.earlier_lags(state.rows):
                self.history.add(at, lags)
        add_sample(self.history, state, now)
        if state.compaction.value is not None and not state.compaction.error:
            self.runs = observed_runs(self.runs, state.compaction.value.running, now)
        self.state = state  # one assignment: a page shows one state
        self.reading_since = None
        for name, error in _errors(state):
            log.warning("not_refreshed", extra={log_fields.OPERATION: name, log_fields.ERROR: error})
        return self._clock.now() - began

    def list_one(self) -> bool:
        """List the segments of a partition that a page waits for. False: there is none."""
        where = self._maps.due(self._clock.now())
        if where is None:
            return False
        settled = settled_offsets(self.state, where)  # first: what is stored later is above it
        self._maps.put(where, self._reader.segment_map(where, settled), self._clock.now())
        return True

    def segments(self, where: PartitionKey) -> PartitionSegments | None:
        return self._maps.want(where, self._clock.now())


class ConsoleService(ThreadedService):
    """An `infra.runtime.service.Service`. Binds its port when it is made, and serves until it is stopped."""

    def __init__(
        self, reader: ReadsState, *, listen: tuple[str, int], rules: AccessRules, interval: timedelta, clock: Clock
    ) -> None:
        """`listen`: host and port; port 0 chooses a free one. Raises ConfigError when it cannot be bound."""
        self._clock, self._interval, self._stopped = clock, interval, Stop()
        self.live = LiveState(reader, clock, interval)
        self._site = ConsoleSite(source=self.live, rules=rules, refresh_seconds=interval.total_seconds())
        try:
            server = HttpServer(*listen, self._respond, headers=HEADERS)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError([f"--listen: cannot listen on {listen[0]}:{listen[1]}: {why}"]) from error
        host = f"[{server.host}]" if ":" in server.host else server.host
        self.address = f"http://{host}:{server.port}/"
        log.info("listening", extra={log_fields.ADDRESS: f"{host}:{server.port}"})
        resources = ExitStack()
        resources.callback(server.close)
        loops = {"refresh": self._refresh, "segment-maps": self._list_segments}
        super().__init__(loops, self._stopped, resources, GRACE)

    def _respond(self, request: Request) -> Response:
        return self._site.respond(request, self._clock.now())

    def _refresh(self) -> None:
        while not self._stopped.is_set():
            took = self.live.refresh()
            self._stopped.wait(max(self._interval, took * (SHARE - 1)))

    def _list_segments(self) -> None:
        while not self._stopped.wait(MAP_TICK):
            self.live.list_one()


def _errors(state: ConsoleState) -> Sequence[tuple[str, str]]:
    return [(name, part.error) for name, part in state.parts if part.error]
