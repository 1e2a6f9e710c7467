"""Objects of archive storage classes (Glacier Flexible Retrieval, Deep Archive): requests their retrieval and checks
whether they can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from formats.errors import SegmentNotFound
from infra.contracts.storage import Thaw
from infra.runtime.crash_points import Step, durable
from infra.storage.aws import error_code
from infra.storage.s3_errors import translated
from infra.storage.s3_head import head_of

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

TIER = "Standard"  # hours; the faster Expedited tier costs more and is not available for Deep Archive


class S3Cold:
    """A `ColdStore`: one bucket. Thread safe, as the client is."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client: Any = client
        self._bucket = bucket

    def state(self, key: str) -> Thaw:
        head = head_of(self._client, self._bucket, key)
        if head is None:
            raise SegmentNotFound(key)
        restore = head.get("Restore", "")
        if 'ongoing-request="true"' in restore:
            return Thaw.UNDER_WAY
        return Thaw.READABLE if restore else Thaw.FROZEN

    def thaw(self, key: str, days: int) -> None:
        request = {"Days": days, "GlacierJobParameters": {"Tier": TIER}}
        with durable(Step.THAW), translated("RestoreObject", self._bucket, key):
            try:
                self._client.restore_object(Bucket=self._bucket, Key=key, RestoreRequest=request)
            except ClientError as error:
                if error_code(error) != "RestoreAlreadyInProgress":
                    raise
