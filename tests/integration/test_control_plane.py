"""Topics, partitions, configs and heartbeats cross with the data, on two brokers: source settings change while records
flow, and the target follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # its stubs hide what it documents

from formats.policies.topic_configs import ConfigChange, ConfigSource
from formats.segment import SourcePartition
from infra.archive.last_good import catalogs_in
from infra.archive.segments import SegmentStore
from infra.contracts.cluster import TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from infra.local.aws import create_bucket_with_queue
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.service import Service
from infra.storage.aws import AwsCredentials
from infra.storage.s3 import S3ObjectStore, make_s3_client
from replicator.client import MirrorClient, lag
from replicator.config import Config
from replicator.config.load import from_mapping
from replicator.services.clients import Clients
from replicator.services.egress import build_egress
from replicator.services.ingress import build_ingress
from replicator.services.planning import compared, planned
from replicator.services.routing import routed
from tests.infra.cluster import Cluster
from tests.infra.principal import TOPIC, Principal
from tests.integration.running import running_services

pytestmark = pytest.mark.integration

PATIENCE = timedelta(seconds=60)


@dataclass
class Regions:
    """Brokers a and b, with one bucket between them. A region's name ends with that of its broker."""

    stack: LocalStack
    unique: Callable[[str], str]
    start: Callable[[Service], Service]
    bucket: str = field(init=False)
    word: str = field(init=False)  # begins the names of this test's topics

    def __post_init__(self) -> None:
        self.word, self.bucket, self.queue = self.unique("cp"), self.unique("bucket"), self.unique("queue")
        create_bucket_with_queue(self.stack.moto.endpoint_url, self.bucket, self.queue)

    def config(self, region: str, **sections: object) -> Config:
        aws = {
            "endpoint_url": self.stack.moto.endpoint_url,
            "region_name": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "test",
        }
        tables = {
            "region": region,
            "kafka": {"bootstrap.servers": self.stack.brokers[region[-1]].bootstrap},
            "s3": {"bucket": self.bucket, **aws},
            **({"sqs": {"queue": self.queue, "wait": "1s", **aws}} if "ingress" in sections else {}),
            **sections,
        }
        return from_mapping(tables, source="test")

    def egress(self, region: str, **settings: object) -> Config:
        return self.config(
            region,
            egress={
                "group_id": self.unique("egress"),
                "topic_refresh_interval": "1s",
                "heartbeat_interval": "1s",
                "watermark_interval": "1s",
                "topics": {f"^.*{self.word}.*": {"max_segment_age": "1s"}},
                **settings,
            },
        )

    def ingress(self, region: str, source: str, **settings: object) -> Config:
        return self.config(
            region,
            ingress={
                "group_id": self.unique("ingress"),
                "segment_events_topic": self.unique("events"),
                "checkpoint_topic": self.unique("checkpoints"),
                "replication_factor": 1,
                "topic_refresh_interval": "1s",
                "relist_interval": "3s",
                "replication_policy": "default",
                "sources": [{"region": source, "topic": f"^.*{self.word}.*", "first_segment_delay": "0s"}],
                **settings,
            },
        )

    def configs(self, region: str, topic: str) -> Mapping[str, str]:
        """Set at the topic itself."""
        admin = KafkaAdmin({"bootstrap.servers": self.stack.brokers[region].bootstrap})
        found = KafkaCatalogAdmin(admin.connection).config_values([topic]).get(topic, {})
        assert isinstance(found, dict), found
        return {name: one.value for name, one in found.items() if one.source is ConfigSource.TOPIC}

    def change(self, region: str, topic: str, change: ConfigChange) -> None:
        admin = KafkaAdmin({"bootstrap.servers": self.stack.brokers[region].bootstrap})
        assert KafkaCatalogAdmin(admin.connection).change_configs(topic, change) == {}

    def produce(self, region: str, topic: str, partition: int, count: int) -> None:
        with Cluster(self.stack.brokers[region]).producer() as producer:
            for n in range(count):
                producer.produce(topic, b"%d" % n, partition=partition)

    def count(self, region: str, topic: str, partition: int) -> int:
        return len(Cluster(self.stack.brokers[region]).records(TopicPartition(topic, partition)))

    def end(self, region: str, topic: str, partition: int) -> int:
        """Of its log; 0 without such a partition."""
        if self.partitions(region, topic) <= partition:
            return 0
        return Cluster(self.stack.brokers[region]).end(TopicPartition(topic, partition))

    def objects(self) -> S3ObjectStore:
        credentials = AwsCredentials(access_key_id="test", secret_access_key="test")
        client = make_s3_client(
            endpoint_url=self.stack.moto.endpoint_url, region_name="us-east-1", credentials=credentials
        )
        return S3ObjectStore(client, self.bucket)

    def topics(self, region: str) -> set[str]:
        return {topic for topic in Cluster(self.stack.brokers[region]).topics() if self.word in topic}

    def partitions(self, region: str, topic: str) -> int:
        found = KafkaAdmin({"bootstrap.servers": self.stack.brokers[region].bootstrap}).topics().get(topic)
        return 0 if found is None else found.partition_count


