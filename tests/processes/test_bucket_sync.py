"""Bucket to bucket: killed and started again, the copy is the same, and objects of others are not touched."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from formats.control.keys import is_heartbeat
from infra.local.aws import create_bucket_with_queue, s3_client
from tests.processes.flow import Flow
from tests.processes.harness import PATIENCE, PREFIX, A
from tests.processes.s3_proxy import Slow, proxied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.processes.harness import Site

pytestmark = [pytest.mark.integration, pytest.mark.long]

SEED = 13
DIFFERENCES = 3
THEIRS = {f"{PREFIX}/b/t/0/0/{0:020d}-{9:020d}": b"of another region", "elsewhere/x": b"of no region"}


def test_segments_cross_from_bucket_to_bucket(site: Site) -> None:
    endpoint, other, queue = site.stack.moto.endpoint_url, f"{site.name}-other", f"{site.name}-other-queue"
    create_bucket_with_queue(endpoint, other, queue)
    with proxied(endpoint) as slow, Flow(site) as flow, closing(s3_client(endpoint)) as s3:
        for key, body in THEIRS.items():
            s3.put_object(Bucket=other, Key=key, Body=body)
        s3.put_object(Bucket=site.bucket, Key=f"{PREFIX}/b/t/0/0/{0:020d}-{5:020d}", Body=b"not ours to send")
        sync = site.sync("sync", other, endpoint_url=slow.endpoint_url).start()
        egress = site.egress("egress", {flow.topic: {}}).start()
        ingress = site.ingress("ingress", {"topic": flow.topic}, bucket=other, queue=queue).start()
        with flow.traffic(seed=SEED) as traffic:
            for _ in range(2):
                slow.break_("GetObject", Slow(0.2))  # so that it is killed amid copies
                flow.wait_for_more()
                sync.kill()
                slow.heal()
                sync.start()
            words = traffic.finish()
        flow.wait_for(words)
        flow.wait_for_archive()
        site.stop(egress, ingress)
        gone = min(ours(site.keys()))
        s3.delete_object(Bucket=site.bucket, Key=gone)  # nothing is deleted over there
        kept = ours(site.keys())
        site.wait("all copied", lambda: kept.items() <= site.keys(other).items())
        sync.stop()
        there = site.keys(other)
        assert ours(there).keys() == kept.keys() | {gone}
        assert {key: s3.get_object(Bucket=other, Key=key)["Body"].read() for key in THEIRS} == THEIRS
        assert {key for key in there if not key.startswith(f"{PREFIX}/{A}/")} == THEIRS.keys()
        flow.judge_target(rewinds=0)


def test_a_bad_copy_is_named_and_never_overwritten(site: Site) -> None:
    """Of the same size as the good one, put by another tool: neither its existence nor its size shows it."""
    endpoint, other = site.stack.moto.endpoint_url, f"{site.name}-other"
    name = f"{A}/t/0/0/{0:020d}-{9:020d}"
    key, good, bad = f"{PREFIX}/{name}", b"the right bytes", b"the wrong bytes"
    with closing(s3_client(endpoint)) as s3:
        s3.create_bucket(Bucket=other)
        s3.put_object(Bucket=site.bucket, Key=key, Body=good)
        s3.put_object(Bucket=other, Key=key, Body=bad)
        once = site.sync("once", other, once=True).start()
        assert once.wait(PATIENCE) == DIFFERENCES
        sync = site.sync("sync", other).start()
        site.wait("the problem", lambda: name in sync.readiness().get("problems", {}).get("sync", ""))
        assert sync.readiness()["ready"] is False
        assert s3.get_object(Bucket=other, Key=key)["Body"].read() == bad
        s3.delete_object(Bucket=other, Key=key)
        site.wait("the good one copied", lambda: bool(sync.readiness().get("ready")))
        assert s3.get_object(Bucket=other, Key=key)["Body"].read() == good
        sync.stop()
        assert once.start().wait(PATIENCE) == 0


def test_objects_in_clear_are_refused_and_counted(site: Site) -> None:
    """`sync` has no use for the key, which does not exist: copies are the bytes that are stored."""
    endpoint, other = site.stack.moto.endpoint_url, f"{site.name}-other"
    name = f"{A}/t/0/0/{0:020d}-{9:020d}"
    refuses = {"key": "kms", "kms_key_id": "arn:aws:kms:us-east-1:123456789012:key/k", "clear_objects": "refuse"}
    with closing(s3_client(endpoint)) as s3:
        s3.create_bucket(Bucket=other)
        s3.put_object(Bucket=site.bucket, Key=f"{PREFIX}/{name}", Body=b"in clear")
        sync = site.sync("sync", other)
        sync.tables = {**sync.tables, "encryption": refuses}
        sync.start()
        site.wait("counted", lambda: sync.metrics().value("sync_clear_objects", topic="t") > 0)
        code, text = sync.run("sync", "--once")
        assert code == 1
        assert f'refused by encryption.clear_objects = "refuse" ({name}): find out who wrote them' in text
        sync.stop()
        assert f"{PREFIX}/{name}" not in site.keys(other)


def ours(keys: Mapping[str, str]) -> dict[str, str]:
    """Those of the sender's region but its heartbeats, of which only the last is copied."""
    own = {key: etag for key, etag in keys.items() if key.startswith(f"{PREFIX}/{A}/")}
    return {key: etag for key, etag in own.items() if not is_heartbeat(key.removeprefix(f"{PREFIX}/"))}
