"""An application of Kafka Streams itself, the demo of Kafka's own jars, goes on in the other region: its counts
continue, and no word is counted twice."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from formats.policies.topic_configs import DEFAULT_EXCLUDES
from infra.contracts.cluster import TopicPartition
from infra.contracts.groups import GroupIsActive
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.group_commits import KafkaGroupCommits
from infra.kafka.cluster.groups import KafkaGroups
from infra.local.stack import LocalStack
from tests.infra.cluster import Cluster
from tests.processes import word_count
from tests.processes.harness import PATIENCE, A, B, Site
from tests.processes.test_failover import parsed
from tests.processes.traffic import KEEPS_EVERYTHING, Draft, create_topic, produce_all
from tests.processes.word_count import INPUT, OUTPUT, inner_topics_of

if TYPE_CHECKING:
    from infra.contracts.cluster import Committed
    from infra.local.process import Process, Supervisor
    from tests.processes.harness import Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

DONE, DIFFERENCES = 0, 3
WORDS = ("all", "streams", "lead", "to", "kafka")
SENTENCES = 4
STOPS_WITHIN = timedelta(seconds=30)
STREAMS_METADATA_BYTES = 9
SESSION_MS = "9000"  # longer than a pause between two polls and the wait after a take-over together


@pytest.fixture(scope="module")
def word_stack() -> Iterator[LocalStack]:
    """The demo's topics have names that only one test can use."""
    word_count.class_path()  # fetched before anything runs
    with LocalStack(regions=(A, B)) as stack:
        yield stack


@pytest.fixture
def word_site(
    word_stack: LocalStack, supervisor: Supervisor, moved_metrics: set[str], unique: Callable[[str], str]
) -> Iterator[Site]:
    for region in (A, B):
        create_topic(word_stack.brokers[region].bootstrap, OUTPUT, 1, KEEPS_EVERYTHING)
    create_topic(word_stack.brokers[A].bootstrap, INPUT, 1, KEEPS_EVERYTHING)
    with Site(word_stack, supervisor, moved_metrics, unique("site")) as site:
        yield site
    for region in (A, B):
        cluster = Cluster(word_stack.brokers[region])
        for topic in KafkaAdmin(cluster.properties).topics():
            if topic in (INPUT, OUTPUT):
                cluster.delete(topic)


