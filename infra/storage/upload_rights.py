"""Asks whether these credentials may store an object at a key, without one that appears there: an upload in parts is
begun and ended. It needs the same rights as a put, those for what a put asks for (KMS key, Object Lock) included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from infra.storage.aws import error_code
from infra.storage.s3_errors import FAILURES, PERMISSIONS, is_denial, translate

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

PUT, ABORT = PERMISSIONS["CreateMultipartUpload"], PERMISSIONS["AbortMultipartUpload"]
RETAIN = "s3:PutObjectRetention"
_LOCK = "ObjectLock"  # arguments that begin with this ask for it


def refusals(client: S3Client, bucket: str, key: str, arguments: Mapping[str, Any]) -> Mapping[str, str]:
    """Actions that are refused, with the reason; empty: an object may be stored, and an upload be ended.

    `arguments`: those of every new object. Where an upload may be begun and not ended, it stays, for `gc` or a
    lifecycle rule. Raises StoreUnavailable when there is no answer.
    """
    s3: Any = client
    where = {"Bucket": bucket, "Key": key}

    def begin(given: Mapping[str, Any]) -> str:
        """Why no upload may be begun; one that is begun is added to `begun`."""
        return _refusal(
            "CreateMultipartUpload",
            where,
            lambda: begun.append(s3.create_multipart_upload(**where, **given)["UploadId"]),
        )

    def end(upload: str) -> str:
        return _refusal(
            "AbortMultipartUpload", where, lambda: s3.abort_multipart_upload(**where, UploadId=upload), "NoSuchUpload"
        )

    begun: list[str] = []
    found: dict[str, str] = {}
    if refusal := begin(arguments):
        plain = {name: value for name, value in arguments.items() if not name.startswith(_LOCK)}
        # S3 answers both alike; what is allowed without the lock lacks the right to lock
        found[PUT if plain == arguments or begin(plain) else RETAIN] = refusal
    for upload in begun:
        if refusal := end(upload):
            found[ABORT] = refusal
    return found


def _refusal(operation: str, where: Mapping[str, str], call: Callable[[], object], absent: str = "") -> str:
    """`absent`: an error code that is as good as success."""
    try:
        call()
    except FAILURES as error:
        if absent and isinstance(error, ClientError) and error_code(error) == absent:
            return ""
        problem = translate(error, operation=operation, bucket=where["Bucket"], key=where["Key"])
        if isinstance(error, ClientError) and is_denial(error):
            return str(problem)
        raise problem from error
    return ""
