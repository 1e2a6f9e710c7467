"""A broker's log files, changed while it is down: what an unclean leader election, or the loss of power on every
replica, leaves of a partition."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from infra.contracts.cluster import TopicPartition
from infra.local.broker import Broker

_HEAD = struct.Struct(">qiibIhi")  # base offset, length, leader epoch, magic, checksum, attributes, last offset's delta
_PREFIX_BYTES = 12  # base offset and length, which the length does not count
DERIVED = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot")  # made again from the log


def lose_tails(broker: Broker, ends: Mapping[TopicPartition, int]) -> None:
    """Kill the broker, cut these partitions at an offset where a batch begins, and start it: the offsets from there on
    will be given to other records, in another leader epoch."""
    broker.kill()
    for partition, end in ends.items():
        cut(broker.data_dir / f"{partition.topic}-{partition.partition}", end)
    broker.start()


def cut(folder: Path, end: int) -> None:
    """The partition's log ends at `end`. The broker must be down."""
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
    """Base offset of each record batch, and where in the file it begins; last of all, where the log ends."""
    data, at, next_offset = log.read_bytes(), 0, 0
    while at + _HEAD.size <= len(data):
        base, length, _, _, _, _, last_delta = _HEAD.unpack_from(data, at)
        if length <= 0:
            break  # the file is allocated ahead
        yield base, at
        at, next_offset = at + _PREFIX_BYTES + length, base + last_delta + 1
    yield next_offset, at
