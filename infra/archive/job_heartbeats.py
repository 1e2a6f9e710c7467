"""Which `compact` processes run by the clock, and which jobs they run: where `status` finds it.

    {prefix}/{region}/_control/v1/heartbeats/{owner}/{number:020d}

A process that ends takes its heartbeat away; of one that dies it is believed until `until`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from formats.codec import Codec
from formats.control.keys import control_prefix
from infra.archive.snapshots import Numbered
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable

KEPT = timedelta(days=1)  # of a process that died, then others remove it
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.:-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    owner: str  # host, process and a word, as of a lease
    jobs: tuple[str, ...]
    until: datetime  # UTC


@dataclass(frozen=True, slots=True)
class HeartbeatStore:
    """As thread safe as `objects`; raises what it raises."""

    objects: ObjectStore
    prefix: str
    region: str

    def beat(self, heartbeat: Heartbeat) -> None:
        with durable(Step.HEARTBEAT):
            self._of(heartbeat.owner).replace(lambda _: encode(heartbeat))

    def end(self, owner: str) -> None:
        self._of(owner).remove()

    def all(self) -> Sequence[Heartbeat]:
        """The latest of each process, also of those that ended without a word."""
        folder = heartbeats_prefix(self.prefix, self.region)
        owners = dict.fromkeys(item.key[: item.key.rindex("/") + 1] for item in self.objects.list(folder))
        found = [Numbered(self.objects, prefix).latest() for prefix in owners]
        return [decode(data) for data in found if data is not None]

    def sweep(self, now: datetime) -> None:
        """Remove those of processes that died long ago."""
        for heartbeat in self.all():
            if heartbeat.until < now - KEPT:
                self.end(heartbeat.owner)

    def _of(self, owner: str) -> Numbered:
        name = _NOT_IN_A_NAME.sub("_", owner)
        return Numbered(self.objects, f"{heartbeats_prefix(self.prefix, self.region)}{name}/")


def heartbeats_prefix(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}heartbeats/"


_CODEC = Codec(Heartbeat, "a heartbeat")
encode, decode = _CODEC.encode, _CODEC.decode
