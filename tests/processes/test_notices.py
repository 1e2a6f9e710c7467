"""Notifications that the proxy repeats, shuffles and drops, as a real client of a real queue sees them."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from infra.local.aws import create_bucket_with_queue, s3_client, sqs_client
from tests.processes.notices import Dropped, Notices, Shuffled, Twice
from tests.processes.s3_proxy import S3Proxy, Stale, proxied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mypy_boto3_sqs.client import SQSClient

    from infra.local.stack import LocalStack

pytestmark = pytest.mark.integration

KEYS = [f"k{n}" for n in range(6)]


@pytest.fixture
def proxy(stack: LocalStack) -> Iterator[S3Proxy]:
    with proxied(stack.moto.endpoint_url) as running:
        yield running


@pytest.mark.parametrize(("fault", "copies"), [(None, 1), (Twice(), 2), (Shuffled(), 1), (Dropped(), 0)])
def test_copies(
    stack: LocalStack, proxy: S3Proxy, unique: Callable[[str], str], fault: Notices | None, copies: int
) -> None:
    bucket, queue = unique("bucket"), unique("queue")
    url = create_bucket_with_queue(stack.moto.endpoint_url, bucket, queue)
    with closing(s3_client(proxy.endpoint_url)) as s3, closing(sqs_client(proxy.endpoint_url)) as sqs:
        sqs.purge_queue(QueueUrl=url)
        for key in KEYS:
            s3.put_object(Bucket=bucket, Key=key, Body=b"x")
        if fault is not None:
            proxy.break_("ReceiveMessage", fault)
            first = bodies(sqs, url, 2)
            proxy.mend("ReceiveMessage")
        else:
            first = []
        seen = first + bodies(sqs, url, 6)
    assert {key: sum(f'"{key}"' in body for body in seen) for key in KEYS} == dict.fromkeys(KEYS, copies)


def bodies(sqs: SQSClient, url: str, turns: int) -> list[str]:
    return [
        message["Body"]
        for _ in range(turns)
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", ())
    ]


def test_a_stale_listing(stack: LocalStack, proxy: S3Proxy, unique: Callable[[str], str]) -> None:
    bucket = unique("bucket")
    with closing(s3_client(proxy.endpoint_url)) as s3:
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="old", Body=b"x")
        assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1
        proxy.break_("ListObjectsV2", Stale())
        s3.put_object(Bucket=bucket, Key="new", Body=b"x")
        assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1
        proxy.heal()
        assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 2
