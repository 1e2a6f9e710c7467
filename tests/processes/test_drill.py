"""`replicator drill` as cron would run it: a good day, into a cluster that it starts and ends, and one with damage."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from infra.local.aws import s3_client
from tests.processes.flow import Flow
from tests.processes.harness import A, B, Metrics, to_toml
from tests.processes.traffic import EPOCH_MS, Draft

if TYPE_CHECKING:
    from pathlib import Path

    from tests.processes.harness import Site

pytestmark = pytest.mark.integration

SEED = 11


@pytest.mark.guard
@pytest.mark.long  # its decisions: tests/replicator/test_drill_on_fakes.py
def test_a_good_day_and_a_bad_one(site: Site, moved_metrics: set[str]) -> None:
    history = site.folder / "drills.jsonl"
    with Flow(site, partitions=2) as flow:
        egress = site.egress("egress", {flow.topic: {}}).start()
        with flow.traffic(seed=SEED) as traffic:
            site.wait("segments", lambda: len(site.keys()) > 3)
            traffic.finish()
        flow.wait_for_archive()
        archived = sum(len(log.records) for log in flow.source().values())
        egress.stop()
        flow.produce([Draft(0, b"k", b"not archived any more", (), EPOCH_MS)])
        good = drilled(site, flow.topic, code=0)
        assert (good["good"], good["partitions"], good["differences"]) == (True, 2, [])
        assert good["records"] == archived
        assert good["behind_seconds"] > 0
        assert good["behind_unknown"] == ""
        moved_metrics.update(metrics_of(site).moved())

        damage(site, flow.topic)
        bad = drilled(site, flow.topic, "--into", str(file_of(site, B)), code=3)
        assert (bad["good"], any("corrupt" in what for what in bad["differences"])) == (False, True), bad
        assert bad["bad"] == 1
        assert (bad["behind_seconds"], bad["behind_unknown"]) == (
            None,
            "1 partitions would not be back, or not as they were",
        )
    assert [json.loads(line) for line in history.read_text(encoding="utf-8").splitlines()] == [good, bad]
    moved_metrics.update(metrics_of(site).moved())


def metrics_of(site: Site) -> Metrics:
    text = (site.folder / "drill.prom").read_text(encoding="utf-8")
    assert "replicator_stopped_partitions" not in text, "that is a service's to say"
    return Metrics(text)


def file_of(site: Site, region: str) -> Path:
    file = site.folder / f"drill-{region}.toml"
    file.write_text(
        to_toml({"region": A, "kafka": {"bootstrap.servers": site.bootstrap(region)}, "s3": site.s3()}),
        encoding="utf-8",
    )
    return file


def damage(site: Site, topic: str) -> None:
    """One bit of the first segment."""
    key = next(key for key in sorted(site.keys()) if f"/{topic}/" in key and "_control" not in key)
    with closing(s3_client(site.stack.moto.endpoint_url)) as s3:
        body = bytearray(s3.get_object(Bucket=site.bucket, Key=key)["Body"].read())
        body[len(body) // 3] ^= 1
        s3.put_object(Bucket=site.bucket, Key=key, Body=bytes(body))


def drilled(site: Site, topic: str, *more: str, code: int) -> dict[str, Any]:
    names = ["--history", str(site.folder / "drills.jsonl"), "--metrics-file", str(site.folder / "drill.prom")]
    command = [sys.executable, "-m", "replicator", "drill", topic, "--config", str(file_of(site, A)), "--json", *names]
    done = subprocess.run(
        [*command, *more], capture_output=True, text=True, check=False, env=site.environment, timeout=120
    )
    assert done.returncode == code, done.stderr + done.stdout
    return dict(json.loads(done.stdout))