class Application:
    """Of word counts, with the input of region a."""

    def __init__(self, site: Site, name: str) -> None:
        self.site, self.name = site, f"{site.name}-{name}"
        self.changelog, self.repartition = inner_topics_of(self.name)
        self.inner = f"^{self.name}-.*-(changelog|repartition)$"

    def start(self, region: str, protocol: str) -> Process:
        return word_count.start(self.site.stack, region, self.name, protocol)

    def write(self, region: str, words: Sequence[str], times: int) -> None:
        now_ms = int(time.time() * 1000)
        drafts = [Draft(0, b"k", " ".join(words).encode(), (), now_ms + n) for n in range(times)]
        produce_all(self.site.bootstrap(region), INPUT, drafts)

    def counts(self, region: str) -> list[tuple[str, int]]:
        """What it has written, in order."""
        messages = Cluster(self.site.stack.brokers[region]).messages(TopicPartition(OUTPUT, 0))
        return [((m.key() or b"").decode(), struct.unpack(">q", m.value() or b"")[0]) for m in messages]

    def committed(self, region: str) -> Mapping[TopicPartition, Committed]:
        properties = {"bootstrap.servers": self.site.bootstrap(region), "log_level": "0"}
        places = [TopicPartition(topic, 0) for topic in (INPUT, self.repartition)]
        return KafkaGroups(properties, properties).committed(self.name, places)

    def has_read(self, region: str) -> bool:
        """Everything, and committed it."""
        cluster = Cluster(self.site.stack.brokers[region])
        found = self.committed(region)
        return len(found) == 2 and all(one.next_offset == cluster.end(place) for place, one in found.items())

    def egress(self) -> Worker:
        return self.site.egress(
            f"egress-{self.name}",
            {INPUT: {}, self.inner: {}},
            heartbeat_interval="1s",
            watermark_interval="1s",
            groups=[self.name],
            group_interval="1s",
        ).start()

    def ingress(self, *, keeps_offsets: bool) -> Worker:
        inner = {"topic": self.inner, "replication_policy": "identity"}
        sources: list[dict[str, Any]] = [
            {"topic": INPUT, "replication_policy": "identity"},
            {**inner, "offsets": "preserve"} if keeps_offsets else inner,
        ]
        kafka = {"consumer": {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": "500"}}
        return self.site.ingress(
            f"ingress-{self.name}",
            *sources,
            kafka=kafka,
            preserve_wait="1s",
            config_properties_exclude=list(DEFAULT_EXCLUDES),  # the changelog is compacted here, too
        ).start()


def plan_of(worker: Worker) -> dict[str, Any]:
    """Empty while it cannot be made yet."""
    _, text = worker.run("failover", "plan", "--json")
    return parsed(text) if "{\n" in text else {}


def test_its_counts_continue(word_site: Site) -> None:
    """Names and offsets are kept, so nothing is missing; a new instance restores its counts from the changelog here."""
    site, app = word_site, Application(word_site, "app")
    running = app.start(A, "classic")
    app.write(A, WORDS, SENTENCES)
    site.wait("it has counted", lambda: app.has_read(A), PATIENCE)
    running.stop(STOPS_WITHIN)
    assert dict(app.counts(A)) == dict.fromkeys(WORDS, SENTENCES)
    at_a = app.committed(A)
    assert {len(one.metadata) for one in at_a.values()} == {4 * STREAMS_METADATA_BYTES // 3}  # base64

    egress, ingress = app.egress(), app.ingress(keeps_offsets=True)
    site.wait("a plan that lacks nothing", lambda: ingress.run("failover", "plan")[0] == DONE, PATIENCE)
    egress.stop()
    plan = plan_of(ingress)
    [found] = plan["streams"]
    assert found == {"group": app.name, "topics": [app.changelog, app.repartition], "missing": []}
    assert [one["verdict"] for one in plan["groups"][app.name]] == ["exact", "exact"]
    code, text = ingress.run("failover", "execute")
    assert code == DONE, text
    ingress.stop()
    assert {place: (one.next_offset, one.metadata) for place, one in app.committed(B).items()} == {
        place: (one.next_offset, one.metadata) for place, one in at_a.items()
    }

    running = app.start(B, "classic")
    app.write(B, WORDS[:2], 1)
    site.wait("it counts here", lambda: len(app.counts(B)) >= 2 and app.has_read(B), PATIENCE)
    running.stop(STOPS_WITHIN)
    assert app.counts(B) == [(word, SENTENCES + 1) for word in WORDS[:2]]


def test_the_streams_protocol_is_named_with_its_remedy(word_site: Site) -> None:
    """The group of an instance that runs under KIP-1071 is not moved, and nothing of it is overwritten; the remedy that
    the plan names works."""
    site, app = word_site, Application(word_site, "newer")
    running = app.start(A, "streams")
    app.write(A, WORDS, SENTENCES)
    site.wait("it has counted", lambda: app.has_read(A), PATIENCE)
    at_a = app.committed(A)
    properties = {"bootstrap.servers": site.bootstrap(A), "log_level": "0"}
    with pytest.raises(GroupIsActive):
        KafkaGroupCommits(properties).commit(app.name, at_a)
    egress, ingress = app.egress(), app.ingress(keeps_offsets=False)
    site.wait("the application", lambda: bool(plan_of(ingress).get("streams")), PATIENCE)

    def missing(*, is_moved: bool = False) -> list[str]:
        found = plan_of(ingress)
        assert (app.name in found["groups"]) is is_moved
        return [what for one in found["streams"] if one["group"] == app.name for what in one["missing"]]

    protocol, offsets = missing()
    assert 'group.protocol = "classic"' in protocol
    assert app.changelog in offsets
    code, text = ingress.run("failover", "plan")
    assert (code, f"group {app.name}: it is a share group or one of the streams protocol" in text) == (
        DIFFERENCES,
        True,
    )

    running.stop(STOPS_WITHIN)
    classic = app.start(A, "classic")
    app.write(A, WORDS, 1)
    site.wait("it goes on", lambda: app.has_read(A) and app.committed(A) != at_a, PATIENCE)
    classic.stop(STOPS_WITHIN)
    assert app.counts(A)[-len(WORDS) :] == [(word, SENTENCES + 1) for word in WORDS]
    site.wait("its group", lambda: app.name in plan_of(ingress)["groups"], PATIENCE)
    assert len(missing(is_moved=True)) == 1
    site.stop(egress, ingress)
