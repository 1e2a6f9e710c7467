"""Messages as librdkafka's own pointers: who owns them, and how long each pointer is valid. The only module that holds
one, beside the compiled code that it calls.

    partition ──(forward)──> our queue ──take──> Messages ──arrange──> parts ──fill──> Arrow buffers, of Python alone
    everything else ───────> the client's queue ──consume──> callbacks, errors of topics

Rules
  1. A message belongs to librdkafka while it is in a queue, and to the `Messages` that `take` returned from then on,
     which destroys it: `fill` as soon as it is copied, the end of the `with` block in any other case, an exception
     included. Nothing that leaves this package's Arrow batches refers to a message.
  2. A queue of ours is destroyed, and the wake-ups from the client's queue end, before the client is closed: `close`.
     A client that closes while somebody holds one of its queues waits for it. Messages in our queue are dropped then,
     and those that arrive later: nothing is read any more. An object that was never closed closes itself before the
     client that it keeps is freed.
  3. Callbacks never run in `take`: only a partition's fetched messages, its ends and errors come to our queue. One
     kind of error would call back, that of a partition which is gone from its topic: it is noted instead (`guard` in
     `consume.c`), and passed on when the call has returned. Rebalances, commits, errors of topics and of the client
     stay in the client's own queue, and its own `consume` has to be called regularly: that also counts as polling for
     `max.poll.interval.ms`.
  4. Stopping a partition (a revocation, a loss, an unassignment) ends its forwarding, and happens on the client's
     thread after the call has returned. Starting it again does not restore the forwarding, nor lead to the client's
     queue: the messages stay where they are. Therefore a seek forwards the partition before and behind it: before it,
     so that nothing fetched from the new position can be in the client's queue; behind it, since the client handles
     a stop and a seek in their order, so that the forwarding holds from there on.
  5. A seek, a pause and a stop make the client drop what it fetched of the partition before, whichever queue it is in:
     each message carries a version, which `take` compares. So nothing has to be removed from our queue.
  6. An error and a partition end are messages, too, in the order of the partition, and are owned and destroyed alike.
  7. One thread, that of the consumer. One `Messages` at a time, since it uses the arrays of its queue.
"""

from __future__ import annotations

import ctypes
import os
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache, partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from infra.kafka.client.librdkafka import SWITCH, address, addresses, compiled, function, handle

MOST = 10_000  # messages of one `take`
QUICK = 64 << 10  # bytes or messages that are copied without releasing the GIL, in bytes, one message counting 512
_OF_MESSAGE = 512
_WAKE = ctypes.c_uint64(1)  # what librdkafka writes to the descriptor: any number above 0

PART = 18  # numbers of a part, in the order of `part_t`
BEGIN, END, TOPIC, PARTITION, KIND, ERROR, EPOCH, FIRST, LAST = range(9)
KEYS, VALUES, HEADERS, HEADER_KEYS, HEADER_VALUES, NULL_KEYS, NULL_VALUES, WITH_HEADERS, NULL_HEADER_VALUES = range(
    9, PART
)
RECORDS, EVENT, UNDECODABLE = range(3)  # kinds
BUFFERS = 16
ERRORS = 16  # of one call, of which the codes are kept


