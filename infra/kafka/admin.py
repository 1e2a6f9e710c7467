"""Questions and changes to one cluster: ClusterAdmin on the Kafka client."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide what it documents
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from infra.kafka.client_log import client_log
from infra.kafka.errors import error_of, translate
from replicator.errors import BrokerUnavailable, ConfigError, TargetError
from replicator.lifecycle import Deadline, Stop
from replicator.protocols import LogEnds, TopicFacts, TopicPartition, Watermarks
from replicator.timestamp_limits import AFTER, BEFORE, for_older

T = TypeVar("T")
BATCH = 2000  # partitions or topics of one request
GRACE = timedelta(seconds=2)  # what a future gets beyond the client's own timeout
LOOK_AGAIN = timedelta(milliseconds=50)
ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
_AS_KAFKA_PRINTS = str.maketrans("+/", "-_", "=")

log = logging.getLogger(__name__)


class KafkaAdmin:
    """Each call waits at most `timeout` for the brokers, as often as it asks them. `stop` ends the waits."""

    def __init__(
        self, properties: Mapping[str, str], *, timeout: timedelta = timedelta(seconds=30), stop: Stop | None = None
    ) -> None:
        try:
            self._client = AdminClient(dict(properties), logger=client_log)
        except KafkaException as error:  # what the client does not know, or cannot make sense of
            raise ConfigError([str(error.args[0].str())], source="properties of [kafka]") from error
        self._servers = properties.get("bootstrap.servers", "?")
        self._timeout = timeout
        self._stop = stop or Stop()
        self._seconds = timeout.total_seconds()

    def cluster_id(self) -> str:
        described = self._answer(
            self._client.describe_cluster(request_timeout=self._seconds), f"describe the cluster at {self._servers}"
        )
        return described.cluster_id or ""

    def topics(self) -> Mapping[str, TopicFacts]:
        try:
            metadata = self._client.list_topics(timeout=self._seconds)
        except KafkaException as error:
            raise translate(error, "list the topics") from error
        return {
            name: TopicFacts(name, "", len(topic.partitions))
            for name, topic in metadata.topics.items()
            if topic.error is None
        }

    def describe(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
        found: dict[str, TopicFacts] = {}
        for some in _batches(names):
            asked = self._client.describe_topics(TopicCollection(some), request_timeout=self._seconds)
            for name, future in asked.items():
                topic = self._answer_or_absent(future, f"describe topic {name}")
                if topic is not None:
                    found[name] = TopicFacts(name, _topic_id(str(topic.topic_id or "")), len(topic.partitions))
        return found

    def configs(self, topic: str) -> Mapping[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        asked = self._client.describe_configs([resource], request_timeout=self._seconds)
        entries = self._answer(asked[resource], f"describe the settings of topic {topic}")
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}

    def create_topic(self, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> bool:
        created = self._create(name, partitions, replication_factor, configs)
        # The controller has it; other brokers hear of it later, and a client that asks one of those gets "unknown".
        deadline, least = Deadline(self._timeout), partitions if created else 1
        while (facts := self.describe([name]).get(name)) is None or facts.partition_count < least:
            if deadline.expired or self._stop.wait(LOOK_AGAIN):
                raise BrokerUnavailable(f"create topic {name}: created, but not shown within {self._timeout}")
        return created

    def check_creation(
        self, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        self._create(name, partitions, replication_factor, configs, only_check=True)

    def _create(
        self, name: str, partitions: int, replicas: int, configs: Mapping[str, str], *, only_check: bool = False
    ) -> bool:
        """False when it was there: just now by another instance, maybe."""
        doing = f"create topic {name} of {partitions} partitions"
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=dict(configs))
        asked = self._client.create_topics(
            [topic], operation_timeout=self._seconds, request_timeout=self._seconds, validate_only=only_check
        )
        try:
            self._wait(asked[name], doing)
        except KafkaException as error:
            if _unknown_limits(error) and (older := for_older(configs)) is not None:
                return self._create(name, partitions, replicas, older, only_check=only_check)
            if error_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translate(error, doing) from error
            return False
        return True

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        if not configs:
            return
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        asked = self._client.incremental_alter_configs([resource], request_timeout=self._seconds)
        self._answer(asked[resource], f"change the settings {sorted(configs)} of topic {topic}")

    def watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        lows = self._offsets(partitions, EARLIEST)
        highs = self._offsets(lows, LATEST)
        return {p: Watermarks(lows[p], high) for p, high in highs.items()}

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        """Asked in this order, so that low <= stable <= high unless the log was truncated meanwhile. Partitions that
        do not exist are left out."""
        lows = self._offsets(partitions, EARLIEST)
        stables = self.stable_offsets(lows)
        highs = self._offsets(stables, LATEST)
        return {p: LogEnds(low=lows[p], stable=stables[p], high=high) for p, high in highs.items()}

    def stable_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._offsets(partitions, LATEST, IsolationLevel.READ_COMMITTED)

    def offsets_at(self, partitions: Collection[TopicPartition], at: datetime) -> Mapping[TopicPartition, int]:
        milliseconds = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        found = self._offsets(partitions, OffsetSpec.for_timestamp(milliseconds))
        later = [p for p, offset in found.items() if offset < 0]  # nothing is stamped at or after it
        ends = self._offsets(later, LATEST)
        return {p: offset if offset >= 0 else ends[p] for p, offset in found.items() if offset >= 0 or p in ends}

    def _offsets(
        self,
        partitions: Collection[TopicPartition],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        """Partitions that do not exist are left out. By default up to the high watermark: open transactions count."""
        found: dict[TopicPartition, int] = {}
        for some in _batches(partitions):
            asked = self._client.list_offsets(
                {ClientPartition(p.topic, p.partition): spec for p in some},
                isolation_level=isolation,
                request_timeout=self._seconds,
            )
            for where, future in asked.items():
                partition = TopicPartition(where.topic, where.partition)
                answer = self._answer_or_absent(future, f"list offsets of {partition}")
                if answer is not None:
                    found[partition] = answer.offset
        return found

    def _answer(self, future: Future[T], doing: str) -> T:
        try:
            return self._wait(future, doing)
        except KafkaException as error:
            if error_of(error).code() in ABSENT:
                raise TargetError(f"{doing}: there is no such topic") from error
            raise translate(error, doing) from error

    def _answer_or_absent(self, future: Future[T], doing: str) -> T | None:
        try:
            return self._wait(future, doing)
        except KafkaException as error:
            if error_of(error).code() in ABSENT:
                return None
            raise translate(error, doing) from error

    def _wait(self, future: Future[T], doing: str) -> T:
        try:
            return future.result((self._timeout + GRACE).total_seconds())
        except FutureTimeout as error:
            raise BrokerUnavailable(f"{doing}: no answer within {self._timeout}") from error


def _unknown_limits(error: KafkaException) -> bool:
    """Whether the broker is older than the settings for timestamps: it names one that it does not know."""
    inner = error_of(error)
    return inner.code() == KafkaError.INVALID_CONFIG and any(name in inner.str() for name in (BEFORE, AFTER))


def _topic_id(told: str) -> str:
    """As Kafka's own tools print it. The client uses the other alphabet of base64, whose slash would cut a key."""
    topic_id = told.translate(_AS_KAFKA_PRINTS)
    return "" if topic_id == NO_TOPIC_ID else topic_id


def _batches(names: Collection[T]) -> Iterator[list[T]]:
    rest = iter(names)
    while some := list(islice(rest, BATCH)):
        yield some
