"""MirrorMaker 2 is stopped and replaced by this program under load, and the other way round: no record is lost or
doubled."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from bench import mirrormaker
from formats.messages.mirrormaker import OffsetSync
from infra.contracts.cluster import Committed, TopicPartition
from infra.local.stack import LocalStack
from replicator.client import MirrorClient
from tests.infra.kafka_groups import commit
from tests.processes import judge
from tests.processes.harness import A, B, Site
from tests.processes.traffic import KEEPS_EVERYTHING, create_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from infra.local.process import Process, Supervisor
    from tests.processes.harness import Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

PARTITIONS = 2
MORE = 400  # records that a program delivers before the other one follows
STARTS_WITHIN = timedelta(minutes=3)
STOPS_WITHIN = timedelta(minutes=1)
OFFSETS, SYNCS = f"mm2-offsets.{A}.internal", f"mm2-offset-syncs.{A}.internal"
EXACTLY_ONCE = {"exactly.once.source.support": "enabled", "dedicated.mode.enable.internal.rest": "true"}
"""So that it does not repeat records itself when it is stopped."""
QUICK = {
    "offset-syncs.topic.location": "target",
    "emit.checkpoints.interval.seconds": "1",
    "listeners": "http://localhost:0",
}


@pytest.fixture(scope="module")
def own_stack() -> Iterator[LocalStack]:
    """MirrorMaker 2's topics have names that only one test can use."""
    mirrormaker.class_path()  # fetched before anything runs
    with LocalStack(regions=(A, B)) as stack:
        yield stack


@pytest.fixture
def own_site(
    own_stack: LocalStack, supervisor: Supervisor, moved_metrics: set[str], unique: Callable[[str], str]
) -> Iterator[Site]:
    with Site(own_stack, supervisor, moved_metrics, unique("site")) as site:
        yield site


class Load:
    """Numbered records to each partition until its end, in part in transactions, whose markers are holes."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._plain = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
        self._whole = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}.load", "log_level": 0})
        self._topic, self._stop = topic, threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Load:
        self._whole.init_transactions(30)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._plain.close()
        self._whole.close()

    def _run(self) -> None:
        numbers = itertools.count()
        for turn in itertools.count():
            writer = self._whole if turn % 2 else self._plain
            if turn % 2:
                writer.begin_transaction()
            for number in itertools.islice(numbers, 20):
                writer.produce(self._topic, b"%d" % number, partition=number % PARTITIONS)
            assert writer.flush(30) == 0
            if turn % 2:
                writer.commit_transaction(30)
            if self._stop.wait(0.1):
                return


class Replaced:
    """The topic that MirrorMaker 2 and this program replicate in turn."""

    def __init__(self, site: Site) -> None:
        self.site, self.topic = site, f"{site.name}.t"
        self.target, self.group = f"{A}.{self.topic}", f"{site.name}.readers"
        create_topic(site.bootstrap(A), self.topic, PARTITIONS, KEEPS_EVERYTHING)
        properties = {"bootstrap.servers": site.bootstrap(A)}
        commit(properties, self.group, {TopicPartition(self.topic, p): Committed(3, "") for p in range(PARTITIONS)})
        self._numbers = itertools.count()
        self._ingress = itertools.count()

    def mirror_maker(self) -> Process:
        text = mirrormaker.properties(self.site.stack, {(A, B): f"{self.site.name}[.].*"}, **EXACTLY_ONCE, **QUICK)
        return mirrormaker.start(self.site.stack, f"mm2-{next(self._numbers)}", text)

    def ingress(self, *, adopt: bool) -> Worker:
        worker = self.site.ingress(
            f"ingress-{next(self._ingress)}", {"topic": self.topic, "replication_policy": "default"}
        )
        worker.write({**worker.tables, "groups": {"adopt": adopt, "interval": "1s"}})
        return worker

    def values(self, region: str, topic: str) -> Sequence[Sequence[bytes | None]]:
        logs = judge.read_topic(self.site.bootstrap(region), topic, PARTITIONS)
        return [[record.value for record in logs[p].records] for p in range(PARTITIONS)]

    def delivered(self) -> int:
        if self.target not in _topics(self.site):
            return 0
        return sum(map(len, self.values(B, self.target)))

    def wait_for_more(self) -> None:
        wanted = self.delivered() + MORE
        self.site.wait(f"{wanted} records", lambda: self.delivered() >= wanted, STARTS_WITHIN)

    def wait_for_all(self) -> None:
        wanted = self.values(A, self.topic)
        self.site.wait("all records", lambda: self.delivered() >= sum(map(len, wanted)), STARTS_WITHIN)
        assert self.values(B, self.target) == wanted

    def seed(self, worker: Worker) -> None:
        code, output = worker.run("checkpoints", "seed", f"{A}/{self.topic}", "--connect-offsets", OFFSETS, "--yes")
        assert code == 0, output

    def export(self, worker: Worker) -> tuple[int, str]:
        return worker.run("checkpoints", "export", f"{A}/{self.topic}", "--to", "connect-offsets", "--yes")

    def last_syncs(self) -> dict[int, OffsetSync]:
        with MirrorClient({"bootstrap.servers": self.site.bootstrap(B)}) as client:
            return {one.partition: one for one in client.offset_syncs(SYNCS) if one.topic == self.topic}

    def groups_problem(self, worker: Worker) -> str:
        return str(worker.readiness().get("problems", {}).get(f"groups of {A}", ""))


def test_each_continues_where_the_other_stopped(own_site: Site) -> None:
    site, scene = own_site, Replaced(own_site)
    egress = site.egress(
        "egress", {scene.topic: {}}, groups=[f"^{site.name}[.]readers"], group_interval="1s", heartbeat_interval="1s"
    ).start()
    with Load(site.bootstrap(A), scene.topic):
        theirs = scene.mirror_maker()
        scene.wait_for_more()
        site.wait("offset syncs of MirrorMaker 2", lambda: len(scene.last_syncs()) == PARTITIONS)
        for _ in range(2):
            theirs.stop(STOPS_WITHIN)
            written = scene.last_syncs()
            shy = scene.ingress(adopt=False)
            scene.seed(shy)
            shy.start()
            site.wait("its refusal", lambda: "groups.adopt = true" in scene.groups_problem(shy))  # noqa: B023 -- now
            scene.wait_for_more()
            site.stop(shy)
            assert scene.last_syncs() == written

            ours = scene.ingress(adopt=True).start()
            scene.wait_for_more()
            site.wait("offset syncs", lambda: _advanced(written, scene.last_syncs()))  # noqa: B023 -- called now
            code, output = scene.export(ours)
            assert (code, "Stop ingress first" in output) == (1, True), output
            site.stop(ours)
            code, output = scene.export(ours)
            assert (code, f"written to {OFFSETS}" in output) == (0, True), output

            theirs = scene.mirror_maker()
            scene.wait_for_more()
            code, output = scene.export(ours)
            assert (code, "the other program runs" in output) == (1, True), output
    scene.wait_for_all()
    theirs.stop(STOPS_WITHIN)
    site.stop(egress)


def _advanced(before: dict[int, OffsetSync], now: dict[int, OffsetSync]) -> bool:
    return all(now[p].downstream_offset > one.downstream_offset for p, one in before.items())


def _topics(site: Site) -> set[str]:
    return set(AdminClient({"bootstrap.servers": site.bootstrap(B), "log_level": 0}).list_topics(timeout=10).topics)
