"""`replicator repair-segment` against an S3 server: where the copy is, what is printed, and the exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from formats.segment import format_key
from tests.infra.archive.test_segment_repair import OTHER_ROWS, SOUND, WANTED, body_damaged, encoded
from tests.infra.enforced_aws import enforced_aws

pytestmark = pytest.mark.integration

HERE, THERE = "segments-here", "segments-there"
KEY = format_key("data", WANTED)
ROOT = Path(__file__).resolve().parents[2]


def run_replicator(*arguments: str) -> tuple[int, str]:
    """The exit code, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "replicator", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "word", "AWS_REGION": "us-east-1"},
    )
    return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr


@dataclass
class Buckets:
    s3: Any
    config: Path

    def run(self, *arguments: str) -> tuple[int, str]:
        return run_replicator("repair-segment", KEY, *arguments, "--config", str(self.config))

    def put(self, bucket: str, data: bytes) -> None:
        self.s3.put_object(Bucket=bucket, Key=KEY, Body=data)

    def body(self, key: str = KEY) -> bytes:
        return bytes(self.s3.get_object(Bucket=HERE, Key=key)["Body"].read())

    def stored_keys(self) -> set[str]:
        return {one["Key"] for one in self.s3.list_objects_v2(Bucket=HERE).get("Contents", ())}


@pytest.fixture
def buckets(tmp_path: Path) -> Iterator[Buckets]:
    with enforced_aws(tmp_path) as aws:
        s3 = aws.admin("s3")
        for bucket in (HERE, THERE):
            s3.create_bucket(Bucket=bucket)
        config = tmp_path / "replicator.toml"
        config.write_text(
            f'region = "{WANTED.source.region}"\n[s3]\nbucket = "{HERE}"\nendpoint_url = "{aws.endpoint_url}"\n'
        )
        yield Buckets(s3, config)


def test_a_damaged_segment_comes_back_from_another_bucket(buckets: Buckets) -> None:
    buckets.put(HERE, body_damaged(SOUND))
    code, output = buckets.run("--from", THERE)
    assert code == 1, output  # there is no copy
    buckets.put(THERE, encoded(WANTED, OTHER_ROWS))
    code, output = buckets.run("--from", THERE)
    assert code == 3, output  # the damaged footer says another digest
    assert buckets.body() == body_damaged(SOUND)
    buckets.put(THERE, SOUND)
    code, output = buckets.run("--from", f"s3://{THERE}/data", "--dry-run", "--json")
    assert code == 0, output
    assert json.loads(output)["action"] == "would repair"
    assert buckets.body() == body_damaged(SOUND)
    code, output = buckets.run("--from", THERE, "--json")
    assert code == 0, output
    report = json.loads(output)
    assert (report["state"], report["action"]) == ("damaged", "repaired")
    assert buckets.body() == SOUND
    (aside,) = [key for key in buckets.stored_keys() if "/set-aside/" in key]
    assert buckets.body(aside) == body_damaged(SOUND)
    code, output = buckets.run("--from", THERE)
    assert (code, "sound: nothing" in output) == (0, True), output


def test_a_missing_segment_comes_back_from_a_file(buckets: Buckets, tmp_path: Path) -> None:
    file = tmp_path / "copy.parquet"
    file.write_bytes(SOUND)
    code, output = buckets.run("--from", str(file))
    assert code == 0, output
    assert "was missing: repaired" in output
    assert buckets.body() == SOUND
    assert run_replicator("repair-segment", "no-key", "--from", THERE, "--config", str(buckets.config))[0] == 2
