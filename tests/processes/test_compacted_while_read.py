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

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = pytest.mark.integration

PATIENCE = timedelta(seconds=90)


def test_nothing_is_lost_and_nothing_comes_twice(site: Site) -> None:
    with Flow(site, partitions=3) as flow:
        bad = plant(site, f"{site.name}.bad")
        egress = site.egress("egress", {flow.topic: {"max_segment_messages": 1000}}).start()
        ingress = site.ingress("ingress", {"topic": flow.topic}).start()
        compaction = site.compaction("compaction").start()
        with flow.traffic(seed=7) as traffic:
            for kill in range(2):
                merged = len(compaction.logged("segments_merged"))
                site.wait("a merge", lambda before=merged: len(compaction.logged("segments_merged")) > before)  # type: ignore[misc]
                compaction.kill()
                if kill:
                    ingress.kill()
                    ingress.start()
                compaction.start()
            words = traffic.finish()
        flow.wait_for(words, PATIENCE)
        flow.wait_for_archive()
        egress.stop()
        site.wait("one segment for each partition", lambda: all(len(r) == 1 for r in site.ranges(flow.topic).values()))
        site.wait("a whole run", lambda: compaction.metrics().value("compaction_runs") > 0)
        seen = compaction.metrics()
        ready = compaction.readiness()
        for worker in (ingress, compaction):
            worker.stop()
        flow.judge_target(rewinds=0)
        flow.judge_archive()
        assert site.keys().keys() >= bad, "what is corrupt is left alone"
        assert seen.value("quarantined_segments") == len(bad)
        assert seen.value("compaction_deleted_segments") > 0
        assert str(ready).count("not what they say") == 1


def plant(site: Site, topic: str) -> set[str]:
    """Two segments of a topic of their own that are none; their keys."""
    keys = {f"{PREFIX}/{A}/{topic}/0/0/{first:020d}-{first + 9:020d}" for first in (0, 10)}
    with closing(s3_client(site.stack.moto.endpoint_url)) as s3:
        for key in keys:
            s3.put_object(Bucket=site.bucket, Key=key, Body=io.BytesIO(b"no segment"))
    return keys
