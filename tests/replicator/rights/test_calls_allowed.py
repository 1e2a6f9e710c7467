"""The calls that a command really makes are those of its printed policy: of S3, in moto."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import Any

import boto3
import botocore.session
import pytest
from moto import mock_aws

from compaction.heartbeat import sending_heartbeats
from infra.runtime.lifecycle import SystemClock
from infra.storage import aws, clients
from replicator.config import Config
from replicator.config.load import from_mapping
from replicator.rights.config import policies_of
from replicator.rights.table import ROLES
from replicator.services.compaction import Compaction, in_process
from replicator.services.retention import Retention

HERE, SOURCE = "eu-west-1", "us-east-1"
KEYS = {"access_key_id": "a", "secret_access_key": "s", "region_name": HERE}
BY_NAME = {role.name: role for role in ROLES}
ACTIONS = {
    **dict.fromkeys(("PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"), "s3:PutObject"),
    **dict.fromkeys(("GetObject", "HeadObject"), "s3:GetObject"),
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "DeleteObjects": "s3:DeleteObject",
    "ListObjectsV2": "s3:ListBucket",
    "HeadBucket": "s3:ListBucket",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
}
Calls = set[tuple[str, str]]  # action and resource


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    found: Calls = set()
    new_session = aws.new_session

    def asked(**call: Any) -> None:
        params, operation = call["params"], call["model"].name
        bucket = f"arn:aws:s3:::{params['Bucket']}"
        keys = (
            [params["Key"]] if "Key" in params else [one["Key"] for one in params.get("Delete", {}).get("Objects", ())]
        )
        found.update((ACTIONS[operation], f"{bucket}/{key}") for key in keys)
        if not keys:
            found.add((ACTIONS[operation], bucket))

    def observed(profile: str | None = None) -> botocore.session.Session:
        session = new_session(profile)
        session.register("provide-client-params.s3", asked)
        return session

    monkeypatch.setattr(clients, "new_session", observed)
    with mock_aws():
        s3: Any = boto3.client("s3", aws_access_key_id="a", aws_secret_access_key="s", region_name=HERE)
        s3.create_bucket(Bucket="ours", CreateBucketConfiguration={"LocationConstraint": HERE})
        yield found


def config(region: str) -> Config:
    """Of `HERE`, for the archive of `region`."""
    return from_mapping(
        {
            "region": HERE,
            "s3": {"bucket": "ours", **KEYS},
            "compaction": {"jobs": [{"name": "nightly", "region": region, "cron": "0 1 * * *", "owner": True}]},
            "retention": {"owner": True, "region": region, "topics": {"orders": {"max_age": "400d"}}},
        }
    )


def denied(role: str, settings: Config, calls: Collection[tuple[str, str]]) -> Collection[tuple[str, str]]:
    statements = policies_of(BY_NAME[role], settings)["s3"]["Statement"]
    return {
        (action, resource)
        for action, resource in calls
        if not any(
            action in one["Action"] and any(fnmatchcase(resource, each) for each in one["Resource"])
            for one in statements
        )
    }


@pytest.mark.parametrize("region", [HERE, SOURCE], ids=["own archive", "another region's"])
def test_compact(calls: Calls, region: str) -> None:
    settings = config(region)
    with ExitStack() as opened:
        compaction = opened.enter_context(Compaction(settings, execute=in_process(settings, opened)))
        with sending_heartbeats(compaction.heartbeats, compaction.owner, ["nightly"], SystemClock()):
            for _ in range(2):  # the second removes what the first left of itself
                compaction.compact()
    below = f"arn:aws:s3:::ours/data/{HERE}/_control/v1"
    puts = {resource for action, resource in calls if action == "s3:PutObject"}
    assert f"{below}/probe" in puts
    assert any(one.startswith(f"{below}/compaction-runs/") for one in puts)
    assert any(one.startswith(f"{below}/heartbeats/") for one in puts)
    assert denied("compact", settings, calls) == set()


@pytest.mark.parametrize("region", [HERE, SOURCE], ids=["own archive", "another region's"])
def test_gc(calls: Calls, region: str) -> None:
    settings = config(region)
    with Retention(settings) as retention:
        retention.collect()
        retention.clean()
    assert ("s3:PutObject", f"arn:aws:s3:::ours/data/{HERE}/_control/v1/probe") in calls
    assert denied("gc", settings, calls) == set()
