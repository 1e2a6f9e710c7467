"""Reads a topic at the target as it grows, and measures how old each record is when it can be read.

`bench.child` starts it.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from bench import child

EXISTS_SECONDS = 0.2
BATCH, WAIT_SECONDS = 500, 0.01  # the client returns a batch when it is full, or after the wait: part of each age


def digests(keys: Iterable[bytes | None], values: Iterable[bytes], partitions: Sequence[int]) -> dict[int, int]:
    """CRC-32 of keys and values in their order, by partition."""
    found: dict[int, int] = {}
    for key, value, partition in zip(keys, values, partitions, strict=True):
        found[partition] = zlib.crc32(value, zlib.crc32(key or b"", found.get(partition, 0)))
    return found


def read(spec: dict[str, Any]) -> dict[str, Any]:
    """`spec`: properties, topic, partitions, records, timeout_seconds, measured_from_ms (earlier records are not
    measured). The age is the wall clock less the record's timestamp: both clocks are of this machine."""
    consumer = Consumer(spec["properties"])
    partitions = range(spec["partitions"])
    while not _exists(consumer, spec["topic"], len(partitions)):
        time.sleep(EXISTS_SECONDS)
    consumer.assign([TopicPartition(spec["topic"], partition, 0) for partition in partitions])
    deadline = time.monotonic() + spec["timeout_seconds"]
    ages_ms: list[int] = []
    crc = dict.fromkeys(partitions, 0)
    count, first_at, last_at = 0, 0.0, 0.0
    while count < spec["records"] and time.monotonic() < deadline:
        messages = consumer.consume(BATCH, WAIT_SECONDS)
        now_ms = time.time_ns() // 1_000_000
        if messages:
            first_at, last_at = first_at or now_ms / 1000, now_ms / 1000
        for message in messages:
            if message.error():
                continue
            partition, value, timestamp_ms = message.partition(), message.value() or b"", message.timestamp()[1]
            assert partition is not None
            crc[partition] = zlib.crc32(value, zlib.crc32(message.key() or b"", crc[partition]))
            count += 1
            if timestamp_ms >= spec["measured_from_ms"]:
                ages_ms.append(now_ms - timestamp_ms)
    consumer.close()
    return {
        "records": count,
        "digests": {str(one): value for one, value in crc.items()},
        "ages": spread(ages_ms),
        "first_at": first_at,  # epoch seconds
        "last_at": last_at,
    }


def _exists(consumer: Consumer, topic: str, partitions: int) -> bool:
    """Whether the program under test has created it."""
    known = consumer.list_topics(timeout=30).topics.get(topic)
    return known is not None and len(known.partitions) >= partitions


def spread(ages_ms: list[int]) -> dict[str, float]:
    """Seconds; empty without any."""
    ages_ms.sort()
    if not ages_ms:
        return {}
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
    found = {name: ages_ms[min(int(len(ages_ms) * share), len(ages_ms) - 1)] / 1000 for name, share in at.items()}
    return found | {"max": ages_ms[-1] / 1000, "count": float(len(ages_ms))}


if __name__ == "__main__":
    child.measured(read)
