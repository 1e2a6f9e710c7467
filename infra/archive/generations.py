"""Numbered generations of a control object: complete, never changed, and the highest number counts.

    {prefix}00000000000000000007      put with If-None-Match

The writer of generation n + 1 begins its observation after generation n was stored, and stores it only if no other
process did: so numbers are in the order of the observations, whichever process wrote them, and a process that was
frozen for an hour cannot put an older truth over a newer one. Earlier generations stay until `gc` thins them.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import datetime

from formats.errors import SegmentExists
from infra.archive.control_objects import read_object
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable

DIGITS = 20
PAGE = 10  # objects of one request


def is_generation(name: str) -> bool:
    """Whether a key's last part is a number."""
    return len(name) == DIGITS and name.isdecimal()


@dataclass(frozen=True, slots=True)
class StoredGeneration:
    number: int
    modified_at: datetime  # by the store's clock; of a replica, perhaps the time of the copy


@dataclass(frozen=True, slots=True)
class _Page:
    numbers: list[int]  # ascending
    is_last: bool  # no key follows


@dataclass(frozen=True, slots=True)
class Generations:
    """As thread safe as `objects`, whose errors it raises."""

    objects: ObjectStore
    prefix: str  # ends with a slash; no other objects are below it

    def newest(self, known: int = 0) -> int:
        """The highest number; 0 when there is none. `known`: a number that was the highest once. When at most a few are
        higher, one request, else some 2 × log2 of how many there are: never one for each thousand objects.

        A lower number than `known` is returned only if no object with that number or a higher one is left: the newest
        is never thinned, so somebody emptied the bucket, and everything begins anew."""
        near = self._page(max(known - 1, 0))
        if not near.numbers:
            return self.newest() if known else 0
        found = near.numbers[-1]
        if near.is_last:
            return found
        step = PAGE
        while (far := self._page(found + step)).numbers:
            found, step = far.numbers[-1], step * 2
        while step > PAGE:  # nothing lies beyond found + step
            step //= 2
            if (far := self._page(found + step)).numbers:
                found = far.numbers[-1]
        while (further := self._page(found)).numbers:
            found = further.numbers[-1]
        return found

    def stored(self) -> list[StoredGeneration]:
        """Every generation that is stored, the lowest number first: one request for each thousand."""
        items = ((item.key[len(self.prefix) :], item) for item in self.objects.list(self.prefix))
        return [StoredGeneration(int(name), item.modified_at) for name, item in items if is_generation(name)]

    def at_or_after(self, number: int) -> int | None:
        """The lowest number that is stored from this one on, by one request; None: there is none."""
        return next(iter(self._page(number - 1).numbers), None)

    def read(self, number: int) -> bytes:
        """Raises SegmentNotFound."""
        return read_object(self.objects, self.key(number))

    def put(self, number: int, data: bytes) -> bool:
        """Store a generation. False, and nothing is changed, when another process stored that number; a repeated put of
        the same bytes is no other process's."""
        try:
            with durable(Step.PUT_GENERATION):
                self.objects.put_new(self.key(number), io.BytesIO(data), len(data))
        except SegmentExists:
            return self.read(number) == data  # an answer that was lost: the client repeated the request
        return True

    def key(self, number: int) -> str:
        return f"{self.prefix}{number:0{DIGITS}d}"

    def _page(self, after: int) -> _Page:
        """The lowest numbers above `after`, by one request; more requests only if nothing but foreign keys comes
        first."""
        start_after = self.key(after)
        while items := list(self.objects.list(self.prefix, start_after=start_after, limit=PAGE)):
            names = [item.key[len(self.prefix) :] for item in items]
            if numbers := [int(name) for name in names if is_generation(name)]:
                return _Page(numbers, is_last=len(items) < PAGE)
            start_after = items[-1].key
        return _Page([], is_last=True)
