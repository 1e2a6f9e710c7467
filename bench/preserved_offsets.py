"""What the source's own offsets cost: `python -m bench.preserved_offsets`, of the writers alone, on one broker.

Plain runs are sent by each writer in turn; then holes of one offset, and one large hole, are filled.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.records.schema import SCHEMA
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import TargetRun, TargetWriter
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.producer.at_least_once import AtLeastOnceWriter
from infra.kafka.producer.preserved_log import TargetLogs
from infra.kafka.producer.preserving import PreserveLimits, PreservingWriter
from infra.kafka.producer.transactional import TransactionalWriter
from infra.local.stack import LocalStack

RECORDS, RUN, ROUND, ROUNDS = 200_000, 10_000, 50_000, 5
HOLES, LARGE = 300, 3_000_000
VALUE = b"x" * 1000
MEMORY = 64 << 20
TIMEOUT = timedelta(seconds=30)


class PreservedOffsetsBench:
    def __init__(self, bootstrap: str) -> None:
        self.properties = {"bootstrap.servers": bootstrap}
        self.admin = KafkaAdmin(self.properties)
        self.own = {"checkpoint_topic": self._topic("compact"), "offset_map_topic": self._topic("compact")}

    def _topic(self, policy: str = "delete") -> str:
        name = f"bench.{uuid.uuid4().hex}"
        configs = {"cleanup.policy": policy, **({} if policy == "compact" else {"retention.ms": "-1"})}
        self.admin.create_topic(name, partitions=1, replication_factor=1, configs=configs)
        return name

    @contextmanager
    def at_least_once(self) -> Iterator[TargetWriter]:
        writer = AtLeastOnceWriter(self.properties, memory_bytes=MEMORY, **self.own)
        yield writer
        writer.close(TIMEOUT)

    @contextmanager
    def exactly_once(self) -> Iterator[TargetWriter]:
        writer = TransactionalWriter(
            self.properties,
            transactional_id=uuid.uuid4().hex,
            transaction_timeout=TIMEOUT,
            memory_bytes=MEMORY,
            checkpoint_topic=self.own["checkpoint_topic"],
            offset_map_topic=self.own["offset_map_topic"],
        )
        yield writer
        writer.close(TIMEOUT)

    @contextmanager
    def preserving(self) -> Iterator[TargetWriter]:
        writer = PreservingWriter(
            self.properties,
            transactional_id=uuid.uuid4().hex,
            logs=TargetLogs(self.admin, self.properties),
            owns=lambda: True,
            limits=PreserveLimits(
                transaction_timeout=TIMEOUT,
                take_over_wait=timedelta(),
                expires_after=TIMEOUT,
                hole_limit=10**9,
                holes_per_second=10**9,
            ),
            memory_bytes=MEMORY,
            checkpoint_topic=self.own["checkpoint_topic"],
            offset_map_topic=self.own["offset_map_topic"],
        )
        yield writer
        writer.close(TIMEOUT)

    def seconds(self, writer: TargetWriter, rounds: Sequence[Sequence[TargetRun]]) -> float:
        """Of all rounds but the first, which connects."""
        begun = 0.0
        target = TopicPartition(self._topic(), 0)
        for number, runs in enumerate(rounds):
            if number == 1:
                begun = time.monotonic()
            ours = [
                replace(run, partition=target, key=replace(run.key, destination_topic=target.topic)) for run in runs
            ]
            while failures := writer.deliver(ours, should_stop=lambda: False):
                assert {failure.code for failure in failures} <= {"UNFINISHED", "TAKEN_OVER"}, failures
        return time.monotonic() - begun


def run(start: int, count: int, next_offset: int) -> TargetRun:
    now = datetime.now(UTC)
    columns = {
        "offset": pa.array(range(start, start + count), pa.int64()),
        "timestamp": pa.array([now] * count, SCHEMA.field("timestamp").type),
        "timestamp_type": pa.array([0] * count, pa.int8()),
        "key": pa.array([b"key"] * count, pa.binary()),
        "value": pa.array([VALUE] * count, pa.binary()),
        "headers": pa.nulls(count, SCHEMA.field("headers").type),
    }
    return TargetRun(
        TopicPartition("", 0),
        (pa.RecordBatch.from_pydict(columns, schema=SCHEMA),) if count else (),
        count,
        count * len(VALUE),
        CheckpointKey(SourcePartition("a", "bench", 0), ""),
        Checkpoint(next_offset, "", now),
        start,
        1,
    )


def plain() -> list[list[TargetRun]]:
    runs = [run(start, RUN, start + RUN) for start in range(0, RECORDS + ROUND, RUN)]
    return [runs[first : first + ROUND // RUN] for first in range(0, len(runs), ROUND // RUN)]


def main() -> None:
    with LocalStack(regions=("a",)) as stack:
        bench = PreservedOffsetsBench(stack.brokers["a"].bootstrap)
        rounds = plain()
        writers: dict[str, Callable[[], object]] = {
            "at-least-once": bench.at_least_once,
            "exactly-once": bench.exactly_once,
            "preserve": bench.preserving,
        }
        rates: dict[str, list[float]] = {name: [] for name in writers}
        for _ in range(ROUNDS):
            for name, opened in writers.items():
                with opened() as writer:  # type: ignore[attr-defined]
                    rates[name].append(RECORDS / bench.seconds(writer, rounds))
        for name, found in rates.items():
            print(f"{name}: {statistics.median(found):,.0f} records/s ({min(found):,.0f}-{max(found):,.0f})")
        with bench.preserving() as writer:
            holes = [[run(2 * n, 1, 2 * n + 2)] for n in range(HOLES + 1)]
            print(f"holes of one offset: {HOLES / bench.seconds(writer, holes):,.0f} a second")
        with bench.preserving() as writer:
            pairs = [[run(4 * n, 1, 4 * n + 4)] for n in range(HOLES + 1)]
            print(f"holes of three offsets: {HOLES / bench.seconds(writer, pairs):,.0f} a second")
        with bench.preserving() as writer:
            large = [[run(0, 1, 1)], [run(1, 0, LARGE)]]
            print(f"one large hole: {LARGE / bench.seconds(writer, large):,.0f} offsets a second")


if __name__ == "__main__":
    main()
