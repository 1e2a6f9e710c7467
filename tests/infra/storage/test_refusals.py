"""What S3 refuses, on the wire: each refusal is one line with what, where, why and what to do."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import pytest

from formats.errors import StoreRefused
from infra.local.aws import s3_client
from infra.local.stack import LocalStack
from infra.storage.aws import AwsCredentials
from infra.storage.s3 import S3ObjectStore, make_s3_client
from tests.infra.faulty_s3 import Answer, FaultyS3

pytestmark = pytest.mark.integration

KEY = "data/here/orders/0/0/00000000000000000000-00000000000000000009"
SECRET = "planted-secret-key"


def put(store: S3ObjectStore) -> None:
    store.put_new(KEY, io.BytesIO(b"body"), 4)


def read(store: S3ObjectStore) -> None:
    store.open(KEY).read()


def listed(store: S3ObjectStore) -> None:
    list(store.list("data/"))


@dataclass(frozen=True)
class Refusal:
    operation: str
    answer: Answer
    call: Callable[[S3ObjectStore], None]
    remedy: str


def _denied(action: str, resource: str) -> str:
    """As AWS says it."""
    return (
        f"User: arn:aws:sts::123456789012:assumed-role/egress/i-1 is not authorized to perform: {action} on resource: "
        f"{resource} because no identity-based policy allows the {action} action"
    )


KMS_KEY = "arn:aws:kms:us-east-1:123456789012:key/1234"
REFUSALS: Mapping[str, Refusal] = {
    "a clock that is wrong": Refusal(
        "PutObject",
        Answer(
            403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large."
        ),
        put,
        "set this machine's clock (NTP): S3 refuses a request whose time is 15 minutes off",
    ),
    "a bucket in another region, by a redirect": Refusal(
        "PutObject",
        Answer(301, "PermanentRedirect", "The bucket must be addressed using the specified endpoint.", "eu-west-1"),
        put,
        "the bucket {bucket} is in another region: set region_name to 'eu-west-1', or correct the bucket",
    ),
    "a bucket in another region, by a signature": Refusal(
        "ListObjectsV2",
        Answer(
            400, "AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'eu-west-1'", "eu-west-1"
        ),
        listed,
        "the bucket {bucket} is in another region: set region_name to 'eu-west-1', or correct the bucket",
    ),
    "a bucket in another region, which S3 does not name": Refusal(
        "PutObject",
        Answer(400, "IllegalLocationConstraintException", "incompatible for the region specific endpoint"),
        put,
        "the bucket {bucket} is in another region: set region_name, or correct the bucket",
    ),
    "a key that may not encrypt": Refusal(
        "PutObject",
        Answer(403, "AccessDenied", _denied("kms:GenerateDataKey", KMS_KEY)),
        put,
        "allow kms:GenerateDataKey and kms:Decrypt on the bucket's or the configured KMS key to these credentials",
    ),
    "a key that may not decrypt": Refusal(
        "GetObject",
        Answer(403, "AccessDenied", _denied("kms:Decrypt", KMS_KEY)),
        read,
        "allow kms:GenerateDataKey and kms:Decrypt on the bucket's or the configured KMS key to these credentials",
    ),
    "a key that is disabled": Refusal(
        "PutObject",
        Answer(400, "KMS.DisabledException", f"{KMS_KEY} is disabled."),
        put,
        "and enable the key",
    ),
    "a right that is missing": Refusal(
        "PutObject",
        Answer(403, "AccessDenied", _denied("s3:PutObject", "arn:aws:s3:::bucket")),
        put,
        "allow s3:PutObject on bucket {bucket} to these credentials",
    ),
    "a wrong secret key": Refusal(
        "PutObject",
        Answer(403, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature"),
        put,
        "repair the credentials",
    ),
    "a token that has ended": Refusal(
        "GetObject", Answer(400, "ExpiredToken", "The provided token has expired."), read, "repair the credentials"
    ),
    "a bucket that does not exist": Refusal(
        "PutObject",
        Answer(404, "NoSuchBucket", "The specified bucket does not exist"),
        put,
        "the bucket {bucket} does not exist: create it, or correct the bucket",
    ),
}


@pytest.fixture
def wire(stack: LocalStack) -> Iterator[FaultyS3]:
    with closing(FaultyS3(stack.moto.endpoint_url)) as proxy:
        yield proxy


@pytest.mark.parametrize("what", REFUSALS)
def test_a_refusal_is_one_line_with_place_reason_and_remedy(
    what: str, stack: LocalStack, wire: FaultyS3, unique: Callable[[str], str]
) -> None:
    refusal, bucket = REFUSALS[what], unique("bucket")
    with closing(s3_client(stack.moto.endpoint_url)) as owner:
        owner.create_bucket(Bucket=bucket)
        owner.put_object(Bucket=bucket, Key=KEY, Body=b"there") if refusal.call is read else None
    credentials = AwsCredentials(access_key_id="AKID", secret_access_key=SECRET)
    client = make_s3_client(
        endpoint_url=wire.endpoint_url, region_name="us-east-1", credentials=credentials, attempts=1
    )
    with closing(client):
        wire.fail(refusal.operation, *[refusal.answer] * 3)
        with pytest.raises(StoreRefused) as caught:
            refusal.call(S3ObjectStore(client, bucket))
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"{refusal.operation} s3://{bucket}")
    assert f"{refusal.answer.status} {refusal.answer.code}: {refusal.answer.message}" in line
    assert refusal.remedy.format(bucket=bucket) in line
    assert SECRET not in line
