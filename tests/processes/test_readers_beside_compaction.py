"""Readers of the archive before, during and after compaction, ingress and Spark's source: every record, once."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

from infra.local.aws import create_bucket_with_queue
from infra.spark.driver import SparkDriver, SparkSettings
from replicator.spark_source.source import register
from tests.integration.on_spark import QUICK
from tests.processes import judge
from tests.processes.flow import RUN, Flow
from tests.processes.harness import A, B, to_toml
from tests.processes.s3_proxy import Hang, S3Proxy, Slow, proxied
from tests.processes.traffic import EPOCH_MS, Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.processes.harness import Site, Worker

pytestmark = pytest.mark.integration

PATIENCE = timedelta(seconds=120)
PARTITIONS = 2


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    monkeypatch.setenv("SECRET", "test")
    properties = {**QUICK, "spark.sql.shuffle.partitions": "1", "spark.sql.session.timeZone": "UTC"}
    with closing(SparkDriver(SparkSettings(master="local[1]", properties=properties))) as driver:
        session = SparkSession(driver.context)
        register(session)
        yield session
        session.stop()


@pytest.mark.long
def test_every_reader_gets_everything_once(site: Site, spark: SparkSession) -> None:
    endpoint_url = site.stack.moto.endpoint_url
    with proxied(endpoint_url) as working, proxied(endpoint_url) as reading, Flow(site, partitions=PARTITIONS) as flow:
        egress = site.egress("egress", {flow.topic: {"max_segment_messages": 100}}).start()
        before = ingress(site, flow, "before", reading).start()
        compaction = site.compaction("compaction", endpoint_url=working.endpoint_url, delete_grace="30s")
        flow.produce(drafts(0, 1000))
        flow.wait_for_archive()
        judge_spark(spark, site, flow)

        # during: merged segments lie beside the small ones, of which none is deleted yet
        compaction.start()
        site.wait("something merged", lambda: max(levels(site, flow)) > 0, PATIENCE)
        working.break_("DeleteObjects", Hang())  # by now it has its lease
        assert min(levels(site, flow)) == 0
        judge_spark(spark, site, flow)
        reading.break_("GetObject", Slow(0.1))  # so that small ones go while it reads them
        during = ingress(site, flow, "during", reading).start()
        reading.asked("GetObject")
        site.wait("it reads", lambda: bool(reading.asked("GetObject")), PATIENCE)
        working.heal()
        words = flow.produce(drafts(1000, 1000))
        flow.wait_for_archive()
        site.wait("deletes", lambda: bool(compaction.logged("segments_deleted")), PATIENCE)
        judge_spark(spark, site, flow)
        egress.stop()
        site.wait("one segment for each partition", lambda: is_single(site, flow), PATIENCE)

        # after: there is nothing but the merged ones
        reading.heal()
        after = ingress(site, flow, "after", reading).start()
        judge_spark(spark, site, flow)
        for worker in (before, during, after):
            judge_ingress(site, flow, worker, words)
        site.stop(before, during, after, compaction)
        flow.judge_archive()


def ingress(site: Site, flow: Flow, name: str, reading: S3Proxy) -> Worker:
    """One of its own: group, topics and queue."""
    queue = f"{site.name}-{name}"
    create_bucket_with_queue(site.stack.moto.endpoint_url, site.bucket, queue)
    return site.ingress(
        name,
        {"topic": flow.topic, "destination_topic": target(flow, name)},
        endpoint_url=reading.endpoint_url,
        queue=queue,
        group_id=f"{site.name}.{name}",
        segment_events_topic=f"{site.name}.{name}.events",
        checkpoint_topic=f"{site.name}.{name}.checkpoints",
    )


def target(flow: Flow, name: str) -> str:
    return f"{flow.topic}.{name}"


def judge_ingress(site: Site, flow: Flow, worker: Worker, words: object) -> None:
    """Exactly what the source holds, in order, nothing twice."""
    topic, source = target(flow, worker.name), flow.source()

    def read() -> dict[int, judge.Log]:
        return dict(judge.read_topic(site.bootstrap(B), topic, PARTITIONS))

    wanted = {p: len(log.records) for p, log in source.items()}
    site.wait(
        f"all records in {topic}",
        lambda: {p: len(log.records) for p, log in read().items()} == wanted,
        PATIENCE,
    )
    for p, log in read().items():
        judge.judge_target(source[p].records, log.records, rewinds=0, run=RUN)


def judge_spark(spark: SparkSession, site: Site, flow: Flow) -> None:
    """What is archived now, and maybe what came meanwhile: a beginning of the source, without a gap."""
    ends = {p: judge.archive_end(ranges) for p, ranges in site.ranges(flow.topic).items()}
    file = site.folder / "spark.toml"
    s3 = {**site.s3(), "access_key_id": "test", "secret_access_key": "${SECRET}"}
    file.write_text(to_toml({"region": A, "s3": s3}), encoding="utf-8")
    options: dict[str, Any] = {"config": str(file), "topic": flow.topic}
    frame = spark.read.format("segments").options(**options).load()
    found: dict[int, list[tuple[int, bytes | None]]] = {p: [] for p in range(PARTITIONS)}
    for row in frame.select("partition", "offset", "value").orderBy("partition", "offset").collect():
        found[row.partition].append((row.offset, None if row.value is None else bytes(row.value)))
    for p, log in flow.source().items():
        source = [(offset, record.value) for offset, record in zip(log.offsets, log.records, strict=True)]
        assert found[p] == source[: len(found[p])], json.dumps([p, len(found[p]), len(source)])
        assert len(found[p]) >= sum(offset < ends[p] for offset in log.offsets), "what was archived before it read"


def levels(site: Site, flow: Flow) -> set[int]:
    stored = site.keys()
    return {int(key.split("/")[4]) for key in stored if f"/{flow.topic}/" in key and "_control" not in key}


def is_single(site: Site, flow: Flow) -> bool:
    return all(len(ranges) == 1 for ranges in site.ranges(flow.topic).values())


def drafts(first: int, count: int) -> list[Draft]:
    numbers = range(first, first + count)
    return [Draft(p, b"k%d" % (n % 7), b"%d" % n, (), EPOCH_MS + n) for p in range(PARTITIONS) for n in numbers]
