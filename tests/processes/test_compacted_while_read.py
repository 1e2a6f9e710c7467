"""The night: compaction merges and deletes what egress writes and ingress reads, and is killed in the middle of it."""

from __future__ import annotations

import io
import os
import secrets
import signal
import threading
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from infra.local.aws import s3_client
from tests.formats.sample_records import rows_of
from tests.processes.below import Found, marked, spark_workers
from tests.processes.flow import Flow
from tests.processes.harness import PREFIX, A
from tests.processes.s3_proxy import Hang, Slow, proxied
from tests.processes.traffic import EPOCH_MS, Draft

if TYPE_CHECKING:
    from tests.processes.harness import Site, Worker
    from tests.processes.s3_proxy import S3Proxy

pytestmark = pytest.mark.integration

PATIENCE = timedelta(seconds=90)
KILLS = 3


@pytest.mark.long
def test_nothing_is_lost_and_nothing_comes_twice(site: Site) -> None:
    with Flow(site, partitions=3) as flow:
        bad = plant(site, f"{site.name}.bad")
        egress = site.egress("egress", {flow.topic: {"max_segment_messages": 50}}).start()
        ingress = site.ingress("ingress", {"topic": flow.topic}).start()
        compaction = site.compaction("compaction").start()
        flow.produce(drafts(0, 600))
        site.wait("a merge", lambda: bool(compaction.logged("segments_merged")), PATIENCE)
        compaction.kill()
        bad |= plant(site, f"{site.name}.bad-too")
        words = flow.produce(drafts(600, 600))
        ingress.kill()
        ingress.start()
        compaction.start()
        flow.wait_for(words, PATIENCE)
        flow.wait_for_archive()
        egress.stop()
        site.wait(
            "one segment for each partition",
            lambda: all(len(ranges) == 1 for ranges in site.ranges(flow.topic).values()),
            PATIENCE,
        )
        site.wait("a whole run", lambda: compaction.metrics().value("compaction_runs") > 0, PATIENCE)
        seen, ready = compaction.metrics(), compaction.readiness()
        site.stop(ingress, compaction)
        assert compaction.logged("compaction_next"), "it tells when it runs again"
        flow.judge_target(rewinds=0)
        flow.judge_archive()
        assert site.keys().keys() >= bad, "what is corrupt is left alone"
        assert seen.value("quarantined_segments") == 2, "one of each topic: the other has no other to be merged with"
        assert seen.value("compaction_failures") > 0
        assert seen.value("compaction_deleted_segments") > 0
        assert "not what they say" in str(ready)


@pytest.mark.long
def test_a_whole_night(site: Site) -> None:
    """Live traffic; Spark's workers and the compaction itself are killed at random, and gc goes on beside it."""
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")
    random = Random(seed)
    upstream = site.stack.moto.endpoint_url
    with proxied(upstream) as reading, proxied(upstream) as working, Flow(site, partitions=3) as flow:
        working.break_("GetObject", Slow(0.05))  # so that there always is a plan in somebody's hands
        egress = site.egress("egress", {flow.topic: {"max_segment_messages": 100}}).start()
        ingress = site.ingress("ingress", {"topic": flow.topic}, endpoint_url=reading.endpoint_url).start()
        compaction = site.compaction("compaction", endpoint_url=working.endpoint_url).start()
        night = Night(site, compaction, site.gc("gc"), random)
        with flow.traffic(seed=seed, most=12) as traffic:
            flow.wait_for_more()
            delete_what_is_read(site, flow, reading)
            site.wait("what is gone is planned again", lambda: bool(ingress.logged("segment_vanished")), PATIENCE)
            for _ in range(KILLS):
                night.kill_a_worker()
                night.kill_a_worker()
                night.collect_garbage()
                night.kill()
                assert night.collect_garbage() == 0, "a dead owner's lease keeps no run waiting"
                compaction.start()
            words = traffic.finish()
        flow.wait_for(words, 2 * PATIENCE)
        flow.wait_for_archive()
        stored = egress.metrics().value("egress_segments")
        egress.stop()
        site.wait(
            "one segment for each partition",
            lambda: all(len(ranges) == 1 for ranges in site.ranges(flow.topic).values()),
            2 * PATIENCE,
        )
        site.stop(ingress, compaction)
        verdicts = flow.judge_target(rewinds=0)
        flow.judge_archive()
        judge_records(site, flow)
        assert compaction.kills == KILLS
        assert any("Lost task" in str(line["said"]) for line in compaction.logged("spark_output")), "none was at work"
        assert not marked(str(site.folder / "tmp"))
        cleaned = sum(int(str(line["count"])) for line in night.gc.logged("segments_deleted"))
    print(f"{stored:.0f} segments became {flow.partitions}; gc ended with {night.codes}, deleted {cleaned}; {verdicts}")
    assert stored > 10 * flow.partitions


