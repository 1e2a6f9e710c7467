"""Clusters and a bucket in memory for a console of one region: it archives topics of its own, and delivers those of us.

world = ConsoleWorld()
world.archived("t", partitions=2, stored=90, end=100)      a topic here: offsets 0-89 of each partition are stored
world.delivered("t", partitions=2, stored=90, at=60)       one of us
world.admin.away = True; world.objects.away.add("list")    broker, or bucket, cannot be reached
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

from formats.control.claim import TopicClaim
from formats.control.keys import watermarks_prefix
from formats.control.watermarks import SourceWatermarks, TopicWatermarks, encode_watermarks
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.control import ControlStore
from infra.archive.generations import Generations
from infra.archive.segments import SegmentStore
from infra.contracts.cluster import Committed, LogEnds, TopicPartition
from infra.contracts.storage import ObjectInfo
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.config import Config
from replicator.config.load import parse
from replicator.console.reader import StateReader
from replicator.services.clients import Clients
from tests.fakes.cluster_facts import FakeGroups, FakeProbe
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.kafka_target import FakeTarget
from tests.fakes.surroundings import FailingStore, HandClock

HERE, THERE = "eu", "us"
CONFIG = f"""
region = "{HERE}"
[kafka]
"bootstrap.servers" = "one:9092"
[s3]
bucket = "archive"
prefix = "data"
[sqs]
queue = "q"
[egress.topics."^mine.*"]
[ingress]
[[ingress.sources]]
region = "{THERE}"
topic = "^.*"
destination_topic = "{THERE}.{{topic}}"
[compaction]
[[compaction.jobs]]
name = "nightly"
cron = "0 2 * * *"
"""


class SortedStore(MemoryObjectStore):
    """Lists in the time of what it lists, for tests with many objects."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._keys: list[str] = []

    def put_new(self, key: str, body: Any, size_bytes: int) -> None:
        super().put_new(key, body, size_bytes)
        bisect.insort(self._keys, key)

    def delete_many(self, keys: Any) -> None:
        super().delete_many(keys)
        gone = set(keys)
        self._keys = [key for key in self._keys if key not in gone]

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        first = max(bisect.bisect_left(self._keys, prefix), bisect.bisect_right(self._keys, start_after))
        listed = 0
        while first < len(self._keys) and self._keys[first].startswith(prefix) and (limit is None or listed < limit):
            found = self.stat(self._keys[first])
            assert found is not None
            yield found
            first, listed = first + 1, listed + 1


class ConsoleWorld:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.objects = FailingStore(self.clock)
        self.objects.memory = SortedStore(now=self.clock.now)
        self.broker = FakeBroker()
        self.admin = FakeAdmin(self.broker)
        self.groups = FakeGroups(members={"replicator.egress": 1, "replicator.ingress": 1})
        self.probe, self.target = FakeProbe(), FakeTarget()
        self.config: Config = parse(CONFIG)
        self.store, self.control = SegmentStore(self.objects.memory, "data"), ControlStore(self.objects.memory, "data")
        self.broker.create(self.config.ingress.checkpoint_topic if self.config.ingress else "")

    def reader(self, drills: Path | None = None) -> StateReader:
        return StateReader(config=self.config, clock=self.clock, drills=drills, open_clients=self.open)

    def open(self, config: Config) -> Clients:
        reach = Clients(config, with_logs=False)
        vars(reach).update(
            admin=self.admin,
            groups=self.groups,
            probe=self.probe,
            objects=self.objects,
            checkpoints=self.target.checkpoint_store(),
        )
        return reach

    def put(self, source: SourcePartition, start: int, end: int, *, level: int = 0, size_bytes: int = 4) -> None:
        self.store.store(Segment(source, level, OffsetRange(start, end)), BytesIO(b"x" * size_bytes), size_bytes)

    def archived(self, topic: str, *, partitions: int = 1, stored: int, end: int, each: int = 30) -> None:
        self.broker.create(topic, partitions=partitions)
        self.control.claims.record(HERE, topic, claim_of(f"id-{topic}", 0, self.clock.at))
        offsets = self.groups.offsets.setdefault("replicator.egress", {})
        for number in range(partitions):
            where = TopicPartition(topic, number)
            self.probe.marks[where] = LogEnds(low=0, stable=end, high=end)
            offsets[where] = Committed(stored, f"start=0 partitions={partitions}")
            self._put_all(SourcePartition(HERE, topic, number), stored, each)

    def delivered(self, topic: str, *, partitions: int = 1, stored: int, at: int, each: int = 30) -> None:
        destination = f"{THERE}.{topic}"
        self.broker.create(destination, partitions=partitions)
        for number in range(partitions):
            source = SourcePartition(THERE, topic, number)
            self._put_all(source, stored, each)
            checkpoint = Checkpoint(at, f"id-{destination}", self.clock.at)
            self.target.checkpoints[CheckpointKey(source, destination)] = checkpoint

    def publish_watermarks(self, topic: str, *, high: int, position: int, region: str = HERE) -> None:
        """The next generation of the region's watermarks, of one partition, a minute later."""
        self.clock.at += timedelta(minutes=1)
        generations = Generations(self.objects.memory, watermarks_prefix("data", region))
        found = SourceWatermarks(
            cluster_id="cluster",
            writer="test",
            observed_at=self.clock.at,
            topics={
                topic: TopicWatermarks(
                    topic_id=f"id-{topic}", low=(0,), high=(high,), stable=(high,), position=(position,)
                )
            },
        )
        assert generations.put(generations.newest() + 1, encode_watermarks(found))

    def _put_all(self, source: SourcePartition, stored: int, each: int) -> None:
        for start in range(0, stored, each):
            self.put(source, start, min(start + each, stored) - 1)


def claim_of(topic_id: str, number: int, at: datetime) -> TopicClaim:
    return TopicClaim(topic_id=topic_id, cluster_id="cluster", number=number, claimed_at=at)