@pytest.fixture
def regions(stack: LocalStack, unique: Callable[[str], str]) -> Iterator[Regions]:
    with running_services() as start:
        yield Regions(stack, unique, start)


def await_(condition: Callable[[], bool]) -> None:
    wait_until(condition, PATIENCE)
    assert condition()


def test_m06_a_topic_is_created_grows_and_changes_as_its_source_does(regions: Regions) -> None:
    source = Cluster(regions.stack.brokers["a"])
    topic, copy = f"{regions.word}.orders", f"a.{regions.word}.orders"
    foreign = f"a.{regions.word}.theirs"
    source.create(f"{regions.word}.theirs", partitions=2)
    Cluster(regions.stack.brokers["b"]).create(foreign, partitions=1)
    ingress = regions.ingress("b", "a")
    regions.start(build_egress(regions.egress("a")))
    regions.start(build_ingress(ingress))

    source.create(topic, partitions=2, configs={"retention.ms": "86400000", "segment.bytes": "1048576"})
    await_(lambda: regions.partitions("b", copy) == 2)
    assert regions.configs("b", copy)["segment.bytes"] == "1048576", "before its first record"
    regions.produce("a", topic, 1, 2)
    await_(lambda: regions.count("b", copy, 1) == 2)
    await_(lambda: regions.configs("b", copy).get("retention.ms") == "86400000")

    source.add_partition(topic, 4)
    regions.produce("a", topic, 3, 500)
    await_(lambda: regions.partitions("b", copy) == 4)
    await_(lambda: regions.count("b", copy, 3) == 500)

    change = ConfigChange({"max.message.bytes": "2000000", "retention.ms": "90000000"}, frozenset({"segment.bytes"}))
    regions.change("a", topic, change)
    await_(lambda: regions.configs("b", copy).get("max.message.bytes") == "2000000")
    found = regions.configs("b", copy)
    assert (found["retention.ms"], found.get("segment.bytes")) == ("90000000", None)
    regions.change("a", topic, ConfigChange({}, frozenset({"retention.ms"})))
    await_(lambda: "retention.ms" not in regions.configs("b", copy))
    with Clients(ingress) as reach:
        plan, status = planned(reach, routed(reach)), compared(reach, routed(reach))
    assert (list(plan.changes), dict(plan.problems), list(plan.without_catalog)) == ([], {}, [])
    assert {one.partition(":")[0] for one in status.differences} == {foreign}
    assert any("has 1 partitions" in one for one in status.differences)
    assert (status.changes, status.problems, list(status.changed_at)) == (0, [], ["a"])

    with MirrorClient(ingress.cluster.properties("consumer")) as client:
        assert copy in client.remote_topics("a")
    await_(lambda: {one.source.partition: one.records for one in lag(ingress)} == {1: 0, 3: 0})
    assert all(one.seconds is not None and one.seconds < PATIENCE.total_seconds() for one in lag(ingress))


