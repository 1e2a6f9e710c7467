"""A value of the control plane that changes: each version is an object of its own, and the highest number holds.

    {prefix}00000000000000000007      put with If-None-Match; looked at again; then the ones before it are deleted

Objects are never overwritten, so whoever loses the race for a number reads what won, and changes that. A number may be
free because others took it, went on to the next and deleted it: so after the put the highest number must be ours.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from formats.errors import SegmentExists, SegmentNotFound
from infra.contracts.storage import ObjectStore


@dataclass(frozen=True, slots=True)
class Numbered:
    """As thread safe as `objects`; raises what it raises."""

    objects: ObjectStore
    prefix: str  # ends with a slash; nothing else lies below it

    def latest(self) -> bytes | None:
        """None when there is none."""
        while keys := [item.key for item in self.objects.list(self.prefix)]:
            try:
                return self._read(keys[-1])
            except SegmentNotFound:
                continue  # a newer one has just taken its place
        return None

    def replace(self, change: Callable[[bytes | None], bytes]) -> None:
        """Put what `change` makes of the latest, which is None at first. After a race that may be lost it is called
        again, with what is there by then: making it of its own outcome must change nothing."""
        while True:
            keys = [item.key for item in self.objects.list(self.prefix)]
            try:
                data = change(self._read(keys[-1]) if keys else None)
                number = int(keys[-1][len(self.prefix) :]) + 1 if keys else 1
                key = f"{self.prefix}{number:020d}"
                self.objects.put_new(key, io.BytesIO(data), len(data))
            except (SegmentExists, SegmentNotFound):
                continue
            there = [item.key for item in self.objects.list(self.prefix)]
            self.objects.delete_many([one for one in there if one < max(key, *there)])  # put, then delete
            if not there or there[-1] <= key:
                return

    def remove(self) -> None:
        """No error when there is none."""
        self.objects.delete_many([item.key for item in self.objects.list(self.prefix)])

    def _read(self, key: str) -> bytes:
        with closing(self.objects.open(key)) as file:
            return file.read()
