"""Produces records at a steady pace, with the current time, round robin to all partitions. `bench.child` starts it."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Producer

from bench import child
from bench.data import records


def produce(spec: dict[str, Any]) -> dict[str, Any]:
    """`spec`: properties, topic, partitions, records, per_second, begin_after_seconds (time for others to join), or
    begin_at (epoch seconds)."""
    made = records("json", spec["records"], spec["partitions"])
    producer = Producer(spec["properties"])
    producer.list_topics(spec["topic"], timeout=30)
    wait = spec["begin_at"] - time.time() if "begin_at" in spec else spec["begin_after_seconds"]
    began = time.monotonic() + wait
    for number, (key, value, headers) in enumerate(zip(made.keys, made.values, made.headers, strict=True)):
        if not number % 50:
            producer.poll(0)
            time.sleep(max(began + number / spec["per_second"] - time.monotonic(), 0))
        producer.produce(spec["topic"], value, key, number % spec["partitions"], headers=headers)
    return {"unsent": producer.flush(60), "raw_bytes": made.raw_bytes}


if __name__ == "__main__":
    child.measured(produce)
