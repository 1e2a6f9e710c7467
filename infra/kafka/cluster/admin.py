"""Queries and changes of one cluster: ClusterAdmin on the Kafka client."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide what it documents
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from formats.errors import BrokerUnavailable, TargetError
from infra.contracts.cluster import LogEnds, TopicFacts, TopicPartition, Watermarks
from infra.kafka.client.epochs import epoch_of
from infra.kafka.client.errors import describe_error, error_of, translate
from infra.kafka.client.topic_configs import AFTER, BEFORE, configs_before_3_6
from infra.kafka.cluster.admin_connection import FIRST_CONTACT, AdminConnection
from infra.runtime.lifecycle import Deadline, Stop

T = TypeVar("T")
BATCH = 2000  # partitions or topics of one request
POLL_INTERVAL = timedelta(milliseconds=50)
KNOWN_WITHIN = timedelta(seconds=5)  # until every broker knows a topic that was just created
ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
_AS_KAFKA_PRINTS = str.maketrans("+/", "-_", "=")

log = logging.getLogger(__name__)


class LeaderNotFound(BrokerUnavailable):
    """The client found no leader for any partition of the request. It reports the same for topics that do not exist
    (seen)."""


class KafkaAdmin:
    """Each request of a call waits at most `timeout` for the brokers. When every broker is down, it fails sooner: at
    once if waiting cannot help, and within `first_contact` if no broker has answered yet. `stop` ends the waits."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        timeout: timedelta = timedelta(seconds=30),
        first_contact: timedelta = FIRST_CONTACT,
        stop: Stop | None = None,
    ) -> None:
        self.connection = self._connection = AdminConnection(properties, timeout=timeout, first_contact=first_contact)
        self._servers = properties.get("bootstrap.servers", "?")
        self._timeout = timeout
        self._stop = stop or Stop()
        self._seconds = timeout.total_seconds()

    def cluster_id(self) -> str:
        # not describe_cluster: librdkafka 2.16 aborts the process when the answer names no live broker, as that of a
        # single broker that has just started does (`rd_kafka_admin_response_parse: Assertion rko_result failed`; seen)
        return self._metadata(f"describe the cluster at {self._servers}").cluster_id or ""

    def topics(self) -> Mapping[str, TopicFacts]:
        return {
            name: TopicFacts(name, "", len(topic.partitions))
            for name, topic in self._metadata("list the topics").topics.items()
            if topic.error is None
        }

    def _metadata(self, operation: str) -> ClusterMetadata:
        try:
            return self._connection.wait_for(
                lambda: self._connection.client.list_topics(timeout=self._seconds), operation
            )
        except KafkaException as error:
            raise translate(error, operation) from error

    def describe(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
        found: dict[str, TopicFacts] = {}
        for batch in _batches(names):
            futures = self._connection.client.describe_topics(TopicCollection(batch), request_timeout=self._seconds)
            for name, future in futures.items():
                topic = self._answer_or_absent(future, f"describe topic {name}")
                if topic is not None:
                    found[name] = TopicFacts(name, topic_id_of(str(topic.topic_id or "")), len(topic.partitions))
        return found

    def configs(self, topic: str) -> Mapping[str, str]:
        found = self.configs_of([topic])[topic]
        if isinstance(found, TargetError):
            raise found
        return found

    def configs_of(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str] | TargetError]:
        found: dict[str, Mapping[str, str] | TargetError] = {}
        for batch in _batches(topics):
            found |= self._configs_of(batch)
        return found

    def _configs_of(self, topics: Sequence[str]) -> Mapping[str, Mapping[str, str] | TargetError]:
        found: dict[str, Mapping[str, str] | TargetError] = {}
        left, deadline = topics, Deadline(min(KNOWN_WITHIN, self._timeout))
        while left:
            resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in left]
            futures = self._connection.client.describe_configs(resources, request_timeout=self._seconds)
            for resource, future in futures.items():
                operation = f"describe the settings of topic {resource.name}"
                try:
                    entries = self._answer_or_absent(future, operation, needs="DESCRIBE_CONFIGS")
                except TargetError as error:
                    found[resource.name] = error
                    continue
                if entries is not None:
                    found[resource.name] = {n: entry.value for n, entry in entries.items() if entry.value is not None}
            left = [topic for topic in left if topic not in found]
            # any broker answers this request, also one that does not know yet of a topic that was just created
            if left and (deadline.expired or self._stop.wait(POLL_INTERVAL)):
                absent = "describe the settings of topic {}: there is no such topic"
                return found | {topic: TargetError(absent.format(topic)) for topic in left}
        return found

    def create_topic(self, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> bool:
        created = self._create(name, partitions, replication_factor, configs)
        # The controller has created it; other brokers learn of it later and answer "unknown topic" until then.
        deadline, min_count = Deadline(self._timeout), partitions if created else 1
        while (facts := self.describe([name]).get(name)) is None or facts.partition_count < min_count:
            if deadline.expired or self._stop.wait(POLL_INTERVAL):
                raise BrokerUnavailable(f"create topic {name}: created, but not shown within {self._timeout}")
        return created

    def check_creation(
        self, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        self._create(name, partitions, replication_factor, configs, only_check=True)

    def _create(
        self, name: str, partitions: int, replicas: int, configs: Mapping[str, str], *, only_check: bool = False
    ) -> bool:
        """False when the topic exists already: another instance may have just created it."""
        operation = f"create topic {name} of {partitions} partitions"
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=dict(configs))
        futures = self._connection.client.create_topics(
            [topic], operation_timeout=self._seconds, request_timeout=self._seconds, validate_only=only_check
        )
        try:
            self._connection.wait(futures[name], operation)
        except KafkaException as error:
            if _unknown_limits(error) and (older := configs_before_3_6(configs)) is not None:
                return self._create(name, partitions, replicas, older, only_check=only_check)
            if error_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translate(error, operation, needs="CREATE") from error
            return False
        return True

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        if not configs:
            return
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        futures = self._connection.client.incremental_alter_configs([resource], request_timeout=self._seconds)
        self._answer(
            futures[resource], f"change the settings {sorted(configs)} of topic {topic}", needs="ALTER_CONFIGS"
        )

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        for batch in _batches(before):
            futures = self._connection.client.delete_records(
                [ClientPartition(p.topic, p.partition, before[p]) for p in batch],
                request_timeout=self._seconds,
                operation_timeout=self._seconds,
            )
            for where, future in futures.items():
                self._records_deleted(TopicPartition(where.topic, where.partition), where.offset, future)

    def _records_deleted(self, partition: TopicPartition, before: int, future: Future[T]) -> None:
        operation = f"delete the records of {partition} before offset {before}"
        try:
            self._connection.wait(future, operation)
        except KafkaException as error:
            match error_of(error).code():
                case KafkaError.OFFSET_OUT_OF_RANGE:
                    raise TargetError(f"{operation}: the log ends before it") from error
                case KafkaError._NOENT:  # no leader: the client says the same of a partition that does not exist
                    facts = self.describe([partition.topic]).get(partition.topic)
                    if facts is None or partition.partition >= facts.partition_count:
                        raise TargetError(f"{operation}: there is no such partition") from error
                    raise LeaderNotFound(f"{operation}: {describe_error(error)}") from error
            raise translate(error, operation, needs="DELETE") from error

    def watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        lows = self._offsets(partitions, EARLIEST)
        highs = self._list_offsets(lows, LATEST)
        return {p: Watermarks(lows[p], high.offset, epoch_of(high.leader_epoch)) for p, high in highs.items()}

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        """Requests them in an order that keeps low <= stable <= high, unless the log is truncated meanwhile. Partitions
        that do not exist are left out."""
        lows = self._offsets(partitions, EARLIEST)
        stables = self.stable_offsets(lows)
        highs = self.high_watermarks(stables)
        return {p: LogEnds(low=lows[p], stable=stables[p], high=high) for p, high in highs.items()}

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._offsets(partitions, LATEST)

    def stable_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._offsets(partitions, LATEST, IsolationLevel.READ_COMMITTED)

    def offsets_at(self, partitions: Collection[TopicPartition], at: datetime) -> Mapping[TopicPartition, int]:
        milliseconds = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        found = self._offsets(partitions, OffsetSpec.for_timestamp(milliseconds))
        without = [p for p, offset in found.items() if offset < 0]  # no timestamp is at or after `at`
        ends = self.high_watermarks(without)
        return {p: offset if offset >= 0 else ends[p] for p, offset in found.items() if offset >= 0 or p in ends}

    def _offsets(
        self,
        partitions: Collection[TopicPartition],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        """Partitions that do not exist are left out. By default open transactions count: LATEST is the high
        watermark."""
        return {p: answer.offset for p, answer in self._list_offsets(partitions, spec, isolation).items()}

    def _list_offsets(
        self,
        partitions: Collection[TopicPartition],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListOffsetsResultInfo]:
        found: dict[TopicPartition, ListOffsetsResultInfo] = {}
        for batch in _batches(partitions):
            try:
                found |= self._list_offsets_of_batch(batch, spec, isolation)
            except LeaderNotFound as error:  # for the whole batch: none of its partitions exists or has a leader now
                facts = self.describe({p.topic for p in batch})
                there = [p for p in batch if p.topic in facts and p.partition < facts[p.topic].partition_count]
                if there:
                    raise LeaderNotFound(f"list offsets of {there[0]}: {error}") from error
        return found

    def _list_offsets_of_batch(
        self, partitions: Sequence[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> Mapping[TopicPartition, ListOffsetsResultInfo]:
        """Raises LeaderNotFound."""
        found: dict[TopicPartition, ListOffsetsResultInfo] = {}
        futures = self._connection.client.list_offsets(
            {ClientPartition(p.topic, p.partition): spec for p in partitions},
            isolation_level=isolation,
            request_timeout=self._seconds,
        )
        for where, future in futures.items():
            partition = TopicPartition(where.topic, where.partition)
            answer = self._answer_or_absent(future, f"list offsets of {partition}")
            if answer is not None:
                found[partition] = answer
        return found

    def _answer(self, future: Future[T], operation: str, *, needs: str) -> T:
        try:
            return self._connection.wait(future, operation)
        except KafkaException as error:
            if error_of(error).code() in ABSENT:
                raise TargetError(f"{operation}: there is no such topic") from error
            raise translate(error, operation, needs) from error

    def _answer_or_absent(self, future: Future[T], operation: str, *, needs: str = "DESCRIBE") -> T | None:
        try:
            return self._connection.wait(future, operation)
        except KafkaException as error:
            if error_of(error).code() in ABSENT:
                return None
            if error_of(error).code() == KafkaError._NOENT:
                raise LeaderNotFound(describe_error(error)) from error
            raise translate(error, operation, needs) from error


def _unknown_limits(error: KafkaException) -> bool:
    """Whether the broker is too old for the timestamp configs: its error names one of them."""
    inner = error_of(error)
    return inner.code() == KafkaError.INVALID_CONFIG and any(name in inner.str() for name in (BEFORE, AFTER))


def topic_id_of(client_id: str) -> str:
    """The topic id as Kafka's own tools print it. The client uses standard base64, whose slash would split an object
    key."""
    topic_id = client_id.translate(_AS_KAFKA_PRINTS)
    return "" if topic_id == NO_TOPIC_ID else topic_id


def _batches(names: Collection[T]) -> Iterator[list[T]]:
    rest = iter(names)
    while batch := list(islice(rest, BATCH)):
        yield batch
