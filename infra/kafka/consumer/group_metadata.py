"""The metadata of a consumer's group membership, with which a transaction is fenced: opaque bytes of the client.

    CGMDv2: | generation, 4 bytes | group id, NUL | member id, NUL | the rest of it

The client asks its own thread for it. Its Python method keeps the GIL until that thread answers, which takes
milliseconds on a busy machine, once in every turn of the loop; the library's function, called directly where that is
tested (`librdkafka`), does not.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

from confluent_kafka import Consumer, KafkaError, KafkaException

from infra.kafka.client.librdkafka import NativeFunction, function, handle, is_fit, quick_function

MAGIC = b"CGMDv2:"
NO_GENERATION = MAGIC + b"\xff\xff\xff\xff"
"""How it begins while the member is in no generation: -1."""
FIRST_GENERATION = 1
"""Of a classic group, and the first epoch of a member under KIP-848, which is 0 while it joins again."""


def group_metadata(client: Consumer) -> bytes:
    """Call on the thread that polls `client`, whose callbacks it would wait for. Raises RuntimeError when the client is
    closed, KafkaException."""
    if not is_fit():
        return client.consumer_group_metadata()  # type: ignore[no-any-return]
    functions, owner = _functions(), handle(client)
    if not (metadata := functions.get(owner)):
        raise KafkaException(KafkaError(KafkaError._STATE, "the client has no group"))
    data, size = ctypes.c_void_p(), ctypes.c_size_t()
    try:
        if error := functions.write(metadata, ctypes.byref(data), ctypes.byref(size)):
            reason: bytes = functions.reason(error)
            functions.end_error(error)
            raise KafkaException(KafkaError(KafkaError._FAIL, reason.decode(errors="replace")))
    finally:
        functions.end(metadata)
    try:
        return ctypes.string_at(data, size.value)
    finally:
        functions.free(owner, data)


def names_member(client: Consumer, metadata: bytes) -> bool:
    """Whether `metadata`, just read of `client`, has a generation and a member id, of one moment: the client's method
    for the member id is a second question, and its own thread may leave the group in between."""
    if not metadata.startswith(MAGIC):  # of a client that writes another form
        return bool(client.memberid())
    generation = int.from_bytes(metadata[len(MAGIC) : len(NO_GENERATION)], sys.byteorder, signed=True)
    _, _, of_member = metadata[len(NO_GENERATION) :].partition(b"\0")
    return generation >= FIRST_GENERATION and bool(of_member.partition(b"\0")[0])


class _Functions:
    """Of the library. Only the first one waits, so only it releases the GIL."""

    def __init__(self) -> None:
        pointer, name = ctypes.c_void_p, "rd_kafka_consumer_group_metadata"
        self.get: NativeFunction = function(name, pointer, pointer)
        self.write: NativeFunction = quick_function(f"{name}_write", pointer, pointer, pointer, pointer)
        self.end: NativeFunction = quick_function(f"{name}_destroy", None, pointer)
        self.free: NativeFunction = quick_function("rd_kafka_mem_free", None, pointer, pointer)
        self.reason: NativeFunction = quick_function("rd_kafka_error_string", ctypes.c_char_p, pointer)
        self.end_error: NativeFunction = quick_function("rd_kafka_error_destroy", None, pointer)


_functions = cache(_Functions)