@pytest.mark.long
def test_partitions_are_added_while_records_are_produced(regions: Regions) -> None:
    """To the source alone: every record arrives, and in order, from the first one of each partition."""
    source, topic = Cluster(regions.stack.brokers["a"]), f"{regions.word}.orders"
    source.create(topic, partitions=2)
    regions.start(build_egress(regions.egress("a")))
    regions.start(build_ingress(regions.ingress("b", "a")))
    produced: dict[int, int] = {0: 0, 1: 0}
    with source.producer(**{"topic.metadata.refresh.interval.ms": 200}) as producer:

        def produce_until(condition: Callable[[], bool]) -> None:
            def go_on() -> bool:
                for partition, count in produced.items():
                    producer.produce(topic, b"%d" % count, partition=partition)
                    produced[partition] = count + 1
                producer.poll(0.002)
                return condition()

            await_(go_on)

        for total in (3, 6):
            produce_until(lambda: regions.end("b", f"a.{topic}", max(produced)) > 100)
            source.add_partition(topic, total)
            await_(lambda total=total: len(producer.list_topics(topic).topics[topic].partitions) == total)  # type: ignore[misc]
            produced.update(dict.fromkeys(range(len(produced), total), 0))
            produce_until(lambda total=total: regions.partitions("b", f"a.{topic}") == total)  # type: ignore[misc]
        produce_until(lambda: min(produced.values()) > 1000)
    for partition, count in produced.items():
        await_(lambda partition=partition, count=count: regions.count("b", f"a.{topic}", partition) >= count)  # type: ignore[misc]
        found = Cluster(regions.stack.brokers["b"]).records(TopicPartition(f"a.{topic}", partition))
        assert [one.value for one in found] == [b"%d" % n for n in range(count)]


@pytest.mark.long
def test_two_regions_that_mirror_each_other_come_to_rest(regions: Regions) -> None:
    """By the lineage alone: the names would not tell."""
    for here in "ab":
        Cluster(regions.stack.brokers[here]).create(f"{regions.word}.{here}", partitions=1)
        regions.produce(here, f"{regions.word}.{here}", 0, 1)
        regions.start(build_egress(regions.egress(here)))
    for here, there in ("ab", "ba"):
        source = {"region": there, "topic": f"^.*{regions.word}.*", "first_segment_delay": "5s"}
        regions.start(build_ingress(regions.ingress(here, there, sources=[source], replication_policy=None)))
    wanted = {here: {f"{regions.word}.{here}", f"{regions.word}.{there}.ingress"} for here, there in ("ab", "ba")}
    await_(lambda: all(regions.topics(here) == wanted[here] for here in "ab"))
    for here, there in ("ab", "ba"):
        await_(lambda here=here, there=there: regions.count(there, f"{regions.word}.{here}.ingress", 0) == 1)  # type: ignore[misc]
    clusters = {here: KafkaAdmin(Cluster(regions.stack.brokers[here]).properties).cluster_id() for here in "ab"}
    catalogs, store = catalogs_in(regions.objects(), "data"), SegmentStore(regions.objects(), "data")
    copies = {here: f"{regions.word}.{there}.ingress" for here, there in ("ab", "ba")}
    for here, there in ("ab", "ba"):
        # the copies are archived, too, and the catalogue says what they are
        await_(lambda here=here: any(store.list(SourcePartition(here, copies[here], 0))))  # type: ignore[misc]
        await_(lambda here=here: copies[here] in catalogs.refresh([here])[here].topics)  # type: ignore[misc]
        assert catalogs.refresh([here])[here].topics[copies[here]].lineage == (clusters[there],)
    # what comes of them would be there with the next record
    for here in "ab":
        regions.produce(here, f"{regions.word}.{here}", 0, 1)
    for here, there in ("ab", "ba"):
        await_(lambda here=here, there=there: regions.count(there, f"{regions.word}.{here}.ingress", 0) == 2)  # type: ignore[misc]
    assert {here: regions.topics(here) for here in "ab"} == wanted


