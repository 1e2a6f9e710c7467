"""Heartbeats of `compact` processes that run jobs on a schedule, read by `status`.

    {prefix}/{region}/_control/v1/heartbeats/{owner}/{number:020d}

A process removes its heartbeat when it ends; that of a dead process counts until `until`, and no longer than SPAN after
it was written by the store's clock, as a lease does: its own may have been ahead.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from formats.codec import Codec
from formats.control.keys import control_prefix
from formats.errors import MalformedEvent
from infra.archive.snapshots import Numbered
from infra.contracts.storage import ObjectStore
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable

log = logging.getLogger(__name__)

SPAN = timedelta(minutes=10)  # that a heartbeat counts
STALE_AFTER = timedelta(days=1)  # after this, others remove the heartbeat of a dead process
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.:-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    owner: str  # host, process id and a random word, as in a lease
    jobs: tuple[str, ...]
    until: datetime  # UTC


@dataclass(frozen=True, slots=True)
class HeartbeatStore:
    """As thread safe as `objects`, whose errors it raises."""

    objects: ObjectStore
    prefix: str
    region: str

    def beat(self, heartbeat: Heartbeat) -> None:
        with durable(Step.HEARTBEAT):
            self._of(heartbeat.owner).replace(lambda _: encode(heartbeat))

    def end(self, owner: str) -> None:
        self._of(owner).remove()

    def all(self) -> Sequence[Heartbeat]:
        """The latest heartbeat of each process, including dead processes. Of one that cannot be decoded the jobs are
        not known; it hides no other, and is removed like them."""
        folder = heartbeats_prefix(self.prefix, self.region)
        # in key order: of each process the last one
        written_at = {item.key[: item.key.rindex("/") + 1]: item.modified_at for item in self.objects.list(folder)}
        found = [(self._decoded(prefix, at), at) for prefix, at in written_at.items()]
        return [replace(one, until=min(one.until, at + SPAN)) for one, at in found if one is not None]

    def _decoded(self, prefix: str, written_at: datetime) -> Heartbeat | None:
        try:
            return Numbered(self.objects, prefix).decoded(decode)
        except MalformedEvent as error:
            owner = prefix[:-1].rpartition("/")[2]
            log.warning("heartbeat_not_readable", extra={log_fields.ERROR: str(error)})
            return Heartbeat(owner=owner, jobs=(), until=written_at + SPAN)

    def sweep(self, now: datetime) -> None:
        """Remove heartbeats of processes that died long ago."""
        for heartbeat in self.all():
            if heartbeat.until < now - STALE_AFTER:
                self.end(heartbeat.owner)

    def _of(self, owner: str) -> Numbered:
        name = _NOT_IN_A_NAME.sub("_", owner)
        return Numbered(self.objects, f"{heartbeats_prefix(self.prefix, self.region)}{name}/")


def heartbeats_prefix(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}heartbeats/"


_CODEC = Codec(Heartbeat, "a heartbeat")
encode, decode = _CODEC.encode, _CODEC.decode
