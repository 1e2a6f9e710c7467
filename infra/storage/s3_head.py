"""What S3 says of an object without its content."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from infra.storage.aws import status
from infra.storage.s3_errors import translated


def head_of(client: Any, bucket: str, key: str, **arguments: Any) -> Any:
    """The answer to HeadObject; None when, and only when, there is no such object. Raises StoreUnavailable."""
    with translated("HeadObject", bucket, key):
        try:
            return client.head_object(Bucket=bucket, Key=key, **arguments)
        except ClientError as error:
            if status(error) != 404:
                raise
    # a response to HEAD has no body that says what was not found: the key, or the bucket
    with translated("HeadBucket", bucket):
        client.head_bucket(Bucket=bucket)
    return None