RING = {"a": "b", "b": "c", "c": "a"}
CYCLES = 10


def copies(policy: str | None, word: str) -> Mapping[str, Mapping[str, str]]:
    """Of each region of the ring: topic -> region whose records it has."""
    before = {there: here for here, there in RING.items()}
    found = {}
    for here in RING:
        first, second = before[here], before[before[here]]
        names = {
            "default": (f"{first}.{word}.{first}", f"{first}.{second}.{word}.{second}"),
            "identity": (f"{word}.{first}", f"{word}.{second}"),
            None: (f"{word}.{first}.ingress", f"{word}.{second}.ingress.ingress"),
        }[policy]
        found[here] = dict(zip(names, (first, second), strict=True))
    return found


@pytest.mark.long
@pytest.mark.parametrize("policy", ["default", "identity", None])
def test_a_ring_of_three_comes_to_rest(
    run_stack: Callable[..., AbstractContextManager[LocalStack]], unique: Callable[[str], str], policy: str | None
) -> None:
    """Each region mirrors everything of the one before it; a record goes round once and no further."""
    with run_stack(regions=tuple(RING)) as stack, running_services() as start:
        regions = Regions(stack, unique, start)
        for here in RING:
            Cluster(stack.brokers[here]).create(f"{regions.word}.{here}", partitions=1)
            start(build_egress(regions.egress(here)))
        for source, here in RING.items():
            selected = {"region": source, "topic": f"^.*{regions.word}.*", "first_segment_delay": "0s"}
            settings = regions.ingress(here, source, sources=[selected], replication_policy=policy)
            start(build_ingress(settings))
        wanted = copies(policy, regions.word)
        for here in RING:
            await_(lambda here=here: wanted[here].keys() <= regions.topics(here))  # type: ignore[misc]
        for count in range(1, CYCLES + 1):
            # each takes longer than a refresh: what comes of the copies would be there with the next record
            for here in RING:
                regions.produce(here, f"{regions.word}.{here}", 0, 1)
            for here in RING:
                for topic in wanted[here]:
                    await_(lambda here=here, topic=topic, count=count: regions.count(here, topic, 0) >= count)  # type: ignore[misc]
            assert {here: regions.topics(here) for here in RING} == {
                here: {f"{regions.word}.{here}", *wanted[here]} for here in RING
            }
        for here in RING:
            assert {topic: regions.count(here, topic, 0) for topic in regions.topics(here)} == dict.fromkeys(
                [f"{regions.word}.{here}", *wanted[here]], CYCLES
            )


@pytest.mark.long
def test_acls_cross_and_are_revoked_and_no_other_principal_may_write(regions: Regions) -> None:
    topic, copy = f"{regions.word}.orders", f"a.{regions.word}.orders"
    brokers = regions.stack.brokers
    Cluster(brokers["a"]).create(topic, partitions=1)
    regions.produce("a", topic, 0, 1)
    name = f"{regions.word}-reader"
    at_source, at_target = Principal(brokers["a"], name), Principal(brokers["b"], name)
    at_source.allow(TOPIC, topic, AclOperation.READ, AclOperation.WRITE)
    writer = Principal(brokers["b"], f"{regions.word}-writer")
    writer.allow(TOPIC, f"a.{regions.word}", AclOperation.WRITE, prefixed=True)
    regions.start(build_egress(regions.egress("a")))
    regions.start(build_ingress(regions.ingress("b", "a")))

    def acls() -> set[tuple[str, str, str]]:
        found = KafkaCatalogAdmin(KafkaAdmin(Cluster(brokers["b"]).properties).connection).acls()
        return {(one.principal, one.permission, one.operation) for one in found if one.resource_name == copy}

    await_(lambda: acls() == {(f"User:{name}", "ALLOW", "READ"), (f"User:{writer.name}", "DENY", "WRITE")})
    await_(lambda: regions.count("b", copy, 0) == 1)
    await_(lambda: first_value(at_target, copy) == b"0")
    await_(lambda: why_not_produced(writer, copy) == "TOPIC_AUTHORIZATION_FAILED")
    at_source.forbid(TOPIC, topic, AclOperation.READ)
    await_(lambda: acls() == {(f"User:{writer.name}", "DENY", "WRITE")})
    await_(lambda: first_value(at_target, copy) is None)


