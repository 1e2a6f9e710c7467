"""Objects of classes that S3 does not give out at once (Glacier Flexible Retrieval, Deep Archive): asked for, and told
when they can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from infra.contracts.storage import Thaw
from infra.runtime.crash_points import Step, durable
from infra.storage.aws import error_code
from infra.storage.s3_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

TIER = "Standard"  # hours; the quicker one costs more, and is not there for Deep Archive


class S3Cold:
    """A `ColdStore`: one bucket. Thread safe, as the client is."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client: Any = client
        self._bucket = bucket

    def state(self, key: str) -> Thaw:
        with translated("HeadObject", self._bucket, key):
            said = self._client.head_object(Bucket=self._bucket, Key=key).get("Restore", "")
        if 'ongoing-request="true"' in said:
            return Thaw.UNDER_WAY
        return Thaw.READABLE if said else Thaw.FROZEN

    def thaw(self, key: str, days: int) -> None:
        request = {"Days": days, "GlacierJobParameters": {"Tier": TIER}}
        with durable(Step.THAW), translated("RestoreObject", self._bucket, key):
            try:
                self._client.restore_object(Bucket=self._bucket, Key=key, RestoreRequest=request)
            except ClientError as error:
                if error_code(error) != "RestoreAlreadyInProgress":
                    raise
