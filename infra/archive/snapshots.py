"""A control value that changes: each version is an object of its own, and the highest number holds.

    {prefix}00000000000000000007      put with If-None-Match; listed again; then the earlier versions are deleted

Objects are never overwritten, so a writer that loses the race for a number reads the winner's version and changes that.
A number may be free because other writers took it, went on to the next one and deleted it: so after the put, the writer
checks that its number is the highest.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from formats.errors import SegmentExists, SegmentNotFound
from infra.archive.control_objects import naming, read_object
from infra.archive.generations import is_generation
from infra.contracts.storage import ObjectStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Numbered:
    """As thread safe as `objects`, whose errors it raises."""

    objects: ObjectStore
    prefix: str  # ends with a slash; no other objects are below it

    def latest(self) -> bytes | None:
        """The latest version; None when there is none."""
        return self.decoded(bytes)

    def decoded(self, decode: Callable[[bytes], T]) -> T | None:
        """The latest version; None when there is none. A MalformedEvent of `decode` names the object."""
        while keys := self._keys():
            try:
                with naming(keys[-1]):
                    return decode(read_object(self.objects, keys[-1]))
            except SegmentNotFound:
                continue  # a newer version has just replaced it
        return None

    def replace(self, change: Callable[[bytes | None], bytes]) -> None:
        """Put `change(latest)`; the first time, latest is None. After a race that it may have lost, it calls `change`
        again with the version stored by then, so `change` must be idempotent. A MalformedEvent of `change` names the
        object."""
        while True:
            keys = self._keys()
            try:
                with naming(keys[-1] if keys else self.prefix):
                    data = change(read_object(self.objects, keys[-1]) if keys else None)
                number = int(keys[-1][len(self.prefix) :]) + 1 if keys else 1
                key = f"{self.prefix}{number:020d}"
                self.objects.put_new(key, io.BytesIO(data), len(data))
            except (SegmentExists, SegmentNotFound):
                continue
            there = self._keys()
            self.objects.delete_many([one for one in there if one < max(key, *there)])  # put, then delete
            if not there or there[-1] <= key:
                return

    def remove(self) -> None:
        """Delete every version. No error when there is none."""
        self.objects.delete_many(self._keys())

    def _keys(self) -> Sequence[str]:
        """Of the versions, in order; foreign keys are left out."""
        listed = self.objects.list(self.prefix)
        return [item.key for item in listed if is_generation(item.key[len(self.prefix) :])]