@dataclass
class Night:
    """What happens to the compaction of a site."""

    site: Site
    compaction: Worker
    gc: Worker
    random: Random
    codes: list[int] = field(default_factory=list)  # of gc

    def kill_a_worker(self) -> None:
        self._pass_time()
        found: list[Found] = []

        def at_work() -> bool:
            found[:] = spark_workers(str(self.site.folder / "tmp"))
            return bool(found)

        self.site.wait("a worker of Spark", at_work, PATIENCE)
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(self.random.choice(found).pid, signal.SIGKILL)

    def kill(self) -> None:
        self._pass_time()
        self.compaction.kill()

    def collect_garbage(self) -> int:
        """Its exit code: 1 when compaction was at it."""
        self.gc.start(environment={})
        code = self.gc.wait(PATIENCE)
        assert code in {0, 1}, self.gc.explain(f"ended with {code}")
        self.codes.append(code)
        return code

    def _pass_time(self) -> None:
        threading.Event().wait(self.random.uniform(0, 2))


def delete_what_is_read(site: Site, flow: Flow, reading: S3Proxy) -> None:
    """Ingress asks for segments, and gets no answer until all that there are now were merged and deleted."""
    hang = Hang()
    reading.break_("GetObject", hang)
    site.wait("ingress reads", lambda: reading.met(hang) > 0, PATIENCE)
    there = segment_keys(site, flow)
    site.wait("they are gone", lambda: not there & segment_keys(site, flow), 2 * PATIENCE)
    reading.heal()


def segment_keys(site: Site, flow: Flow) -> set[str]:
    stored = site.keys()
    return {key for key in stored if key.startswith(f"{PREFIX}/{A}/{flow.topic}/")}


def judge_records(site: Site, flow: Flow) -> None:
    """The archive's one segment of each partition, decoded, is the source."""
    source = flow.source()
    with closing(s3_client(site.stack.moto.endpoint_url)) as s3:
        for key in segment_keys(site, flow):
            log = source[int(key.split("/")[3])]
            body = s3.get_object(Bucket=site.bucket, Key=key)["Body"].read()
            rows = rows_of(pq.read_table(io.BytesIO(body)).to_batches())
            assert [row["offset"] for row in rows] == list(log.offsets)
            for row, record in zip(rows, log.records, strict=True):
                headers = tuple(row["headers"] or ())
                assert (row["key"], row["value"], headers, row["timestamp"]) == (*record[:3], record.timestamp[1])


def drafts(first: int, count: int) -> list[Draft]:
    numbers = range(first, first + count)
    return [Draft(p, b"k%d" % (n % 7), b"%d" % n * 20, (), EPOCH_MS + n) for p in range(3) for n in numbers]


def plant(site: Site, topic: str) -> set[str]:
    """Two segments of a topic of their own that are none; their keys."""
    keys = {f"{PREFIX}/{A}/{topic}/0/0/{first:020d}-{first + 9:020d}" for first in (0, 10)}
    with closing(s3_client(site.stack.moto.endpoint_url)) as s3:
        for key in keys:
            s3.put_object(Bucket=site.bucket, Key=key, Body=io.BytesIO(b"no segment"))
    return keys
