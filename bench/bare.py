"""The bare client with nothing but its loop: the upper limit of any Python program. `bench.child` starts it."""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.data import records


def consume(spec: dict[str, Any]) -> dict[str, Any]:
    """Read and count all records of the topic. The clock starts with the first record."""
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
    """Produce the records of prebuilt lists until all are acknowledged. The clock starts before the first `produce`."""
    made = records(spec["kind"], spec["records"], spec["partitions"])
    producer, topic = Producer(spec["properties"]), spec["topic"]
    producer.list_topics(topic, timeout=30)  # connects, since our writer is connected when the clock starts
    rows = zip(made.keys, made.values, made.headers, made.timestamps_ms, made.partitions, strict=True)
    began, cpu = time.monotonic(), time.process_time()
    for number, (key, value, headers, timestamp, partition) in enumerate(rows):
        while True:
            try:
                producer.produce(topic, value, key, partition, timestamp=timestamp, headers=headers)
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
