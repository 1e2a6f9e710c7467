"""Changes a broker's log files while it is down, to the state of a partition after an unclean leader election or a
power failure of all replicas."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from infra.contracts.cluster import TopicPartition
from infra.local.broker import Broker

_HEAD = struct.Struct(">qiibIhi")  # base offset, length, leader epoch, magic, checksum, attributes, last offset's delta
_PREFIX_BYTES = 12  # base offset and length, which are not part of the length
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
DERIVED = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot")  # rebuilt from the log


def lose_tails(broker: Broker, ends: Mapping[TopicPartition, int]) -> None:
    """Shut the broker down, truncate these partitions at offsets where a batch begins, and start it: other records get
    the offsets after that, in another leader epoch. Not killed: before 4.0 a lone broker that comes back after that
    has the leader epoch it had."""
    broker.stop()
    (broker.data_dir / CLEAN_SHUTDOWN).unlink(missing_ok=True)  # else the files are believed to be whole
    for partition, end in ends.items():
        cut(broker.data_dir / f"{partition.topic}-{partition.partition}", end)
    broker.start()


def cut(folder: Path, end: int) -> None:
    """Truncate the partition's log at `end`. The broker must be down."""
    (log,) = folder.glob("*.log")
    begins = dict(batches(log))
    if end not in begins:
        raise ValueError(f"no batch of {log} begins or ends at {end}: {sorted(begins)}")
    with log.open("r+b") as file:
        file.truncate(begins[end])
    for pattern in DERIVED:
        for path in folder.glob(pattern):
            path.unlink()


def batches(log: Path) -> Iterator[tuple[int, int]]:
    """Base offset and file position of each record batch; the last pair is the end of the log."""
    data, at, next_offset = log.read_bytes(), 0, 0
    while at + _HEAD.size <= len(data):
        base, length, _, _, _, _, last_delta = _HEAD.unpack_from(data, at)
        if length <= 0:
            break  # the file is preallocated
        yield base, at
        at, next_offset = at + _PREFIX_BYTES + length, base + last_delta + 1
    yield next_offset, at
