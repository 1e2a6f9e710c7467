"""Two thousand partitions: in two processes of one egress, what their start asks of the store, and what they cost at
rest; the start of an ingress, with positions and without. And a thousand in one egress, of a topic without a record."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from io import BytesIO

import pytest
from confluent_kafka import Producer

from bench.server_log import ServerLog
from formats.footer import SegmentOrigin
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.segments import SegmentStore
from infra.local.aws import s3_client, sqs_client
from infra.local.coordinators import wait_for_coordinators
from infra.local.process import Supervisor
from infra.local.stack import LocalStack
from infra.storage.s3 import S3ObjectStore
from tests.ingress.world import records
from tests.processes.harness import A, B, Site, Worker
from tests.processes.judge import ends
from tests.processes.test_on_spark import tasks_of
from tests.processes.traffic import create_topic
from tests.processes.usage import Usage

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.cpu]

TOPICS, EACH, PROCESSES = 20, 100, 2
PARTITIONS = TOPICS * EACH
BESIDES = 20  # listings of a process that are not of a topic
SESSION_MS = 30_000
PER_TOPIC = 4  # of ingress: partitions, gaps, segments, begins
MOST_MIB = 2048
MOST_IDLE = 0.1  # of a core, of both processes
IDLE = 1_000  # partitions of one process
PATIENCE = timedelta(minutes=8)
SETTLED, MEASURED = timedelta(seconds=20), timedelta(seconds=30)


@pytest.fixture
def site(
    run_stack: Callable[..., AbstractContextManager[LocalStack]],
    moved_metrics: set[str],
    unique: Callable[[str], str],
) -> Iterator[Site]:
    """On a stack of its own: a broker that deletes as many partitions is busy for minutes."""
    with (
        run_stack(regions=(A, B)) as stack,
        closing(Supervisor(log=stack.log_dir / "processes.log")) as owner,
        Site(stack, owner, moved_metrics, unique("many")) as site,
    ):
        yield site


def test_their_start_and_their_rest(site: Site) -> None:
    topics = [f"{site.name}.{number}" for number in range(TOPICS)]
    for topic in topics:
        create_topic(site.bootstrap(A), topic, EACH)
    settle(site, A, topics, EACH)
    producer = Producer({"bootstrap.servers": site.bootstrap(A)})
    for topic in topics:
        producer.produce(topic, b"x" * 100, partition=EACH // 2)
    assert producer.flush(60) == 0
    requests = ServerLog(site.stack.log_dir / "moto.log")
    since, began = requests.position(), time.monotonic()
    egress = site.egress(
        "egress",
        {f"^{site.name}\\..*": {"max_segment_messages": 1}},
        processes=PROCESSES,
        session_ms=30_000,
        topic_refresh_interval="1m",
        lag_interval="10s",
    ).start()
    site.wait("a segment", lambda: bool(egress.logged("segment_stored")), PATIENCE)
    first_after, used = time.monotonic() - began, Usage.of_all(tasks_of(egress).values())
    begun, listed = len(egress.logged("partition_begins")), requests.requests(site.bucket, since)["LIST"]
    site.wait("every partition", lambda: len(egress.logged("partition_begins")) >= PARTITIONS, PATIENCE)
    site.wait("every segment", lambda: len(egress.logged("segment_stored")) >= TOPICS, PATIENCE)
    at_rest = resting([egress.pid, *tasks_of(egress).values()])
    print(
        f"the first segment after {first_after:.1f} s, {used.cpu_seconds:.1f} CPU-seconds of the processes, {begun} "
        f"begins and {listed} listings; memory {at_rest.rss_mib:.0f} MiB; at rest {at_rest.cpu_seconds:.1%} of a core"
    )
    assert begun < PARTITIONS / 2, "the first record waits for the starts of all partitions"
    assert listed <= PROCESSES * (TOPICS + BESIDES)
    assert at_rest.rss_mib < MOST_MIB
    assert at_rest.cpu_seconds < MOST_IDLE
    egress.stop()


def test_a_thousand_partitions_without_a_record(site: Site) -> None:
    create_topic(site.bootstrap(A), site.name, IDLE)
    settle(site, A, [site.name], IDLE)
    began = time.monotonic()
    egress = site.egress("egress", {site.name: {}}, topic_refresh_interval="1m", lag_interval="10s").start()
    site.wait("a partition", lambda: bool(egress.logged("partition_begins")), PATIENCE)
    first_after = time.monotonic() - began
    site.wait("every partition", lambda: len(egress.logged("partition_begins")) >= IDLE, PATIENCE)
    all_after, used = time.monotonic() - began, Usage.of(egress.pid)
    at_rest = resting([egress.pid])
    print(
        f"the first of {IDLE} partitions is read after {first_after:.1f} s, the last one after {all_after:.1f} s and "
        f"{used.cpu_seconds:.1f} CPU-seconds; at rest {at_rest.cpu_seconds:.1%} of a core, {at_rest.rss_mib:.0f} MiB"
    )
    assert at_rest.cpu_seconds < MOST_IDLE / 2
    egress.stop()


def test_a_start_of_ingress(site: Site) -> None:
    topics = [f"{site.name}.{number}" for number in range(TOPICS)]
    with closing(s3_client(site.stack.moto.endpoint_url)) as client:
        store = SegmentStore(S3ObjectStore(client, site.bucket), "data")
        for topic in topics:
            create_topic(site.bootstrap(B), f"{topic}.copy", EACH)
            for partition in range(EACH):
                fill(store, SourcePartition(A, topic, partition), 0)
        settle(site, B, [f"{topic}.copy" for topic in topics], EACH)
        # they are of long ago: moto takes most of its time to find one that is visible among thousands
        with closing(sqs_client(site.stack.moto.endpoint_url)) as queue:
            queue.purge_queue(QueueUrl=site.queue_url)
        pattern = {"topic": f"^{site.name}\\..*", "destination_topic": "{topic}.copy"}
        requests = ServerLog(site.stack.log_dir / "moto.log")
        listed = {}
        for what, wanted in (("without positions", PARTITIONS), ("with positions", 1)):
            since, began = requests.position(), time.monotonic()
            ingress = site.ingress(
                f"ingress-{wanted}",
                pattern,
                session_ms=SESSION_MS,
                topic_refresh_interval="1m",
                relist_interval="10m",
            ).start()
            site.wait("a segment", partial(has_delivered, ingress, 1), PATIENCE)
            first_after, used = time.monotonic() - began, Usage.of(ingress.pid)
            site.wait("all", partial(has_delivered, ingress, wanted), PATIENCE)
            listed[what] = requests.requests(site.bucket, since)["LIST"]
            print(
                f"{what}: the first segment is delivered after {first_after:.1f} s and {used.cpu_seconds:.1f} "
                f"CPU-seconds, all {wanted} after {time.monotonic() - began:.1f} s; {listed[what]} listings, "
                f"{Usage.of(ingress.pid).rss_mib:.0f} MiB"
            )
            # the process before has left the group, so this one does not wait for the end of its session
            assert wanted == PARTITIONS or first_after < SESSION_MS / 1000 / 2
            ingress.stop()
            if wanted == PARTITIONS:  # the second start has one segment to deliver
                fill(store, SourcePartition(A, topics[-1], EACH // 2), 10)
    assert max(listed.values()) <= PER_TOPIC * TOPICS + BESIDES, listed


def settle(site: Site, region: str, topics: Collection[str], each: int) -> None:
    """Until the cluster is as users find it: each partition has its leader, groups and transactions their coordinators.
    A broker works on that for seconds after thousands of partitions were created, which is no start of ours."""
    bootstrap = site.bootstrap(region)
    wait_for_coordinators(bootstrap, f"{site.name}.first")
    for topic in topics:
        ends(bootstrap, topic, each, settles_within=PATIENCE.total_seconds())


def has_delivered(ingress: Worker, segments: int) -> bool:
    return len(ingress.logged("segment_delivered")) >= segments


def fill(store: SegmentStore, source: SourcePartition, start: int) -> None:
    """With a segment of ten records."""
    segment = Segment(source, 0, OffsetRange(start, start + 9))
    with BytesIO() as body:
        writer = ParquetFormat().create(body)
        writer.write([records(range(start, start + 10))])
        writer.close(segment, SegmentOrigin(created_at=datetime.now(UTC), writer="test", source_partition_count=EACH))
        store.store(segment, body, body.tell())


def resting(pids: Collection[int]) -> Usage:
    """CPU-seconds a second, and memory, of all of them together, once they have settled. Raises ProcessLookupError when
    one of them ends."""
    time.sleep(SETTLED.total_seconds())  # nothing says that a process is at rest
    before, began = Usage.of_all(pids), time.monotonic()
    time.sleep(MEASURED.total_seconds())
    after, seconds = Usage.of_all(pids), time.monotonic() - began
    return Usage((after.cpu_seconds - before.cpu_seconds) / seconds, after.rss_mib)
