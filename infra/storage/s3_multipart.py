"""Incomplete multipart uploads, neither completed nor aborted: a crash leaves them behind, and their parts cost
money."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from infra.contracts.storage import UploadInfo
from infra.storage.aws import error_code
from infra.storage.s3_errors import translated, translated_pages

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


class S3Uploads:
    """An `UploadStore`: one bucket. Thread safe, as the client is."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client: Any = client
        self._bucket = bucket

    def list(self, prefix: str) -> Iterator[UploadInfo]:
        pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix)
        for page in translated_pages(pages, "ListMultipartUploads", self._bucket):
            for item in page.get("Uploads", ()):
                initiated_at = item["Initiated"].astimezone(UTC)
                yield UploadInfo(key=item["Key"], upload_id=item["UploadId"], initiated_at=initiated_at)

    def abort(self, upload: UploadInfo) -> None:
        with translated("AbortMultipartUpload", self._bucket, upload.key):
            try:
                self._client.abort_multipart_upload(Bucket=self._bucket, Key=upload.key, UploadId=upload.upload_id)
            except ClientError as error:
                if error_code(error) != "NoSuchUpload":
                    raise