class _Calls:
    """The functions that are called, once for the process."""

    def __init__(self) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        ours = compiled("consume")
        ours.call("replicator_consume_init", None, pointer)(
            addresses(
                *("message_timestamp", "message_headers", "header_get_all", "message_destroy", "message_leader_epoch")
            )
        )
        ours.call("replicator_sized_names", ctypes.c_int, pointer)(
            addresses("headers_new", "header_add", "headers_destroy")
        )
        arrange = ("replicator_arrange", number, pointer, number, pointer, pointer, number, pointer)
        fill = ("replicator_fill", None, pointer, pointer, pointer, pointer)
        self.arrange, self.arrange_quick = ours.call(*arrange), ours.quick(*arrange)
        self.fill, self.fill_quick = ours.call(*fill), ours.quick(*fill)
        self.trim = ours.quick("replicator_trim", None, pointer, pointer, number)
        self.first_from = ours.quick("replicator_first_from", number, pointer, pointer, number)
        self.layout = ours.quick("replicator_layout", number, pointer, pointer, pointer)
        self.destroy = ours.call("replicator_destroy", None, pointer, number)

        self.queue_new = function("rd_kafka_queue_new", pointer, pointer)
        self.queue_of_consumer = function("rd_kafka_queue_get_consumer", pointer, pointer)
        self.queue_of_partition = function(
            "rd_kafka_queue_get_partition", pointer, pointer, ctypes.c_char_p, ctypes.c_int32
        )
        self.queue_forward = function("rd_kafka_queue_forward", None, pointer, pointer)
        self.queue_destroy = function("rd_kafka_queue_destroy", None, pointer)
        self.wake_by = function("rd_kafka_queue_io_event_enable", None, pointer, ctypes.c_int, pointer, ctypes.c_size_t)
        self.guard = partial(
            ours.call("replicator_guard", ctypes.c_int, pointer, pointer),
            addresses("conf", "conf_get", "conf_set_error_cb"),
        )
        self.take = partial(
            ours.call("replicator_take", number, pointer, pointer, ctypes.c_int32, pointer, number, pointer),
            address("rd_kafka_consume_batch_queue"),
        )
        self.last_error = function("rd_kafka_last_error", ctypes.c_int)
        self.topic_name = function("rd_kafka_topic_name", ctypes.c_char_p, pointer)
        self.error_text = function("rd_kafka_message_errstr", ctypes.c_char_p, pointer)


@cache
def _calls() -> _Calls:
    return _Calls()


class MessageQueue:
    """Where the partitions of one client are forwarded to."""

    _client: Consumer | None = None  # None: not open

    def __init__(self, client: Consumer, on_error: Callable[[KafkaError], None]) -> None:
        """`client`: with an `error_cb`, in whose place `on_error` is called for errors in our queue."""
        self._calls, self._arrays = _calls(), _Arrays()
        self._taken: Messages | None = None
        self._handle, self._on_error = handle(client), on_error
        if not self._calls.guard(self._handle):
            raise RuntimeError(f"the client has no error callback that can be replaced; set {SWITCH}=off")
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._queue: int = self._calls.queue_new(self._handle)
        self._of_client: int = self._calls.queue_of_consumer(self._handle)
        self._client = client
        for queue in (self._queue, self._of_client):
            self._calls.wake_by(queue, self._woken, ctypes.byref(_WAKE), ctypes.sizeof(_WAKE))
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)

    def forward(self, topic: str, partition: int) -> None:
        """Of an assigned partition (rule 4). Repeating it changes nothing."""
        queue = self._calls.queue_of_partition(self._handle, topic.encode(), partition)
        if not queue:
            raise KafkaException(KafkaError(self._calls.last_error()))
        self._calls.queue_forward(queue, self._queue)
        self._calls.queue_destroy(queue)  # the forwarding does not need it

    def take(self, count: int, *, linger: timedelta = timedelta()) -> Messages:
        """At most `count` messages that are there, and if there is one, those of the next `linger`, too."""
        assert self._client is not None, "closed"
        if self._taken is not None:
            self._taken.destroy()
        taken = self._taken = Messages(self._calls, self._arrays)
        self._add(taken, min(count, MOST), timedelta())
        if 0 < taken.count < min(count, MOST) and linger:
            self._add(taken, min(count, MOST), linger)
        return taken

    def wait(self, timeout: timedelta) -> None:
        """Until there may be something in our queue, or in the client's; signals are handled. Both have to be emptied
        before: only the first message of an empty queue wakes."""
        if self._poll.poll(max(timeout.total_seconds() * 1000, 0)):
            with suppress(BlockingIOError):
                os.eventfd_read(self._woken)

    def close(self) -> None:
        """Before the client is closed (rule 2). May be called twice."""
        if self._client is None:
            return
        if self._taken is not None:
            self._taken.destroy()
        for queue in (self._queue, self._of_client):
            self._calls.wake_by(queue, -1, None, 0)  # first: librdkafka must not write to a closed descriptor
            self._calls.queue_destroy(queue)
        self._client = None
        os.close(self._woken)

    def __del__(self) -> None:
        self.close()

    def _add(self, taken: Messages, count: int, timeout: timedelta) -> None:
        errors, at = self._arrays.errors, self._arrays.messages_at(taken.count)
        found = self._calls.take(self._queue, int(timeout.total_seconds() * 1000), at, count - taken.count, errors)
        if found < 0:
            raise KafkaException(KafkaError(self._calls.last_error()))
        taken.count += found
        for code in errors[1 : 1 + min(errors[0], ERRORS)]:
            self._on_error(KafkaError(code))


