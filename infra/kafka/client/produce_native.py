"""Arrow records → the client's queue by compiled code, without a Python object per record; the same as `encode.send`.

    IdempotentProducer.send ─> NativeProduce.send ─> librdkafka's queue, the values borrowed from Arrow
                    the client's threads ─> outcome of each record ─> LentRun

The `confluent_kafka.Producer` keeps configuration, security, transactions, fences, errors and logs, and its own records
beside these (`put`). The outcomes are counted by a plugin of librdkafka, which the client loads when it is created;
`lent_run` has the rules of what the client may use until when.

Where compiled code is not fit for this process, and with plugins of the user, records take the plain path. So do those
of partitions to which others write: each offset of theirs is kept.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from formats.records.schema import SCHEMA
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import TargetRun
from infra.kafka.client.connect import connect
from infra.kafka.client.encode import SLICE_RECORDS
from infra.kafka.client.lent_run import LentRun
from infra.kafka.client.librdkafka import NativeFunction, addresses, compiled, handle, is_fit, is_open

PLUGINS = "plugin.library.paths"
BORROW = 0  # flag of librdkafka: neither copy the value nor free it

_TYPES = [field.type for field in SCHEMA]
_COLUMNS = ctypes.c_int64 * 18  # columns_t of produce.c


def open_producer(properties: Mapping[str, object], logger: logging.Logger) -> tuple[Producer, NativeProduce | None]:
    """A client, and what produces without a Python object per record; None where only the plain path can. Raises
    KafkaException."""
    if not is_fit() or PLUGINS in properties or ";" in compiled("produce").path:
        return connect(Producer, dict(properties), logger), None
    functions = _functions()
    client = connect(Producer, {**properties, PLUGINS: compiled("produce").path}, logger)
    native = handle(client)
    return client, NativeProduce(client) if functions.attached() == native else None


class NativeProduce:
    """Of one client. Use from one thread, and call `closed` once the client is closed."""

    def __init__(self, client: Producer) -> None:
        self._client = client
        self._handle = handle(client)  # valid until the client is closed: the owner of both sends nothing after it
        self._lent: list[LentRun] = []

    def begin(self, run: TargetRun) -> LentRun:
        """`send` follows for its batches, in order, and then `end` of the run."""
        lent = LentRun(run.count)
        self._lent.append(lent)
        return lent

    def send(
        self,
        batch: pa.RecordBatch,
        lent: LentRun,
        *,
        slice_bytes: int,
        partition: TopicPartition,
        before_slice: Callable[[], bool],
        wait_for_room: Callable[[], bool],
    ) -> bool:
        """Queue every record of `batch`, the next one of the run, in order, each exactly once. `before_slice` is
        called before each slice of about `slice_bytes`, and `wait_for_room` when the queue is full; either returns
        False to give up, and then `send` does, too. Raises KafkaException when the client rejects a record permanently;
        the records before it are queued."""
        if batch.schema.types != _TYPES:  # compiled code reads the buffers as what they should be
            raise TypeError(f"not the columns of records: {', '.join(map(str, batch.schema.types))}")
        if not batch.num_rows:
            return True
        lent.lend(batch)
        produce, columns, topic = _functions().produce, _columns(batch), partition.topic.encode()
        rows = max(1, min(SLICE_RECORDS, slice_bytes * batch.num_rows // max(batch.nbytes, 1)))
        row, code = 0, ctypes.c_int32()
        while row < batch.num_rows:
            if not before_slice():
                return False
            end = min(row + rows, batch.num_rows)
            while row < end:
                taken = produce(
                    self._handle, topic, partition.partition, lent.state, lent.count,
                    columns, row, end, BORROW, code,
                )  # fmt: skip
                row = taken
                if row < end:
                    if code.value != KafkaError._QUEUE_FULL:
                        raise KafkaException(
                            KafkaError(code.value, f"Unable to produce message: {KafkaError(code.value).str()}")
                        )
                    if not wait_for_room():
                        return False
        return True

    def take_back(self) -> None:
        """What the client has no use for any more."""
        if self._lent:
            self._lent = [lent for lent in self._lent if not lent.come_back()]

    def closed(self) -> None:
        """The client was closed. If it could not be, its threads go on, and keep what they have."""
        if is_open(self._client):
            return
        for lent in self._lent:
            lent.come_back(closed=True)
        self._lent = []

    @property
    def lent_runs(self) -> int:
        return len(self._lent)


class _Functions:
    def __init__(self) -> None:
        code = compiled("produce")
        code.quick("replicator_produce_init", None, ctypes.c_void_p)(
            addresses(
                "produceva",
                "error_code",
                "error_is_fatal",
                "error_destroy",
                "headers_new",
                "header_add",
                "headers_destroy",
                "topic_new",
                "topic_destroy",
                "conf_interceptor_add_on_new",
                "interceptor_add_on_acknowledgement",
            )
        )
        self.attached: NativeFunction = code.quick("replicator_attached", ctypes.c_void_p)
        self.produce: NativeFunction = code.call(
            "replicator_produce",
            ctypes.c_int64,
            *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64),
            *(_COLUMNS, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32)),
        )


@cache
def _functions() -> _Functions:
    return _Functions()


def _columns(batch: pa.RecordBatch) -> Any:
    """`columns_t` of a batch, which has to outlive its use."""
    timestamps, headers = batch.column("timestamp"), batch.column("headers")
    _, stamps = timestamps.buffers()
    pairs = headers.values
    has_headers = len(pairs) > 0
    valid, ends = headers.buffers()[:2]
    return _COLUMNS(
        stamps.address + 8 * timestamps.offset,
        *_bytes(batch.column("key")),
        *_bytes(batch.column("value")),
        _address(valid),
        headers.offset,
        _address(ends) + 4 * headers.offset if has_headers else 0,
        *(_bytes(pairs.field("key"))[2:] if has_headers else (0, 0)),
        *(_bytes(pairs.field("value")) if has_headers else (0, 0, 0, 0)),
    )


def _bytes(column: pa.BinaryArray) -> tuple[int, int, int, int]:
    valid, ends, data = column.buffers()
    return _address(valid), column.offset, _address(ends) + 4 * column.offset, _address(data)


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else buffer.address
