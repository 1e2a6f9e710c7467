"""The offset map's topic: the contract, and behaviour that only a real topic has."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import timedelta

import pytest
from confluent_kafka import KafkaError, Message

from formats.errors import BrokerUnavailable, TargetError
from formats.messages.map_key import encode_map_key
from formats.messages.offset_map import MapPage, encode_page, encode_page_key
from infra.archive.map_pages import PagedMaps
from infra.contracts.internal_topics import OffsetMapEditor, OffsetMapLog
from infra.kafka.internal_topics import topic_log
from infra.kafka.internal_topics.offset_map_editor import KafkaOffsetMapEditor
from infra.kafka.internal_topics.offset_map_log import MEMORY_KBYTES, KafkaOffsetMapLog
from infra.kafka.internal_topics.topic_log import LogFacts, TopicLog
from infra.local.stack import LocalStack
from tests.contracts.offset_map_log import OffsetMapLogContract, pages_of
from tests.fakes.kafka_offset_map import FakeOffsetMap
from tests.infra.cluster import Cluster
from tests.infra.kafka.internal_topics.test_whole_topic import Client
from tests.infra.principal import DESCRIBE, READ, TOPIC, Principal
from tests.ingress.groups.offset_maps import KEY, page

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
FIRST, LONGER, SECOND = page(0, [(0, 0, 5)]), page(0, [(0, 0, 8)]), page(8, [(8, 9, 2)])


class TestFakeOffsetMap(OffsetMapLogContract):
    @pytest.fixture
    def topic(self) -> Iterator[FakeOffsetMap]:
        self._topic = FakeOffsetMap()
        yield self._topic
        self._topic.close()

    @pytest.fixture
    def maps(self, topic: FakeOffsetMap) -> OffsetMapLog:
        return topic

    @pytest.fixture
    def editor(self, topic: FakeOffsetMap) -> OffsetMapEditor:
        return topic

    def put(self, *pages: MapPage) -> None:
        self._topic.put(*pages)

    @contextmanager
    def away(self) -> Iterator[None]:
        self._topic.away = True
        yield
        self._topic.away = False


@pytest.mark.integration
class TestKafkaOffsetMapLog(OffsetMapLogContract):
    @pytest.fixture
    def cluster(self, stack: LocalStack) -> Cluster:
        self._cluster = Cluster(stack.brokers["b"])
        return self._cluster

    @pytest.fixture
    def topic(self, cluster: Cluster, unique: Callable[[str], str]) -> str:
        self._topic = unique("offsetmap")
        # delete: so that tests may delete records
        cluster.create(self._topic, configs={"cleanup.policy": "compact,delete"})
        return self._topic

    @pytest.fixture
    def maps(self, cluster: Cluster, topic: str) -> Iterator[OffsetMapLog]:
        properties = cluster.properties | {"log_level": 0, "fetch.wait.max.ms": 50}
        within = timedelta(seconds=2)
        with closing(KafkaOffsetMapLog(properties, topic, read_within=within, answer_within=within)) as maps:
            yield maps

    @pytest.fixture
    def editor(self, cluster: Cluster, topic: str) -> Iterator[OffsetMapEditor]:
        properties = cluster.properties | {"log_level": 0}
        with closing(KafkaOffsetMapEditor(properties, topic, write_within=timedelta(seconds=5))) as editor:
            yield editor

    def put(self, *pages: MapPage) -> None:
        for one in pages:
            self._cluster.put(self._topic, encode_page_key(one), encode_page(one))

    def away(self) -> AbstractContextManager[None]:
        return self._cluster.frozen()

    def test_only_committed_transactions_count(
        self, maps: OffsetMapLog, cluster: Cluster, topic: str, unique: Callable[[str], str]
    ) -> None:
        with cluster.producer(**{"transactional.id": unique("tx")}) as producer:
            producer.init_transactions()
            for one, end in ((FIRST, producer.commit_transaction), (LONGER, producer.abort_transaction)):
                producer.begin_transaction()
                producer.produce(topic, encode_page(one), encode_page_key(one), 0)
                producer.flush()
                end()
            assert pages_of(maps.read()) == {KEY: [FIRST]}
            producer.begin_transaction()
            producer.produce(topic, encode_page(LONGER), encode_page_key(LONGER), 0)
            producer.flush()
            with pytest.raises(BrokerUnavailable, match="a transaction is open"):
                maps.read()
            producer.commit_transaction()
        assert pages_of(maps.read()) == {KEY: [LONGER]}

    def test_a_truncated_log_is_read_again(self, maps: OffsetMapLog, cluster: Cluster, topic: str) -> None:
        self.put(FIRST)
        assert pages_of(maps.read()) == {KEY: [FIRST]}
        cluster.cut(topic)
        self.put(SECOND)
        assert pages_of(maps.read()) == {KEY: [SECOND]}

    def test_another_incarnation_of_the_topic_is_read_again(
        self, maps: OffsetMapLog, cluster: Cluster, topic: str
    ) -> None:
        self.put(FIRST)
        assert pages_of(maps.read()) == {KEY: [FIRST]}
        cluster.delete(topic)
        cluster.create(topic, configs={"cleanup.policy": "compact"})
        self.put(LONGER, SECOND)
        assert pages_of(maps.read()) == {KEY: [LONGER, SECOND]}


@pytest.mark.integration
def test_a_topic_without_permission_is_a_target_error(
    stack: LocalStack, unique: Callable[[str], str], topic_name: str
) -> None:
    broker = stack.brokers["b"]
    principal = Principal(broker, unique("worker"))
    properties = {**principal.properties, "log_level": 0}
    Cluster(broker).create(topic_name, configs={"cleanup.policy": "compact"})
    Cluster(broker).put(topic_name, encode_page_key(FIRST), encode_page(FIRST))
    principal.allow(TOPIC, topic_name, DESCRIBE)
    with closing(KafkaOffsetMapLog(properties, topic_name)) as maps:
        with pytest.raises(TargetError, match=r"TOPIC_AUTHORIZATION_FAILED.*allow READ on the topic"):
            maps.read()
        principal.allow(TOPIC, topic_name, READ)
        assert pages_of(maps.read()) == {KEY: [FIRST]}


class TestOnWhatTheClientHandsOver:
    @pytest.fixture
    def client(self, monkeypatch: pytest.MonkeyPatch) -> Client:
        self._end = 0
        made = Client()
        monkeypatch.setattr(topic_log, "Consumer", made.create)
        monkeypatch.setattr(TopicLog, "facts", lambda _: LogFacts(topic_id="id", starts={0: 0}, ends={0: self._end}))
        return made

    @pytest.fixture
    def maps(self, client: Client) -> Iterator[KafkaOffsetMapLog]:
        with closing(KafkaOffsetMapLog(NOWHERE, "t", read_within=timedelta(seconds=2))) as maps:
            yield maps

    def hand_over(self, client: Client, *records: MapPage | tuple[bytes, bytes | None]) -> None:
        """In one fetch."""
        messages = []
        for one in records:
            key, value = (encode_page_key(one), encode_page(one)) if isinstance(one, MapPage) else one
            messages.append(Message("t", 0, self._end, key, value))
            self._end += 1
        client.answers.append([*messages, Message("t", 0, self._end, error=KafkaError(KafkaError._PARTITION_EOF))])

    def test_little_memory_is_taken_by_what_waits_to_be_read(self, client: Client, maps: KafkaOffsetMapLog) -> None:
        assert maps.read() == {}
        assert client.properties["queued.max.messages.kbytes"] == MEMORY_KBYTES
        assert client.properties["isolation.level"] == "read_committed"

    def test_of_the_versions_in_one_fetch_the_last_is_decoded(
        self, client: Client, maps: KafkaOffsetMapLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        decoded, put = list[bytes](), PagedMaps.put

        def counted(maps: PagedMaps, key: bytes, value: bytes | None) -> None:
            decoded.append(key)
            put(maps, key, value)

        monkeypatch.setattr(PagedMaps, "put", counted)
        versions = [page(0, [(0, 0, count)]) for count in range(1, 9)]
        self.hand_over(client, *versions, SECOND, (encode_page_key(SECOND), None), *versions[-1:])
        assert pages_of(maps.read()) == {KEY: versions[-1:]}
        assert decoded == [encode_page_key(SECOND), encode_page_key(FIRST)]

    def test_pages_of_one_fetch_count_in_the_order_in_which_they_were_written_last(
        self, client: Client, maps: KafkaOffsetMapLog
    ) -> None:
        """The target lost both pages, and what was delivered again began where the first one had."""
        again = page(0, [(0, 0, 20)])
        for one in (FIRST, SECOND, again):  # as they come
            self.hand_over(client, one)
            maps.read()
        assert pages_of(maps.read()) == {KEY: [again]}
        with closing(KafkaOffsetMapLog(NOWHERE, "t", read_within=timedelta(seconds=2))) as restarted:
            self._end = 0
            self.hand_over(client, FIRST, SECOND, again)
            assert pages_of(restarted.read()) == {KEY: [again]}

    def test_malformed_records_are_skipped_and_logged_once(
        self, client: Client, maps: KafkaOffsetMapLog, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A version that cannot be decoded does not take the one before it away."""
        garbage: list[tuple[bytes, bytes | None]] = [
            (b"x", b"y"),
            (b"x", None),
            (b"", b"y"),
            (encode_page_key(FIRST), b"x"),
        ]
        self.hand_over(client, FIRST, *garbage, SECOND)
        with caplog.at_level(logging.WARNING):
            assert pages_of(maps.read()) == {KEY: [FIRST, SECOND]}
        (line,) = caplog.records
        assert (line.getMessage(), line.__dict__["count"]) == ("malformed_offset_map", 4)
        assert "not a key of the offset map: b'x'" in line.__dict__["error"]

    def test_a_full_disk_has_the_topic_read_from_its_start(
        self, client: Client, maps: KafkaOffsetMapLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What was fetched with it would be missing."""
        self.hand_over(client, FIRST, SECOND)
        with monkeypatch.context() as context:
            context.setattr(PagedMaps, "put", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
            with pytest.raises(OSError, match="no space left"):
                maps.read()
        self._end = 0
        self.hand_over(client, FIRST, SECOND)
        assert pages_of(maps.read()) == {KEY: [FIRST, SECOND]}

    def test_keys_of_pages_that_are_trimmed_are_removed(self, client: Client, maps: KafkaOffsetMapLog) -> None:
        self.hand_over(client, FIRST, SECOND)
        maps.read()
        self.hand_over(client, (encode_map_key(KEY, 0), None))
        assert pages_of(maps.read()) == {KEY: [SECOND]}


def test_an_unreachable_broker_is_no_answer() -> None:
    maps = KafkaOffsetMapLog(NOWHERE, "t", answer_within=timedelta(milliseconds=200))
    with closing(maps), pytest.raises(BrokerUnavailable, match="list the end offsets of t"):
        maps.read()
    editor = KafkaOffsetMapEditor(NOWHERE, "t", write_within=timedelta(milliseconds=300))
    with closing(editor), pytest.raises(BrokerUnavailable, match="write to t"):
        editor.remove(KEY, [0])