class _Arrays:
    """Memory for the messages of one `take`; as much of it is touched as there are messages."""

    def __init__(self) -> None:
        self.messages = (ctypes.c_void_p * MOST)()
        self.sorted = (ctypes.c_void_p * MOST)()
        self.parts = (ctypes.c_int64 * (PART * MOST))()
        self.scratch = (ctypes.c_int32 * (slots(MOST) + 3 * MOST))()
        self.layout = (ctypes.c_int64 * (2 * BUFFERS))()
        self.errors = (ctypes.c_int32 * (1 + ERRORS))()
        self.numbers = memoryview(self.parts).cast("B").cast("q")

    def messages_at(self, index: int) -> int:
        return ctypes.addressof(self.messages) + index * ctypes.sizeof(ctypes.c_void_p)


class Messages:
    """Taken messages, owned by this object: use it in a `with` block, which destroys them."""

    def __init__(self, calls: _Calls, arrays: _Arrays) -> None:
        self._calls, self._arrays = calls, arrays
        self.count = 0
        self._arranged = False

    def __enter__(self) -> Messages:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def destroy(self) -> None:
        """What is left of them. May be called twice."""
        array = self._arrays.sorted if self._arranged else self._arrays.messages
        count, self.count = self.count, 0
        if count:
            self._calls.destroy(array, count)

    def arrange(self) -> Sequence[list[int]]:
        """Their parts, by partition: the numbers of each."""
        arrays, count = self._arrays, self.count
        if not count:
            return ()
        call = self._calls.arrange_quick if count * _OF_MESSAGE <= QUICK else self._calls.arrange
        self._arranged = True
        found = call(arrays.messages, count, arrays.sorted, arrays.scratch, slots(count), arrays.parts)
        numbers = arrays.numbers[: found * PART].tolist()
        return [numbers[at : at + PART] for at in range(0, found * PART, PART)]

    def trim(self, index: int, next_offset: int) -> list[int]:
        """The numbers of the part at `index` without the records before `next_offset`."""
        self._calls.trim(self._arrays.sorted, self._part(index), next_offset)
        return self._arrays.numbers[index * PART : (index + 1) * PART].tolist()

    def first_from(self, index: int, next_offset: int) -> int:
        """Offset of the part's first record at or after `next_offset`; −1 if there is none."""
        found: int = self._calls.first_from(self._arrays.sorted, self._part(index), next_offset)
        return found

    def layout(self, index: int) -> tuple[int, list[int], list[int]]:
        """Size of the memory for the part's buffers; where each begins, and its size, or −1 for both."""
        layout = self._arrays.layout
        begins = ctypes.addressof(layout)
        size = self._calls.layout(self._part(index), begins, begins + 8 * BUFFERS)
        numbers = layout[:]
        return size, numbers[:BUFFERS], numbers[BUFFERS:]

    def fill(self, index: int, memory: int, size: int) -> None:
        """Write the part's buffers to `memory` as the last `layout` says, and destroy its messages."""
        call = self._calls.fill_quick if size <= QUICK else self._calls.fill
        call(self._arrays.sorted, self._part(index), self._arrays.layout, memory)

    def topic(self, numbers: Sequence[int]) -> str:
        name: Any = self._calls.topic_name(numbers[TOPIC]) if numbers[TOPIC] else b""
        return str(name, "utf-8")

    def error_text(self, numbers: Sequence[int]) -> str:
        """Of an event."""
        text: bytes | None = self._calls.error_text(self._arrays.sorted[numbers[BEGIN]])
        return (text or b"").decode("utf-8", "replace")

    def _part(self, index: int) -> int:
        return ctypes.addressof(self._arrays.parts) + index * PART * 8


def slots(count: int) -> int:
    """Of the table by which messages are sorted: a power of two."""
    return 1 << (2 * count - 1).bit_length()
