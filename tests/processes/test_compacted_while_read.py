"""The night: compaction merges and deletes what egress writes and ingress reads, and is killed in the middle of it."""

from __future__ import annotations

import io
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from infra.local.aws import s3_client
from tests.processes.flow import Flow
from tests.processes.harness import PREFIX, A
from tests.processes.traffic import EPOCH_MS, Draft

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = pytest.mark.integration

PATIENCE = timedelta(seconds=90)


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
        assert seen.value("quarantined_segments") == 2, "one of each topic: the other has nobody to be merged with"
        assert seen.value("compaction_failures") > 0
        assert seen.value("compaction_deleted_segments") > 0
        assert "not what they say" in str(ready)


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
