"""Which `compact` processes run by the clock, and which jobs they run: where `status` finds it.

    {prefix}/{region}/_control/v1/heartbeats/{owner}/{number:020d}

A process that ends takes its heartbeat away; of one that dies it is believed until `until`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from formats.control.keys import control_prefix
from formats.errors import MalformedEvent
from infra.archive.snapshots import Numbered
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable

VERSION = 1
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


def encode(heartbeat: Heartbeat) -> bytes:
    said = {
        "jobs": list(heartbeat.jobs),
        "owner": heartbeat.owner,
        "until": heartbeat.until.isoformat(),
        "v": VERSION,
    }
    return json.dumps(said, sort_keys=True, separators=(",", ":")).encode()


def decode(data: bytes) -> Heartbeat:
    """Raises MalformedEvent, also for a newer version."""
    try:
        said: dict[str, Any] = json.loads(data)
        if said["v"] != VERSION:
            raise ValueError(f"version {said['v']}, this program reads {VERSION}")
        return Heartbeat(
            owner=str(said["owner"]),
            jobs=tuple(map(str, said["jobs"])),
            until=datetime.fromisoformat(said["until"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a heartbeat: {data[:200]!r} ({error})") from error
