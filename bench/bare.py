"""The bare client, nothing but its loop: what any Python program can reach at most. `bench.child` starts it."""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.data import records


def consume(spec: dict[str, Any]) -> dict[str, Any]:
    """Every record of the topic, counted. The clock starts when the first one is here."""
    consumer = Consumer(spec["properties"])
    consumer.assign([TopicPartition(spec["topic"], p, 0) for p in range(spec["partitions"])])
    left = spec["records"] - len(consumer.consume(1, 30))
    began, cpu = time.monotonic(), time.process_time()
    while left:
        left -= len(consumer.consume(min(left, spec["batch"]), 1))
    result = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu}
    consumer.close()
    return result


def produce(spec: dict[str, Any]) -> dict[str, Any]:
    """Every record of prebuilt lists, acknowledged. The clock starts before the first `produce`."""
    made = records(spec["kind"], spec["records"], spec["partitions"])
    producer, topic = Producer(spec["properties"]), spec["topic"]
    producer.list_topics(topic, timeout=30)  # connected, as our writer is when the clock starts
    rows = zip(made.keys, made.values, made.headers, made.stamps, made.partitions, strict=True)
    began, cpu = time.monotonic(), time.process_time()
    for number, (key, value, headers, stamp, partition) in enumerate(rows):
        while True:
            try:
                producer.produce(topic, value, key, partition, timestamp=stamp, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        if not number % 1000:
            producer.poll(0)
    unsent = producer.flush(300)
    result = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu}
    return result | {"unsent": unsent, "raw_bytes": made.raw_bytes}


if __name__ == "__main__":
    spec = json.load(sys.stdin)
    result = {"consume": consume, "produce": produce}[sys.argv[1]](spec)
    print(json.dumps(result | {"peak_rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
