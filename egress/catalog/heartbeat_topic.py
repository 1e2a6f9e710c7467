"""Heartbeats in a topic of the source cluster, as MirrorMaker 2 has them there.

    heartbeat stored ──> written on the pool, unless the one before is still under way

The process that writes the catalogue writes them, so there is one. What the cluster refuses is logged once, and tried
again later: nothing else depends on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime

from formats.errors import TargetError
from infra.runtime import log_fields
from infra.runtime.lookups import Answer, Failed, Lookup
from infra.runtime.retry import REFUSED_FOR

log = logging.getLogger(__name__)

NEXT = "topics are archived all the same; allow it, or set egress.write_heartbeats = false"


@dataclass(slots=True)
class HeartbeatTopic:
    """Use from one thread; `write` runs on `pool`."""

    write: Callable[[datetime], None]  # raises BrokerUnavailable and TargetError
    pool: Executor
    _lookup: Lookup[None] = field(init=False)
    _logged: str = ""

    def __post_init__(self) -> None:
        self._lookup = Lookup(self.pool)

    def stored(self, at: datetime) -> None:
        """A heartbeat of that time is in the bucket."""
        self._collect(at)
        if self._lookup.is_due(at):
            self._lookup.due_at = None
            self._lookup.ask(self.write, at)

    def _collect(self, now: datetime) -> None:
        match self._lookup.collect():
            case Answer():
                self._logged = ""
            case Failed(error=error):
                if str(error) != self._logged:
                    log.warning("heartbeats_not_written", extra={log_fields.ERROR: str(error), log_fields.NEXT: NEXT})
                self._logged = str(error)
                if isinstance(error, TargetError):
                    self._lookup.due_at = now + REFUSED_FOR