@pytest.mark.long
def test_heartbeats_arrive_and_go_down_a_chain(regions: Regions) -> None:
    """a -> b -> c, which shares a's broker."""
    a, b, c = (f"{regions.word}-{one}" for one in ("a", "b", "c-a"))
    topic = f"{regions.word}.orders"
    Cluster(regions.stack.brokers["a"]).create(topic, partitions=1)
    regions.produce("a", topic, 0, 1)
    source = regions.start(build_egress(regions.egress(a, write_heartbeats=True)))
    regions.start(build_ingress(regions.ingress(b, a, heartbeat_interval="1s")))
    regions.start(build_egress(regions.egress(b)))
    chain = {"region": b, "topic": f"^.*{regions.word}.*", "first_segment_delay": "0s", "ignore_lineage": True}
    regions.start(build_ingress(regions.ingress(c, b, heartbeat_interval="1s", sources=[chain])))
    with MirrorClient(Cluster(regions.stack.brokers["b"]).properties) as at_b:
        with MirrorClient(Cluster(regions.stack.brokers["a"]).properties) as at_c:
            await_(lambda: at_c.replication_hops(a) == 2 and at_c.replication_hops(b) == 1)
            await_(lambda: len(list(at_c.heartbeats(f"{b}.{a}.heartbeats"))) > 2)
            own = [one for one in at_c.heartbeats("heartbeats") if one.source_alias == one.target_alias == a]
        arrived = [one.timestamp_ms for one in at_b.heartbeats(f"{a}.heartbeats")]
        assert {one.timestamp_ms for one in own} & set(arrived), "a's own time"
        assert arrived == sorted(set(arrived))
        assert {(one.source_alias, one.target_alias) for one in at_b.heartbeats(f"{a}.heartbeats")} == {(b, a)}
        facts = KafkaAdmin(Cluster(regions.stack.brokers["b"]).properties)
        assert (facts.topics()[f"{a}.heartbeats"].partition_count, facts.configs("heartbeats")["cleanup.policy"]) == (
            1,
            "compact",
        )

        def of_flow() -> int:
            return sum(1 for one in at_b.heartbeats("heartbeats") if (one.source_alias, one.target_alias) == (a, b))

        source.stop()
        source.join(PATIENCE)
        for _ in range(2):  # what was under way arrives; then nothing does
            before, arrived = of_flow(), [one.timestamp_ms for one in at_b.heartbeats(f"{a}.heartbeats")]
            await_(lambda before=before: of_flow() >= before + 4)  # type: ignore[misc]
        assert arrived == [one.timestamp_ms for one in at_b.heartbeats(f"{a}.heartbeats")]


def first_value(principal: Principal, topic: str) -> bytes | None:
    """Of partition 0, as this principal reads it; None when it may not."""
    consumer = Consumer({**principal.properties, "group.id": principal.name, "log_level": 0})
    try:
        consumer.assign([Place(topic, 0, 0)])
        while (message := consumer.poll(10)) is not None:
            error = message.error()
            if error is None:
                return message.value()
            if (
                error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED
            ):  # of the group's coordinator, which it never needs
                return None
        return None
    finally:
        consumer.close()


def why_not_produced(principal: Principal, topic: str) -> str:
    """The name of the error; empty when the record was accepted."""
    errors: list[KafkaError | None] = []
    producer = Producer({**principal.properties, "log_level": 0})
    producer.produce(topic, b"foreign", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(10)
    return "" if not errors or errors[0] is None else errors[0].name()
