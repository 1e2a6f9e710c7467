"""What became of the records of one run: where the target put them, and which errors it answered.

The client calls a delivery callback for each record. `dict.__setitem__` takes the same two arguments, error and
message, so it is the callback: it runs in C, without a Python frame, and leaves the last message under None and the
last one under each error. Two such dictionaries know the first and the last offset of a run.

One report gets lost: that of UNKNOWN_SERVER_ERROR, whose hash is its code, −1, which no dictionary takes (seen). So a
run counts as delivered only by the offsets that were acknowledged, and never because no error was reported.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
from confluent_kafka import KafkaError, Message

from infra.kafka.client.encode import DeliveryCallback

NO_OFFSET = -1  # of an acknowledged record: the broker had it already, and no longer knows where


class Reports(Protocol):
    """What became of the records of one run, which the client sends in order to one partition."""

    @property
    def errors(self) -> list[KafkaError]:
        """Each code once, in the order of their coming."""

    @property
    def first_offset(self) -> int:
        """NO_OFFSET: not known, or not acknowledged yet."""

    def collect(self) -> bool:
        """Take in what the client has reported. Whether every record is acknowledged, as far as the reports show."""

    @property
    def keeps_each(self) -> bool:
        """Whether the offset of every record is kept."""

    @property
    def is_contiguous(self) -> bool:
        """Whether every record is acknowledged, and they lie one after the other from `first_offset` on."""

    @property
    def is_interleaved(self) -> bool:
        """Whether every record may be acknowledged, with those of others between them."""

    @property
    def each_offset(self) -> pa.Int64Array | None:
        """None unless every offset was kept and is known."""


class RunReports:
    """The Reports of the plain path, by Python's delivery callbacks, of one run of `count` records. `collect` takes in
    what the client has reported, and drops the messages, each of which is a copy of its record."""

    __slots__ = (
        "_count",
        "_each",
        "_first",
        "_last_offset",
        "_rest",
        "errors",
        "first_callback",
        "first_offset",
        "other_callback",
    )

    def __init__(self, count: int, *, each: bool = False) -> None:
        """`each`: keep the offset of every record, in a Python frame for each: for a partition to which others write,
        so that the records of a run do not lie one after the other."""
        self._count = count
        self.errors: list[KafkaError] = []  # each code once, in the order of their coming
        self.first_offset = self._last_offset = NO_OFFSET  # NO_OFFSET: not known, or not acknowledged yet
        self._first: dict[KafkaError | None, Message] = {}
        self._rest: dict[KafkaError | None, Message] = {}
        self._each: list[int] | None = [] if each else None
        self.first_callback: DeliveryCallback = self._keep if each else self._first.__setitem__
        self.other_callback: DeliveryCallback = self._keep if each else self._rest.__setitem__

    def collect(self) -> bool:
        """Whether every record is acknowledged, as far as the reports show."""
        if self._first:
            self.first_offset = self._take(self._first, self.first_offset)
        if self._rest:
            self._last_offset = self._take(self._rest, self._last_offset)
        return self.is_contiguous if self._each is None else len(self._each) == self._count

    @property
    def keeps_each(self) -> bool:
        """Whether the offset of every record is kept."""
        return self._each is not None

    @property
    def is_contiguous(self) -> bool:
        """Whether every record is acknowledged, and they lie one after the other from `first_offset` on."""
        last = self._last_offset if self._count > 1 else self.first_offset
        return self._each is None and self.first_offset >= 0 and last - self.first_offset + 1 == self._count

    @property
    def is_interleaved(self) -> bool:
        """Whether every record may be acknowledged, with those of others between them."""
        last = self._last_offset if self._count > 1 else self.first_offset
        if self._each is not None:
            return len(self._each) == self._count
        return self.first_offset >= 0 and last - self.first_offset + 1 > self._count

    @property
    def each_offset(self) -> pa.Int64Array | None:
        """None unless every offset was kept and is known."""
        if self._each is None or len(self._each) != self._count or NO_OFFSET in self._each:
            return None
        return pa.array(self._each, pa.int64())

    def _take(self, reports: dict[KafkaError | None, Message], known: int) -> int:
        """Empties `reports`; the offset of the last acknowledged record, `known` if there is none in it."""
        acknowledged = reports.pop(None, None)
        if reports:
            codes = {error.code() for error in self.errors}
            self.errors += [error for error in reports if error is not None and error.code() not in codes]
            reports.clear()
        return known if acknowledged is None else _offset(acknowledged)

    def _keep(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        elif self._each is not None:
            self._each.append(_offset(message))
            self.first_offset = self._each[0]


def _offset(message: Message) -> int:
    offset = message.offset()
    return NO_OFFSET if offset is None else offset
