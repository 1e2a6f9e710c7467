"""Restored to a moment on real clusters: two topics that are written together, and the groups that read them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from random import Random

import pytest
from confluent_kafka import Consumer, Message, Producer

from formats.control.group_snapshot import decode_group_snapshot
from formats.control.keys import groups_prefix, watermarks_prefix
from formats.control.watermarks import SourceWatermarks, decode_watermarks
from infra.archive.generations import Generations
from infra.contracts.cluster import Committed, TopicPartition
from infra.local.waiting import wait_until
from infra.runtime.lifecycle import Deadline
from replicator.config import Config, from_mapping
from replicator.services.egress import build_egress
from replicator.terminal.output import USAGE
from tests.infra.cluster import QUIET, Cluster
from tests.infra.kafka_groups import commit
from tests.integration.running import running_services
from tests.replicator.restore.history import REGION
from tests.replicator.restore.large import ROWS, fill
from tests.replicator.restore.place import Commands, Place
from tests.replicator.restore.published import publish_groups, publish_watermarks, snapshot, watermarks

pytestmark = pytest.mark.integration

PATIENCE = timedelta(seconds=60)
PAUSE = 0.06  # seconds between two transactions, at most
PAIRS = 60
TIMES = 3
MANY_PAIRS, MANY_TIMES = 400, 40


@dataclass
class Pairs:
    """Two topics of the source: each transaction writes one record to either, with the same number."""

    place: Place
    topics: Sequence[str] = field(init=False)
    source: Cluster = field(init=False)
    moments: list[datetime] = field(default_factory=list)  # before each transaction
    committed: list[tuple[int, int]] = field(default_factory=list)  # offsets of each pair

    def __post_init__(self) -> None:
        self.source = Cluster(self.place.stack.brokers["a"])
        self.topics = [self.place.unique("orders"), self.place.unique("payments")]
        for topic in self.topics:
            self.source.create(topic)

    @property
    def egress(self) -> Config:
        return from_mapping(
            {
                **self.place.tables,
                "kafka": self.source.properties,
                "egress": {
                    "group_id": self.place.unique("egress"),
                    "heartbeat_interval": "1s",
                    "watermark_interval": "50ms",
                    "group_interval": "500ms",
                    "groups": [f"^{self.topics[0]}.*"],
                    "topics": {topic: {"max_segment_age": "1s"} for topic in self.topics},
                },
            }
        )

    def write(self, count: int, random: Random) -> None:
        producer = Producer(
            {**self.source.properties, **QUIET, "transactional.id": self.place.unique("writer"), "linger.ms": 0}
        )
        producer.init_transactions()
        pause = threading.Event()
        for _ in range(count):
            self.moments.append(datetime.now(UTC))
            number = len(self.committed)
            offsets: dict[str, int] = {}
            producer.begin_transaction()
            for topic in self.topics:
                producer.produce(
                    topic,
                    b"%d" % number,
                    partition=0,
                    on_delivery=partial(_delivered, offsets),
                )
                producer.flush()
                pause.wait(random.uniform(0, PAUSE / 4))
            producer.commit_transaction()
            self.committed.append((offsets[self.topics[0]], offsets[self.topics[1]]))
            pause.wait(random.uniform(0, PAUSE))

    def write_between_moments(self, pairs: int, moments: int, random: Random) -> None:
        """So many pairs, and more until so many settled ends are between them: on slow cores they are rare."""
        deadline = Deadline(PATIENCE)
        self.write(pairs, random)
        while len(found := self.spans()) < moments:
            assert not deadline.expired, found
            self.write(PAIRS // 3, random)

    def spans(self) -> Sequence[tuple[datetime, datetime]]:
        """From when to when a restore without split transactions has the same ends, of which each has others."""
        first: dict[Sequence[Sequence[int | None]], datetime] = {}
        for one in self.watermarks:
            found = [one.topics[topic] for topic in self.topics if topic in one.topics and one.topics[topic].settled]
            highs = tuple(topic.high for topic in found)
            if len(found) == len(self.topics) and any(high != (0,) for high in highs) and one.settled_at is not None:
                first.setdefault(highs, one.settled_at)
        return list(pairwise(first.values()))

    def commit(self, group: str, number: int) -> None:
        """The group has read everything before this pair."""
        offsets = self.committed[number]
        commit(
            self.source.properties,
            group,
            {TopicPartition(topic, 0): Committed(offsets[n], f"at {number}") for n, topic in enumerate(self.topics)},
        )

    def wait_for_group(self, group: str, number: int) -> None:
        def is_there() -> bool:
            stored = Generations(self.place.objects, groups_prefix("data", REGION))
            newest = stored.newest()
            if not newest:
                return False
            found = decode_group_snapshot(stored.read(newest)).groups.get(group)
            wanted = dict(zip(self.topics, self.committed[number], strict=True))
            return found is not None and {t: dict(c.items())[0].next_offset for t, c in found.topics.items()} == wanted

        assert wait_until(is_there, PATIENCE)

    def wait_for_archive(self) -> None:
        """Until egress says that everything is archived, markers included."""

        def is_there() -> bool:
            generations = self.watermarks
            found = None if not generations else generations[-1].topics
            return found is not None and all(found[topic].position == found[topic].high for topic in self.topics)

        assert wait_until(is_there, PATIENCE)

    def wait_until_settled(self) -> None:
        """Until the newest watermarks have every pair, and no transaction."""

        def is_there() -> bool:
            found = self.watermarks[-1].topics
            return all(
                found[topic].settled and (found[topic].high[0] or 0) > self.committed[-1][n]
                for n, topic in enumerate(self.topics)
            )

        assert wait_until(is_there, PATIENCE)

    @property
    def watermarks(self) -> Sequence[SourceWatermarks]:
        stored = Generations(self.place.objects, watermarks_prefix("data", REGION))
        return [decode_watermarks(stored.read(one.number)) for one in stored.stored()]

    def restored(self, name: str) -> list[list[int]]:
        """Numbers in the copies of both topics."""
        return [
            [int(record.value or b"") for record in self.place.restored(f"{topic}.{name}", 0)] for topic in self.topics
        ]


@pytest.fixture
def pairs(place: Place) -> Iterator[Pairs]:
    found = Pairs(place)
    with running_services() as start:
        start(build_egress(found.egress))
        yield found


def command(pairs: Pairs, at: datetime, name: str, *options: str) -> list[str]:
    return ["restore", *pairs.topics, "--rename", f"{{topic}}.{name}", "--at", at.isoformat(), *options]


def judge_times(pairs: Pairs, commands: Commands, times: int, unique: Callable[[str], str]) -> None:
    """Restores to any moment between settled ends, of which no two times have the same."""
    random, counts = Random(times), set()
    for number, (first, last) in enumerate(random.sample(pairs.spans(), times)):
        at = first + (last - first) * random.random()
        name = unique(f"at{number}")
        code, result = commands.json(*command(pairs, at, name, "--transactional"))
        assert code == 0, result
        orders, payments = pairs.restored(name)
        assert orders == payments == list(range(len(orders))), at
        begun = sum(moment <= at for moment in pairs.moments)
        assert len(orders) <= begun, "nothing that came later"
        counts.add(len(orders))
    assert len(counts) == times, "each moment has its own end"


def test_m25_no_transaction_is_split(pairs: Pairs, commands: Commands, unique: Callable[[str], str]) -> None:
    pairs.write_between_moments(PAIRS, TIMES, Random(1))
    pairs.wait_for_archive()
    assert any(found.settled_at for found in pairs.watermarks)
    judge_times(pairs, commands, TIMES, unique)


@pytest.mark.long
def test_no_transaction_is_split_at_many_times(pairs: Pairs, commands: Commands, unique: Callable[[str], str]) -> None:
    pairs.write_between_moments(MANY_PAIRS, MANY_TIMES, Random(2))
    pairs.wait_for_archive()
    judge_times(pairs, commands, MANY_TIMES, unique)


def test_a_group_continues_on_the_exact_record(pairs: Pairs, commands: Commands, unique: Callable[[str], str]) -> None:
    group, idle = f"{pairs.topics[0]}.billing", f"{pairs.topics[0]}.mails"
    pairs.write(20, Random(3))
    pairs.commit(group, 7)
    pairs.commit(idle, 0)
    pairs.wait_for_group(group, 7)
    pairs.wait_for_group(idle, 0)
    pairs.wait_until_settled()
    at = datetime.now(UTC)
    pairs.write(10, Random(4))
    pairs.commit(group, 25)
    pairs.wait_for_group(group, 25)
    pairs.wait_for_archive()

    name = unique("then")
    given = command(pairs, at, name, "--groups")
    code, plan = commands.json(*given, "--dry-run")
    assert (code, plan["moment"]["groups"]["positions"]) == (0, {group: 2, idle: 2}), plan
    assert plan["moment"]["unsettled"] == []
    code, text = commands.run(*given, "--dry-run")
    assert (code, f"as {REGION} was at {at.isoformat()}" in text, "no transaction is split" in text) == (0, True, True)
    assert "groups: 2 with 4 positions here, by snapshot" in text
    code, result = commands.json(*given)
    assert code == 0, result
    assert pairs.restored(name) == [list(range(20))] * 2
    assert {(one["group"], one["outcome"]) for one in result["groups"]} == {(group, "write"), (idle, "write")}
    assert next_records(pairs, group, name) == {7}
    assert next_records(pairs, idle, name) == {0}

    # generations are thinned meanwhile, and a consumer has gone on: nothing changes
    stored = Generations(pairs.place.objects, watermarks_prefix("data", REGION))
    kept = [stored.key(one.number) for one in stored.stored()]
    pairs.place.objects.delete_many(kept[2:-1])
    places = [TopicPartition(f"{topic}.{name}", 0) for topic in pairs.topics]
    commit(pairs.place.cluster.properties, group, {place: Committed(10**6, "") for place in places})
    code, again = commands.json(*given)
    assert (code, again["records"]) == (3, 0), again
    assert {(one["group"], one["outcome"]) for one in again["groups"]} == {(group, "ahead"), (idle, "same")}
    assert pairs.restored(name) == [list(range(20))] * 2


@pytest.mark.parametrize("where", [(), pytest.param(("--spark",), marks=pytest.mark.long)], ids=["here", "spark"])
def test_groups_of_every_partition(
    place: Place, commands: Commands, unique: Callable[[str], str], where: Sequence[str]
) -> None:
    """Also of one that is cut within a run, and of one without a record."""
    fill(place.objects, "orders", 2, 2)
    at, name, group = datetime(2026, 3, 4, tzinfo=UTC), unique("orders"), unique("billing")
    ends = (ROWS + 100, 7, 0)
    publish_watermarks(place.objects, 1, watermarks(at, {"orders": ends}, settled=True))
    publish_groups(place.objects, 1, snapshot(at, **{group: {"orders": {0: ROWS + 50, 1: 9, 2: 0}}}))
    given = ("restore", "orders", "--rename", f"orders={name}", "--at", (at + timedelta(days=1)).isoformat())
    code, result = commands.json(*given, "--groups", *where)
    assert code == 0, result
    assert [len(place.restored(name, partition)) for partition in (0, 1, 2)] == list(ends)
    assert {(one["partition"], one["outcome"], one["exactness"]) for one in result["groups"]} == {
        (0, "write", "exact"),
        (1, "write", "clamped"),
        (2, "write", "exact"),
    }


def test_options_that_contradict_it_are_refused(place: Place, commands: Commands) -> None:
    fill(place.objects, "orders", 1, 1)
    at = ("--at", "2026-03-04T12:00:00Z")
    for options, why in (
        (("--groups",), "--groups needs --at"),
        (("--transactional",), "--transactional needs --at"),
        ((*at, "--follow"), "--follow goes on"),
        ((*at, "--until", "2026-03-04T12:00:00Z"), "leave out --from and --until"),
        (at, "the archive has no watermarks"),
    ):
        code, text = commands.run("restore", "orders", *options)
        assert code == USAGE, text
        assert why in " ".join(text.replace("│", " ").split())


def _delivered(offsets: dict[str, int], _: object, message: Message) -> None:
    offsets[str(message.topic())] = int(message.offset() or 0)


def next_records(pairs: Pairs, group: str, name: str) -> set[int]:
    """What a consumer of the group at the target reads first, of each copy."""
    found: dict[str, int] = {}
    consumer = Consumer(
        {
            **pairs.place.cluster.properties,
            **QUIET,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    with closing(consumer):
        consumer.subscribe([f"{topic}.{name}" for topic in pairs.topics])

        def are_there() -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.setdefault(str(message.topic()), int(message.value() or b""))
            return len(found) == len(pairs.topics)

        assert wait_until(are_there, PATIENCE)
    return set(found.values())
