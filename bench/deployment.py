"""What a deployment asks of S3, SQS, Kafka and processors: arithmetic on the settings' defaults.

    python -m bench.sizing --partitions 100000 --topics 5000 --mb-per-second 10000

Nothing is measured here but the size of control objects, which the real encoders write. `Deployment` has the inputs and
their units; `docs/scale.md` has the output for one of them, and `bench.costs` what it costs. How often a segment is
sealed follows from the rules of `egress.partition`: tests play the real core against `segments_per_second`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property

from egress.settings import REFRESH, EgressTopicSettings
from formats.control.catalog import Catalog, CatalogTopic, encode_catalog
from formats.control.watermarks import SourceWatermarks, TopicWatermarks, encode_watermarks
from formats.policies.topic_configs import ConfigSource, ConfigValue
from infra.settings.units import MIB

MONTH_SECONDS = 30 * 86_400
S3_PUTS, S3_GETS = 3_500, 5_500  # a second for each partition of a bucket's key space, says S3
GROUP_RECORD_BYTES = 1_048_588  # message.max.bytes of a broker: limit of a classic group's record
MULTIPART_CALLS = 2  # requests that begin and complete a multipart upload
MESSAGES_A_CALL = 10  # of SQS, received or deleted
SQS_POLLS_IDLE = 1 / 20  # a second for each process, when nothing arrives
EVENT_BYTES = 250  # of a segment's record in the segment-events topic, key included
FOOTER_BYTES = 6_000  # of a small segment beside its records
MEMBER_BYTES = 100  # of a group's member beside topics and partitions
MOVING = 2  # measured by tests/infra/kafka/consumer/test_large_groups.py: twice the parts, while partitions move
COPIES = 3  # of an assignment in one write of a KIP-848 group, likewise
LARGER_GROUPS = (
    "several files, each with a group and disjoint topics, or a larger max.message.bytes of __consumer_offsets"
)
SAMPLE_TIME = datetime(2026, 1, 1, tzinfo=UTC)
SAMPLE_CONFIGS = ("retention.ms", "cleanup.policy", "compression.type", "max.message.bytes", "segment.bytes")


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One source region and one target region. Bytes are of keys, values and headers before compression."""

    partitions: int = 1_000
    topics: int = 50
    topic_name_bytes: int = 24
    bytes_per_second: float = 100e6  # of all partitions
    record_bytes: int = 1_000
    skew: float = 0.0  # partition n has a share of 1/n^skew: 0 = all alike
    stored_ratio: float = 4.0  # raw bytes for each stored byte
    retention_days: float = 30
    levels: int = 2  # with segments, per partition
    processes: int = 4  # on each side
    cpu_seconds_per_million: float = 15.0  # of egress, and of ingress, for records of this size
    cores_per_process: float = 2.0
    part_size: int = 16 * MIB
    relist: timedelta = timedelta(minutes=5)
    refresh: timedelta = REFRESH
    topic_settings: EgressTopicSettings = field(default_factory=EgressTopicSettings)

    def __post_init__(self) -> None:
        if not 0 < self.topics <= self.partitions:
            raise ValueError(f"{self.partitions} partitions of {self.topics} topics: each topic has at least one")
        if min(self.bytes_per_second, self.record_bytes, self.stored_ratio, self.processes) <= 0 or self.skew < 0:
            raise ValueError("rates, sizes and processes must be positive, and skew must not be negative")

    # --- source region

    @cached_property
    def rates(self) -> list[float]:
        """Bytes a second of each partition, the busiest first."""
        shares = [1 / number**self.skew for number in range(1, self.partitions + 1)]
        unit = self.bytes_per_second / sum(shares)
        return [share * unit for share in shares]

    @property
    def records_per_second(self) -> float:
        return self.bytes_per_second / self.record_bytes

    @cached_property
    def segments_per_second(self) -> float:
        return sum(map(self._seals, self.rates))

    @property
    def segment_bytes(self) -> float:
        """Stored bytes of an average segment of level 0."""
        return self.bytes_per_second / self.segments_per_second / self.stored_ratio + FOOTER_BYTES

    @cached_property
    def puts_per_second(self) -> float:
        """Of segments: a large one is uploaded in parts."""
        total = 0.0
        for rate in self.rates:
            seals = self._seals(rate)
            parts = rate / seals / self.stored_ratio / self.part_size
            total += seals * (1 if parts <= 1 else parts + MULTIPART_CALLS)
        return total

    def _seals(self, rate: float) -> float:
        """Segments a second of a partition with `rate` bytes a second, whose records arrive at random."""
        rule = self.topic_settings
        records = rate / self.record_bytes
        full_seconds = min(rule.max_segment_size / rate, rule.max_segment_messages / records)
        aged_seconds = rule.max_segment_age.total_seconds() + 1 / records  # the age counts from the first record on
        return 1 / min(full_seconds, aged_seconds)

    @property
    def egress_cores(self) -> float:
        return self.records_per_second * self.cpu_seconds_per_million / 1e6

    @cached_property
    def catalog_bytes(self) -> int:
        """Of one generation, with five configs of each topic."""
        configs = {name: ConfigValue("604800000", ConfigSource.TOPIC) for name in SAMPLE_CONFIGS}
        topics = {
            name: CatalogTopic(
                name=name, topic_id=f"{number:022x}", partitions=count, replication_factor=3, configs=configs
            )
            for number, (name, count) in enumerate(self._topics())
        }
        sample = Catalog(cluster_id="sample", writer="sample", observed_at=SAMPLE_TIME, topics=topics)
        return len(encode_catalog(sample))

    @cached_property
    def watermark_bytes(self) -> int:
        """Of one generation, with offsets like those of a cluster that has run for a year."""
        chance = random.Random(0)
        topics = {}
        for number, (name, count) in enumerate(self._topics()):
            high = tuple(chance.randrange(10**10) for _ in range(count))
            low, position = (tuple(one - chance.randrange(10**6) for one in high) for _ in range(2))
            topics[name] = TopicWatermarks(
                topic_id=f"{number:022x}", low=low, high=high, stable=high, position=position
            )
        sample = SourceWatermarks(cluster_id="sample", writer="sample", observed_at=SAMPLE_TIME, topics=topics)
        return len(encode_watermarks(sample))

    @property
    def group_record_bytes(self) -> int:
        """Of a classic group: each member lists every topic, its partitions as owned, and as assigned."""
        names = self.topics * (self.topic_name_bytes + 2)
        owned = self.partitions * 4 + min(self.partitions, self.topics * self.processes) * (self.topic_name_bytes + 6)
        if self.processes == 1:
            return names + MEMBER_BYTES + owned
        return MOVING * (self.processes * (names + MEMBER_BYTES) + 2 * owned)

    @property
    def group_write_bytes(self) -> int:
        """Of a group under KIP-848 when its first member joins, which is assigned everything: one write."""
        assignment = self.partitions * 4 + self.topics * 18
        return self.topics * (self.topic_name_bytes + 2) + MEMBER_BYTES + COPIES * assignment

    def _topics(self) -> Iterator[tuple[str, int]]:
        """Name and number of partitions of each."""
        for number in range(self.topics):
            name = f"topic.{number:06d}".ljust(self.topic_name_bytes, "x")
            yield name, self.partitions // self.topics + (number < self.partitions % self.topics)

    # --- target region

    @property
    def gets_per_second(self) -> float:
        """Of ingress: a segment of up to 8 MiB is one request, a larger one is read in windows of that size."""
        return self.segments_per_second * max(1.0, self.segment_bytes / (8 * MIB) + 1)

    @property
    def queue_requests_per_second(self) -> float:
        return 2 * self.segments_per_second / MESSAGES_A_CALL + self.processes * SQS_POLLS_IDLE

    @property
    def lists_per_second(self) -> float:
        """Of ingress' timer: the levels of a partition, each of them, and its recorded gaps."""
        return self.partitions * (self.levels + 2) / self.relist.total_seconds()

    # --- both

    @property
    def stored_bytes_per_month(self) -> float:
        return self.bytes_per_second / self.stored_ratio * MONTH_SECONDS

    def loads(self) -> dict[str, tuple[float, float, str]]:
        """What is used of each limit: (used, limit, setting or remedy)."""
        per_topic_puts = self.puts_per_second / self.topics
        per_process = self.partitions / self.processes
        return {
            "egress processors, cores": (
                self.egress_cores,
                self.processes * self.cores_per_process,
                "more processes: egress.processes on one machine, --spark or Kubernetes beyond it",
            ),
            "record of a classic group, bytes": (
                self.group_record_bytes,
                GROUP_RECORD_BYTES,
                LARGER_GROUPS,
            ),
            "write of a KIP-848 group, bytes": (self.group_write_bytes, GROUP_RECORD_BYTES, LARGER_GROUPS),
            "partitions of a process": (per_process, 1_000, "more processes"),
            "PUT a second, evenly over topics, of one topic": (
                per_topic_puts,
                S3_PUTS,
                "longer max_segment_age; S3 splits a key space that stays busy, and answers 503 until then",
            ),
            "PUT a second, all topics, before S3 has split": (
                self.puts_per_second,
                S3_PUTS,
                "longer max_segment_age; begin with few topics, or with a prefix of each part in a file of its own",
            ),
            "GET a second, before S3 has split": (
                self.gets_per_second,
                S3_GETS,
                "longer max_segment_age: fewer, larger segments",
            ),
            "LIST a second of ingress' timer, before S3 has split": (
                self.lists_per_second,
                S3_GETS,
                "longer relist_interval: it only finds segments whose notification was lost",
            ),
            "watermarks, bytes in flight of 8 MB/s": (
                self.watermark_bytes / self.refresh.total_seconds(),
                8e6,
                "longer watermark_interval",
            ),
        }
