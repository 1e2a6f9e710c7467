"""What encryption costs in processor time: `python -m bench.encryption`. Needs no broker and no server.

encrypt, decrypt   32 MiB that nothing compresses, in and out of memory
egress             a segment encoded, and put into a store in memory: in clear, and encrypted with a key of a file
open               a small object without [encryption], beside the store below
"""

from __future__ import annotations

if __name__ == "__main__":  # before all else imports Arrow, as a command does
    from infra.runtime.tuning import tune

    tune()

import base64
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, cast

from bench.batches import batch_of
from bench.data import records
from formats.footer import SegmentOrigin
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.contracts.storage import ObjectStore
from infra.storage.encrypted import EncryptedObjectStore
from infra.storage.key_file import KeyFile
from infra.storage.memory_and_folder import MemoryObjectStore

REPEATS = 9  # the least counts
LARGE = 32 * 1024 * 1024
READ = 1024 * 1024
OPENS = 2000
DOCUMENTS = 20_000  # the benchmark's, records of one partition
KEY = "data/a/orders/0/0/x"


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call."""
    found = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def stored(data: bytes, keys: KeyFile | None) -> ObjectStore:
    store = EncryptedObjectStore(MemoryObjectStore(), "data", keys)
    store.put_new(KEY, BytesIO(data), len(data))
    return store


class Sink:
    """A store that reads what it is given as the S3 client does, and keeps nothing."""

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:  # noqa: ARG002
        while body.read(READ):
            pass


def sent(data: bytes, keys: KeyFile | None) -> None:
    body = BytesIO(data)
    EncryptedObjectStore(cast("ObjectStore", Sink()), "data", keys).put_new(KEY, body, len(data))
    body.seek(0)


def read(store: ObjectStore) -> None:
    with store.open(KEY) as file:
        while file.read(READ):
            pass


def opened(store: ObjectStore) -> None:
    for _ in range(OPENS):
        store.open(KEY).close()


def main() -> None:
    key = base64.b64encode(os.urandom(32)).decode()
    keys = KeyFile(Path("keys.toml"), f'current = "k"\n[keys]\nk = "{key}"')
    data, megabytes = os.urandom(LARGE), LARGE / 1e6
    clear, sealed = stored(data, None), stored(data, keys)
    put = seconds(lambda: sent(data, keys)) - seconds(lambda: sent(data, None))
    got = seconds(lambda: read(sealed)) - seconds(lambda: read(clear))
    print(f"encrypt  {put * 1e3 / megabytes:.2f} ms of CPU a stored MB")
    print(f"decrypt  {got * 1e3 / megabytes:.2f} ms of CPU a stored MB")

    batch = batch_of(records("json", DOCUMENTS, 1), slice(0, DOCUMENTS))
    segment = Segment(SourcePartition("a", "orders", 0), 0, OffsetRange(0, batch.num_rows - 1))
    origin = SegmentOrigin(created_at=datetime.now(UTC), writer="bench")

    def encoded() -> tuple[bytes, int]:
        sink = BytesIO()
        writer = ParquetFormat().create(sink)
        writer.write([batch])
        footer = writer.close(segment, origin)
        return sink.getvalue(), footer.raw_bytes

    body, raw_bytes = encoded()
    encoding = seconds(encoded)
    added = seconds(lambda: sent(body, keys)) - seconds(lambda: sent(body, None))
    print(f"egress   {encoding * 1e9 / raw_bytes:.2f} ms of CPU a raw MB to encode, {len(body) / 1e6:.1f} MB stored")
    print(f"         {added * 1e9 / raw_bytes:.3f} ms a raw MB more to encrypt: {added / encoding:.1%}")

    below = MemoryObjectStore()
    below.put_new(KEY, BytesIO(b"x" * 300), 300)
    beside = seconds(lambda: opened(below))
    off = seconds(lambda: opened(EncryptedObjectStore(below, "data", None)))
    print(f"open     {(off - beside) / OPENS * 1e6:.2f} µs more without [encryption]")


if __name__ == "__main__":
    main()
