"""The templates as stacks on moto: what S3, SQS, IAM and CloudWatch have afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote_plus

import pytest
from botocore.exceptions import ClientError

from tests.infra.deploy import on_moto
from tests.infra.deploy.on_moto import NotKnown, deploy
from tests.infra.deploy.stacks import OTHER, REGION, TRUST, deployed
from tests.infra.deploy.template import Template
from tests.infra.enforced_aws import ACCOUNT, EnforcedAws

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnforcedAws]:
    with deployed(tmp_path_factory.mktemp("aws")) as running:
        yield running


def test_buckets(aws: EnforcedAws) -> None:
    s3 = aws.admin("s3")
    for bucket in ("ours", "theirs"):
        assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
        assert set(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values()) == {True}
        (rule,) = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
        assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    rules = {rule["ID"]: rule for rule in s3.get_bucket_lifecycle_configuration(Bucket="ours")["Rules"]}
    assert rules["incomplete-uploads"]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    assert rules["noncurrent-versions"]["NoncurrentVersionExpiration"]["NoncurrentDays"] == 30
    assert rules["large-objects"]["Transitions"][0]["StorageClass"] == "STANDARD_IA"


def test_a_bucket_that_locks(aws: EnforcedAws) -> None:
    """Its objects may be locked one by one; the bucket locks none by itself."""
    parameters = {"BucketName": "locked", "ArchiveRegion": REGION, "ObjectLock": "true", **TRUST}
    deploy(aws, Template("source-region", parameters, stack="locked"))
    s3 = aws.admin("s3")
    found = s3.get_object_lock_configuration(Bucket="locked")["ObjectLockConfiguration"]
    assert found == {"ObjectLockEnabled": "Enabled"}
    until = datetime.now(UTC) + timedelta(days=1)
    s3.put_object(Bucket="locked", Key="k", Body=b"x", ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=until)
    assert s3.head_object(Bucket="locked", Key="k")["ObjectLockMode"] == "GOVERNANCE"
    version = s3.head_object(Bucket="locked", Key="k")["VersionId"]
    with pytest.raises(ClientError, match="AccessDenied"):
        s3.delete_object(Bucket="locked", Key="k", VersionId=version)


def test_replication(aws: EnforcedAws) -> None:
    """But for the filter, which moto forgets: tests/infra/deploy/test_templates.py has it."""
    found = aws.admin("s3").get_bucket_replication(Bucket="ours")["ReplicationConfiguration"]
    (rule,) = found["Rules"]
    assert rule["Status"] == "Enabled"
    assert rule["Destination"]["Bucket"] == "arn:aws:s3:::theirs"
    role = aws.admin("iam").get_role(RoleName=found["Role"].rpartition("/")[2])["Role"]
    assert role["Arn"] == found["Role"]


def test_notifications_arrive_in_the_queue(aws: EnforcedAws) -> None:
    """Of the source's archive only; what cannot be understood goes to the dead-letter queue."""
    sqs = aws.admin("sqs", OTHER)
    url = sqs.get_queue_url(QueueName="theirs-events")["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    redrive = json.loads(attributes["RedrivePolicy"])
    assert redrive["deadLetterTargetArn"] == f"arn:aws:sqs:{OTHER}:{ACCOUNT}:theirs-events-dead"
    assert json.loads(attributes["Policy"])["Statement"][0]["Action"] == "sqs:SendMessage"
    s3 = aws.admin("s3")
    for key in (f"data/{REGION}/t/0/0/1-2", f"data/{OTHER}/t/0/0/1-2"):
        s3.put_object(Bucket="theirs", Key=key, Body=b"x")
    keys = [
        unquote_plus(record["s3"]["object"]["key"]) for body in drained(sqs, url) for record in body.get("Records", ())
    ]
    assert set(keys) == {f"data/{REGION}/t/0/0/1-2"}


def drained(sqs: Any, url: str) -> Iterator[Any]:
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        for message in messages:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            yield json.loads(message["Body"])


def test_roles_and_alarms(aws: EnforcedAws) -> None:
    names = {role["RoleName"] for role in aws.admin("iam").list_roles()["Roles"]}
    assert f"source-{REGION}-egress" in names
    assert f"target-{OTHER}-ingress" in names
    assert f"compaction-{REGION}-gc" in names
    alarms = aws.admin("cloudwatch").describe_alarms()["MetricAlarms"]
    assert {one["MetricName"] for one in alarms} == {
        *("OperationsFailedReplication", "ReplicationLatency", "NumberOfObjects")
    }
    there = aws.admin("cloudwatch", OTHER).describe_alarms()["MetricAlarms"]
    assert {one["MetricName"] for one in there} == {
        *("ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage")
    }


def test_a_property_that_nothing_applies_fails(aws: EnforcedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {kind: dict(rows) for kind, rows in on_moto.KNOWN.items()}
    del known["AWS::S3::Bucket"]["OwnershipControls"]
    monkeypatch.setattr(on_moto, "KNOWN", known)
    with pytest.raises(NotKnown, match="nothing applies OwnershipControls of AWS::S3::Bucket"):
        deploy(aws, Template("source-region", {"BucketName": "another", "ArchiveRegion": REGION}, stack="another"))
