"""S3 and SQS of the embedded stack: dummy credentials, and a bucket that sends notifications to a queue."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypedDict

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.literals import EventType
    from mypy_boto3_s3.type_defs import NotificationConfigurationTypeDef, QueueConfigurationTypeDef
    from mypy_boto3_sqs.client import SQSClient

REGION: Final = "us-east-1"


class Credentials(TypedDict):
    """Arguments of `boto3.client`. The environment is neither read nor changed."""

    aws_access_key_id: str
    aws_secret_access_key: str
    region_name: str


CREDENTIALS: Final[Credentials] = {
    "aws_access_key_id": "test",
    "aws_secret_access_key": "test",
    "region_name": REGION,
}
AWS_VARIABLES: Final[Mapping[str, str]] = {
    "AWS_ACCESS_KEY_ID": CREDENTIALS["aws_access_key_id"],
    "AWS_SECRET_ACCESS_KEY": CREDENTIALS["aws_secret_access_key"],
    "AWS_DEFAULT_REGION": REGION,
}
"""The embedded S3's credentials, for services and for users."""
EVENTS: Final[tuple[EventType, ...]] = ("s3:ObjectCreated:*", "s3:ObjectRemoved:*")


def bucket_of(region: str) -> str:
    """The bucket that a region of the embedded stack has."""
    return f"archive-{region}"


def queue_of(region: str) -> str:
    """The queue that gets the notifications of `bucket_of(region)`."""
    return f"{bucket_of(region)}-events"


def direct_hosts() -> str:
    """Value of `NO_PROXY` with which no proxy of the environment stands before this machine."""
    return ",".join(filter(None, [os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), "127.0.0.1"]))


def local_config() -> Config:
    """No proxy, few and quick retries: the server is on this machine."""
    return Config(proxies={}, retries={"mode": "standard", "total_max_attempts": 3}, s3={"addressing_style": "path"})


def s3_client(endpoint_url: str) -> S3Client:
    """A client of the embedded S3; the caller closes it."""
    return boto3.client("s3", endpoint_url=endpoint_url, config=local_config(), **CREDENTIALS)


def sqs_client(endpoint_url: str) -> SQSClient:
    """A client of the embedded SQS; the caller closes it."""
    return boto3.client("sqs", endpoint_url=endpoint_url, config=local_config(), **CREDENTIALS)


def create_bucket_with_queue(endpoint_url: str, bucket: str, queue: str, prefix: str = "") -> str:
    """Create `bucket` and `queue`, with a notification for every object created or removed below `prefix`, and the
    queue's policy that lets the bucket send. Returns the queue's URL.

    May be called again: the bucket, the queue and the notifications of other queues stay, those of this queue and its
    policy are replaced. As with the real service, each call sends an `s3:TestEvent`.
    moto rejects bucket names of fewer than three letters, and sends two messages (`Put` and
    `CompleteMultipartUpload`) for one multipart upload.
    """
    s3 = s3_client(endpoint_url)
    sqs = sqs_client(endpoint_url)
    try:
        _make_bucket(s3, bucket)
        queue_url = sqs.create_queue(QueueName=queue)["QueueUrl"]
        queue_arn = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = json.dumps(_lets_send(bucket, queue_arn))
        sqs.set_queue_attributes(QueueUrl=queue_url, Attributes={"Policy": policy})
        _notify(s3, bucket, queue_arn, prefix)  # behind the policy: the real service tests whether it may send
    finally:
        s3.close()
        sqs.close()
    return queue_url


def _make_bucket(s3: S3Client, bucket: str) -> None:
    try:
        s3.create_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") != "BucketAlreadyOwnedByYou":
            raise


def _lets_send(bucket: str, queue_arn: str) -> Mapping[str, object]:
    """Policy of the queue, as `infra/deploy/aws/target-region.yaml` has it. moto sends without."""
    partition, account = queue_arn.split(":")[1], queue_arn.split(":")[4]
    statement = {
        "Sid": "NotificationsOfTheBucket",
        "Effect": "Allow",
        "Principal": {"Service": "s3.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {
            "StringEquals": {"aws:SourceAccount": account},
            "ArnEquals": {"aws:SourceArn": f"arn:{partition}:s3:::{bucket}"},
        },
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


def _notify(s3: S3Client, bucket: str, queue_arn: str, prefix: str) -> None:
    present = s3.get_bucket_notification_configuration(Bucket=bucket)
    ours: QueueConfigurationTypeDef = {"QueueArn": queue_arn, "Events": EVENTS}
    if prefix:
        ours["Filter"] = {"Key": {"FilterRules": [{"Name": "prefix", "Value": prefix}]}}
    others = [one for one in present.get("QueueConfigurations", []) if one["QueueArn"] != queue_arn]
    wanted: NotificationConfigurationTypeDef = {
        "QueueConfigurations": [*others, ours],
        "TopicConfigurations": present.get("TopicConfigurations", []),
        "LambdaFunctionConfigurations": present.get("LambdaFunctionConfigurations", []),
    }
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=wanted)
