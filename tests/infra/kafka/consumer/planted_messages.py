"""Messages as librdkafka hands them out, made by a test: the compiled code reads them, through functions of the test in
place of librdkafka's, and destroys them. What the compiled code does with a message that it must not touch any more
shows here as a failure, where it would be a crash with real ones."""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from infra.kafka.client.librdkafka import Compiled, addresses, compiled
from infra.kafka.consumer import message_queue
from infra.kafka.consumer.message_queue import Messages

NO_HEADERS = -156  # RD_KAFKA_RESP_ERR__NOENT
FUNCTIONS = ("message_timestamp", "message_headers", "header_get_all", "message_destroy", "message_leader_epoch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """`timestamp`: librdkafka's type, and milliseconds. `error`: 0 for a record, else its offset is the event's."""

    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp: tuple[int, int] = (1, 1)
    epoch: int = -1
    error: int = 0


class _Message(ctypes.Structure):
    _fields_ = (
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("value", ctypes.c_void_p),
        ("value_len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("opaque", ctypes.c_void_p),
    )


@dataclass(slots=True)
class Plantation:
    """Owns the memory of the messages that live."""

    of: dict[int, Planted] = field(default_factory=dict)
    destroyed: Counter[int] = field(default_factory=Counter)
    topics: dict[str, int] = field(default_factory=dict)
    kept: list[object] = field(default_factory=list)

    def plant(self, one: Planted) -> int:
        """The address of a message."""
        topic = self.topics.setdefault(one.topic, 16 * (len(self.topics) + 1))
        key, value = self._data(one.key), self._data(one.value)
        message = _Message(
            one.error, topic, one.partition, value, len(one.value or b""), key, len(one.key or b""), one.offset, None
        )
        self.kept.append(message)
        self.of[ctypes.addressof(message)] = one
        return ctypes.addressof(message)

    def _data(self, data: bytes | None) -> int | None:
        if data is None:
            return None
        buffer = ctypes.create_string_buffer(data, len(data) + 1)
        self.kept.append(buffer)
        return ctypes.addressof(buffer)

    def _name(self, name: bytes) -> int:
        """Of a header, behind its size and an address, as in librdkafka."""
        head = struct.pack("NP", len(name), 0)
        buffer = ctypes.create_string_buffer(head + name)
        self.kept.append(buffer)
        return ctypes.addressof(buffer) + len(head)

    def functions(self) -> Sequence[ctypes._FuncPointer]:
        pointer = ctypes.c_void_p

        def timestamp(at: int, kind: ctypes._Pointer[ctypes.c_int]) -> int:
            kind[0], stamp = self.of[at].timestamp
            return stamp

        def headers(at: int, to: ctypes._Pointer[ctypes.c_void_p]) -> int:
            if not self.of[at].headers:
                return NO_HEADERS
            to[0] = at
            return 0

        def header(
            at: int,
            index: int,
            name: ctypes._Pointer[ctypes.c_void_p],
            value: ctypes._Pointer[ctypes.c_void_p],
            size: ctypes._Pointer[ctypes.c_size_t],
        ) -> int:
            pairs = self.of[at].headers
            if index >= len(pairs):
                return NO_HEADERS
            name[0] = self._name(pairs[index][0])
            value[0] = self._data(pairs[index][1])
            size[0] = len(pairs[index][1] or b"")
            return 0

        def destroy(at: int) -> None:
            self.destroyed[at] += 1
            self.of.pop(at, None)

        return (
            ctypes.CFUNCTYPE(ctypes.c_int64, pointer, ctypes.POINTER(ctypes.c_int))(timestamp),
            ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.POINTER(pointer))(headers),
            ctypes.CFUNCTYPE(
                ctypes.c_int,
                pointer,
                ctypes.c_size_t,
                ctypes.POINTER(pointer),
                ctypes.POINTER(pointer),
                ctypes.POINTER(ctypes.c_size_t),
            )(header),
            ctypes.CFUNCTYPE(None, pointer)(destroy),
            ctypes.CFUNCTYPE(ctypes.c_int32, pointer)(lambda at: self.of[at].epoch),
        )


@contextmanager
def taken(planted: Sequence[Planted], plantation: Plantation) -> Iterator[Messages]:
    """As `MessageQueue.take` returns them; librdkafka's functions are back at the end."""
    ours: Compiled = compiled("consume")
    init = ours.call("replicator_consume_init", None, ctypes.c_void_p)
    calls, arrays = message_queue._Calls(), message_queue._Arrays()
    names = {address: name.encode() for name, address in plantation.topics.items()}
    functions = plantation.functions()
    messages = Messages(calls, arrays)
    for index, one in enumerate(planted):
        arrays.messages[index] = plantation.plant(one)
    names = {address: name.encode() for name, address in plantation.topics.items()}
    calls.topic_name = names.__getitem__
    calls.error_text = lambda at: b"planted %d" % plantation.of[at].error
    messages.count = len(planted)
    init((ctypes.c_void_p * len(functions))(*(ctypes.cast(one, ctypes.c_void_p) for one in functions)))
    try:
        with messages:
            yield messages
    finally:
        init(addresses(*FUNCTIONS))
