"""Translates S3 errors to ours.

    404 NoSuchKey                  SegmentNotFound; no other error is
    412 on If-None-Match           SegmentExists, raised by the writer (`s3.py`)
    412 on If-Match                SegmentNotFound: that version is gone, raised by the reader (`s3_reader.py`)
    InvalidObjectState             ObjectFrozen, a StoreRefused that concerns one object
    needs an operator              StoreRefused, with the remedy: bucket, host, credentials, permission
    everything else                StoreUnavailable

None of the last three means that an object is absent, and all of their causes can be fixed while we wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
)
from urllib3.exceptions import HTTPError, NameResolutionError

from formats.errors import ObjectFrozen, SegmentNotFound, StoreRefused, StoreUnavailable
from infra.storage.aws import ASSUME_ROLE, advice_on_credentials, describe_error, error_code, status
from infra.storage.aws import FAILURES as CALL_FAILURES

FAILURES = (*CALL_FAILURES, HTTPError)
"""Everything that boto3 raises, also while a body is read."""

PERMISSIONS = {  # by operation; docs/rights.md has what each command asks for
    "PutObject": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "ListObjectsV2": "s3:ListBucket",
    "HeadBucket": "s3:ListBucket",
    "DeleteObject": "s3:DeleteObject",
    "DeleteObjects": "s3:DeleteObject",
    "RestoreObject": "s3:RestoreObject",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "GetBucketPolicy": "s3:GetBucketPolicy",
    "GetBucketVersioning": "s3:GetBucketVersioning",
    "GetBucketEncryption": "s3:GetEncryptionConfiguration",
    "GetPublicAccessBlock": "s3:GetBucketPublicAccessBlock",
    "GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration",
    "GetBucketNotificationConfiguration": "s3:GetBucketNotification",
    "GetBucketReplication": "s3:GetReplicationConfiguration",
}
_CREDENTIALS = frozenset(
    {
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
        "TokenRefreshRequired",
    }
)

_SKEWED = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_ELSEWHERE = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})


@contextmanager
def translated(operation: str, bucket: str, key: str = "") -> Iterator[None]:
    """Translate boto3's errors to ours. `operation`: name of the S3 API operation, as in the API documentation."""
    try:
        yield
    except FAILURES as error:
        raise translate(error, operation=operation, bucket=bucket, key=key) from error


def translated_pages(pages: Iterable[Any], operation: str, bucket: str) -> Iterator[Any]:
    """Pages of a listing, requested lazily, with boto3's errors translated to ours."""
    left = iter(pages)
    while True:
        with translated(operation, bucket):
            page = next(left, None)
        if page is None:
            return
        yield page


def translate(
    error: BaseException, *, operation: str, bucket: str, key: str = ""
) -> SegmentNotFound | StoreUnavailable:
    if isinstance(error, ClientError) and error_code(error) == "NoSuchKey":
        return SegmentNotFound(key)
    what = f"{operation} s3://{bucket}/{key}" if key else f"{operation} s3://{bucket}"
    advice = _advice(error, operation, bucket)
    if isinstance(error, ClientError) and error_code(error) == "InvalidObjectState":
        return ObjectFrozen(f"{what}: {describe_error(error)}; {advice}")
    if advice:
        return StoreRefused(f"{what}: {describe_error(error)}; {advice}")
    if isinstance(error, EndpointConnectionError | ConnectTimeoutError):
        advice = "; check the endpoint_url in the configuration, that the store runs, and the network to it"
    return StoreUnavailable(f"{what}: {describe_error(error)}{advice}")


def is_denied(error: StoreUnavailable) -> bool:
    """Whether a right is missing, and nothing else is wrong with the bucket or the credentials."""
    return isinstance(error.__cause__, ClientError) and is_denial(error.__cause__)


def is_denial(error: ClientError) -> bool:
    return error_code(error) in ("AccessDenied", "403")  # the latter of a response without a body


def _advice(error: BaseException, operation: str, bucket: str) -> str:
    """What an operator has to do; empty when the error may be temporary."""
    if advice := advice_on_credentials(error):
        return advice
    if isinstance(error, EndpointConnectionError) and isinstance(error.kwargs.get("error"), NameResolutionError):
        return "unknown host: correct the endpoint or the region, or this machine's DNS"
    if not isinstance(error, ClientError) or error.operation_name == ASSUME_ROLE:
        return ""
    code = error_code(error)
    if code == "NoSuchBucket" or (operation == "HeadBucket" and status(error) == 404):
        return f"the bucket {bucket} does not exist: create it, or correct the bucket or the endpoint"
    if code in _CREDENTIALS:
        return "repair the credentials, the region, or this machine's clock"
    if code in _SKEWED:
        return "set this machine's clock (NTP): S3 refuses a request whose time is 15 minutes off"
    if code in _ELSEWHERE or status(error) == 301:
        return f"the bucket {bucket} is in another region: set region_name{_region_of(error)}, or correct the bucket"
    if code == "InvalidObjectState":
        if tier := error.response.get("Error", {}).get("AccessTier"):  # of an object that a listing does not tell apart
            return (
                f"the object is in the tier {tier} of S3 Intelligent-Tiering: request its retrieval with `aws s3api "
                "restore-object`, which takes hours, and switch the archive tiers of the bucket's Intelligent-Tiering "
                "configuration off"
            )
        return (
            "the object is archived (Glacier, Deep Archive): `replicator restore --thaw` requests its retrieval, which "
            "takes hours"
        )
    if code.startswith("KMS") or "kms:" in str(error):  # a right that lacks is an AccessDenied that names it
        return (
            "allow kms:GenerateDataKey and kms:Decrypt on the bucket's or the configured KMS key to these credentials, "
            "and enable the key"
        )
    if status(error) == 403:
        permission = PERMISSIONS.get(operation, operation)
        hint = ""
        if operation in ("GetObject", "HeadObject"):
            hint = " and s3:ListBucket (without it S3 answers 403 where it means 404)"
        lock = " (with object_lock_mode also s3:PutObjectRetention)" if permission == "s3:PutObject" else ""
        return (
            f"allow {permission}{hint} on bucket {bucket} to these credentials{lock}; if expected_bucket_owner is set, "
            "see that the bucket is of that account"
        )
    return ""


def _region_of(error: ClientError) -> str:
    """` to 'eu-west-1'`, if S3 says where the bucket is."""
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = headers.get("x-amz-bucket-region") or error.response.get("Error", {}).get("Region")
    return f" to {str(region)!r}" if region else ""
