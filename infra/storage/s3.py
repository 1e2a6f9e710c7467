"""ObjectStore on S3: every object appears at its final key by one atomic conditional request.

up to the part size   PutObject              If-None-Match: *
above it              CompleteMultipartUpload If-None-Match: *, after the parts; aborted when anything fails

412  the key exists                        → SegmentExists
409  a conflicting write is in progress    → retried from the start; StoreUnavailable after CONFLICT_ATTEMPTS
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from botocore.exceptions import ClientError

from formats.errors import SegmentExists, StoreRefused, StoreUnavailable
from infra.contracts.encryption import is_of_kms
from infra.contracts.storage import ObjectInfo
from infra.runtime.crash_points import Step, durable
from infra.runtime.log_fields import BUCKET, ERROR, KEY, NEXT
from infra.storage import conditional_writes, upload_rights
from infra.storage.aws import (
    ATTEMPTS,
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    AwsCredentials,
    client_config,
    describe_error,
    error_code,
    status,
)
from infra.storage.clients import create_client
from infra.storage.s3_body import Slice, part_ranges
from infra.storage.s3_errors import FAILURES, translate, translated, translated_pages
from infra.storage.s3_head import head_of
from infra.storage.s3_reader import SMALL_BYTES, open_object

if TYPE_CHECKING:
    import boto3
    from mypy_boto3_s3.client import S3Client

PART_SIZE_BYTES = 16 * 1024 * 1024
SMALLEST_PART_BYTES = 5 * 1024 * 1024  # S3's limit, for all parts but the last
DELETE_BATCH = 1_000  # S3's limit
LIST_PAGE = 1_000  # S3's limit and default
CONFLICT_ATTEMPTS = 3
_OF_EVERY_LISTING = {"IsTruncated", "Name"}  # also of an empty one

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3PutOptions:
    """Attributes of stored objects; empty: the bucket's default. Values are those of the S3 API."""

    storage_class: str = ""  # "STANDARD_IA"
    keeps_default_class: Callable[[str], bool] = lambda _key: False  # true for keys that do not get `storage_class`
    sse: str = ""  # "AES256", "aws:kms"
    kms_key_id: str = ""
    bucket_key: bool | None = None  # None: the bucket's default
    lock_mode: str = ""  # "GOVERNANCE", "COMPLIANCE"
    lock_retention: timedelta = timedelta()  # from the moment of the put
    is_unlocked: Callable[[str], bool] = lambda _key: False  # true for keys that are not locked
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    checksum_algorithm: str = "CRC64NVME"  # the cheapest; empty: the client's default, for stores that reject this one

    def __post_init__(self) -> None:
        if self.kms_key_id and not is_of_kms(self.sse):
            raise ValueError(f"a KMS key needs sse = aws:kms, not {self.sse!r}")

    def arguments(self, key: str) -> Mapping[str, Any]:
        """Arguments of PutObject and CreateMultipartUpload."""
        storage_class = "" if self.keeps_default_class(key) else self.storage_class
        given: dict[str, Any] = {
            **_given(StorageClass=storage_class, ServerSideEncryption=self.sse, SSEKMSKeyId=self.kms_key_id),
            **self.checksum,
        }
        if self.bucket_key is not None:
            given["BucketKeyEnabled"] = self.bucket_key
        if self.lock_mode and not self.is_unlocked(key):
            given["ObjectLockMode"] = self.lock_mode
            given["ObjectLockRetainUntilDate"] = self.now() + self.lock_retention
        return given

    @property
    def checksum(self) -> dict[str, str]:
        """Argument of every request with a body."""
        return _given(ChecksumAlgorithm=self.checksum_algorithm)


def _given(**arguments: str) -> dict[str, str]:
    return {name: value for name, value in arguments.items() if value}


def make_s3_client(
    *,
    endpoint_url: str | None = None,
    region_name: str | None = None,
    credentials: AwsCredentials | None = None,
    session: boto3.Session | None = None,
    max_pool_connections: int = 32,
    connect_timeout: timedelta = CONNECT_TIMEOUT,
    read_timeout: timedelta = READ_TIMEOUT,
    attempts: int = ATTEMPTS,
    expected_bucket_owner: str | None = None,
) -> S3Client:
    """A client for `S3ObjectStore`; the caller closes it. With an `endpoint_url`, buckets are addressed path-style.
    Raises ConfigError when the settings, or the AWS profile, are invalid.

    `max_pool_connections`: at least the number of threads that use the client. `session`: of the program around us.
    `expected_bucket_owner`: account whose bucket each request is for; S3 refuses it for the bucket of another one.
    """
    config = client_config(
        max_pool_connections=max_pool_connections,
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        attempts=attempts,
        s3={
            "addressing_style": "path" if endpoint_url else "auto",
            # TLS, else the signed checksum header, protects the body: an additional SHA-256 would be most of the cost
            "payload_signing_enabled": False,
        },
    )
    client = create_client(
        "s3",
        endpoint_url=endpoint_url,
        region_name=region_name,
        credentials=credentials,
        session=session,
        config=config,
    )
    if expected_bucket_owner is not None:
        client.meta.events.register("provide-client-params.s3", _ExpectedOwner(expected_bucket_owner))
    return cast("S3Client", client)


@dataclass(frozen=True, slots=True)
class _ExpectedOwner:
    """Adds the account to the arguments of each operation that takes it: all that are about a bucket."""

    account: str

    def __call__(self, params: dict[str, Any], model: Any, **_: object) -> None:
        if "ExpectedBucketOwner" in model.input_shape.members:
            params.setdefault("ExpectedBucketOwner", self.account)


class S3ObjectStore:
    """An `ObjectStore`: one bucket. Thread safe, as the client is.

    A put whose answer was lost may have succeeded: a retry, by the client or by a caller, then raises SegmentExists.
    """

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        *,
        put_options: S3PutOptions | None = None,
        part_size_bytes: int = PART_SIZE_BYTES,
    ) -> None:
        """`part_size_bytes`: size limit of one request's body, unless that makes more parts than S3 allows."""
        if part_size_bytes < SMALLEST_PART_BYTES:
            raise ValueError(f"part size must be at least {SMALLEST_PART_BYTES}: {part_size_bytes}")
        self._client: Any = client  # the stubs have closed sets of literals where S3 accepts more
        self._bucket = bucket
        self._options = put_options or S3PutOptions()
        self._part_size_bytes = part_size_bytes

    def __repr__(self) -> str:
        return f"S3ObjectStore({self._bucket!r})"

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """One request per thousand keys, sent lazily."""
        arguments: dict[str, Any] = {"Prefix": prefix}
        if start_after:
            arguments["StartAfter"] = start_after
        if limit is not None and limit < LIST_PAGE:
            arguments["PaginationConfig"] = {"PageSize": limit}
        items = (item for page in self._pages(**arguments) for item in page.get("Contents", ()))
        for item in islice(items, limit):
            yield ObjectInfo(
                item["Key"],
                item["Size"],
                item["LastModified"].astimezone(UTC),
                item.get("ETag", ""),
                storage_class=item.get("StorageClass", ""),
            )

    def folders(self, prefix: str) -> Sequence[str]:
        """One request per thousand names, and objects at `prefix` itself."""
        pages = self._pages(Prefix=prefix, Delimiter="/")
        names = (one["Prefix"][len(prefix) : -1] for page in pages for one in page.get("CommonPrefixes", ()))
        return list(dict.fromkeys(names))  # a server may repeat a name that two pages share

    def _pages(self, **arguments: Any) -> Iterator[Any]:
        """Of a listing, sent lazily. Raises StoreUnavailable, also where the next page cannot be asked for: it is not
        the end. Nor is an answer that is no listing an empty one: the client finds no objects in one without a body,
        or in another server's page."""
        what = f"list s3://{self._bucket}/{arguments['Prefix']}"
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, **arguments)
        for page in translated_pages(pages, "ListObjectsV2", self._bucket):
            if not page.keys() & _OF_EVERY_LISTING:
                raise StoreUnavailable(
                    f"{what}: the answer is no listing, although its status is 200: check the endpoint_url in the "
                    "configuration, and any gateway in front of the store"
                )
            yield page
            if page.get("IsTruncated") and not page.get("NextContinuationToken"):
                raise StoreUnavailable(
                    f"{what}: the answer is truncated, without a token for the rest: the server does not page as S3 "
                    "does"
                )

    def problem_of_conditional_writes(self, key: str) -> str:
        """The result of `conditional_writes.check`; leaves an object at `key`."""
        return conditional_writes.check(
            self._client,
            self._bucket,
            key,
            arguments=self._options.arguments(key),
            checksum=self._options.checksum,
        )

    def refusals_of_put(self, key: str) -> Mapping[str, str]:
        """The result of `upload_rights.refusals`; no object appears at `key`."""
        return upload_rights.refusals(self._client, self._bucket, key, self._options.arguments(key))

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        """Reads `body` several times: for its checksum, and for each attempt."""
        if (available := body.seek(0, io.SEEK_END)) < size_bytes:
            raise ValueError(f"{key}: the body holds {available} bytes, not {size_bytes}")
        for _ in range(CONFLICT_ATTEMPTS):
            try:
                if size_bytes <= self._part_size_bytes:
                    self._put_whole(key, body, size_bytes)
                else:
                    self._put_parts(key, body, size_bytes)
            except _Conflict as conflict:
                last = conflict
            else:
                return
        raise StoreUnavailable(
            f"put s3://{self._bucket}/{key}: a conflicting write was in progress, {CONFLICT_ATTEMPTS} times in a row"
        ) from last

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        return open_object(self._client, self._bucket, key, tail_bytes=tail_bytes or SMALL_BYTES)

    def stat(self, key: str) -> ObjectInfo | None:
        head = head_of(self._client, self._bucket, key, ChecksumMode="ENABLED")
        if head is None:
            return None
        return ObjectInfo(
            key,
            head["ContentLength"],
            head["LastModified"].astimezone(UTC),
            head.get("ETag", ""),
            head.get("ReplicationStatus", ""),
            checksums=_checksums(head),
            encryption=head.get("ServerSideEncryption", ""),
        )

    def delete_many(self, keys: Collection[str]) -> None:
        """One request per thousand keys."""
        left = iter(dict.fromkeys(keys))
        while batch := list(islice(left, DELETE_BATCH)):
            with translated("DeleteObjects", self._bucket, batch[0]):
                answer = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True}
                )
            refused = [one for one in answer.get("Errors", ()) if one.get("Code") != "NoSuchKey"]
            if refused:
                denied = all(one.get("Code") == "AccessDenied" for one in refused)
                raise (StoreRefused if denied else StoreUnavailable)(_refusal(self._bucket, refused))

    def _put_whole(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        with self._conditional("PutObject", key):
            answer = self._client.put_object(
                Bucket=self._bucket,
                Key=key,
                Body=Slice(body, 0, size_bytes),
                ContentLength=size_bytes,
                IfNoneMatch="*",
                **self._options.arguments(key),
            )
        self._part_of(answer, "ETag", "PutObject", key)

    def _put_parts(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        where = {"Bucket": self._bucket, "Key": key}
        with durable(Step.CREATE_MULTIPART), translated("CreateMultipartUpload", self._bucket, key):
            answer = self._client.create_multipart_upload(**where, **self._options.arguments(key))
            upload = where | {"UploadId": self._part_of(answer, "UploadId", "CreateMultipartUpload", key)}
        try:
            parts = [
                self._put_part(upload, number, Slice(body, start, length))
                for number, (start, length) in enumerate(part_ranges(size_bytes, self._part_size_bytes), start=1)
            ]
            with durable(Step.COMPLETE_MULTIPART), self._conditional("CompleteMultipartUpload", key):
                answer = self._client.complete_multipart_upload(
                    **upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*"
                )
                self._part_of(answer, "ETag", "CompleteMultipartUpload", key)
        except BaseException:
            self._abort(upload)
            raise

    def _put_part(self, upload: Mapping[str, str], number: int, body: Slice) -> Mapping[str, Any]:
        with durable(Step.PUT_PART), translated("UploadPart", self._bucket, upload["Key"]):
            answer = self._client.upload_part(
                **upload, PartNumber=number, Body=body, ContentLength=len(body), **self._options.checksum
            )
        checksums = {name: value for name, value in answer.items() if name in _CHECKSUMS}
        etag = self._part_of(answer, "ETag", "UploadPart", upload["Key"])
        return {"PartNumber": number, "ETag": etag, **checksums}

    def _part_of(self, answer: Mapping[str, Any], name: str, operation: str, key: str) -> str:
        """What S3 always answers. Without it the answer is not the store's: whether it has the object is not known."""
        found = answer.get(name)
        if not found:
            raise StoreUnavailable(
                f"{operation} s3://{self._bucket}/{key}: the answer has no {name}, although its status is 200: check "
                "the endpoint_url in the configuration, and any gateway in front of the store"
            )
        return str(found)

    def _abort(self, upload: Mapping[str, str]) -> None:
        """Best effort: the caller raises the error that led here."""
        try:
            self._client.abort_multipart_upload(**upload)
        except FAILURES as error:
            if isinstance(error, ClientError) and error_code(error) == "NoSuchUpload":
                return
            log.warning(
                "multipart_abort_failed",
                extra={
                    BUCKET: self._bucket,
                    KEY: upload["Key"],
                    ERROR: describe_error(error),
                    NEXT: "its parts cost money until a lifecycle rule AbortIncompleteMultipartUpload removes them",
                },
            )

    @contextmanager
    def _conditional(self, operation: str, key: str) -> Iterator[None]:
        """Translate errors of the request that makes the object appear."""
        try:
            yield
        except FAILURES as error:
            if isinstance(error, ClientError) and status(error) == 412:
                raise SegmentExists(key) from error
            if isinstance(error, ClientError) and status(error) == 409:
                raise _Conflict from error
            raise translate(error, operation=operation, bucket=self._bucket, key=key) from error


class _Conflict(Exception):
    """Another conditional write of the key is in progress: none has succeeded yet."""


_CHECKSUMS = frozenset({"ChecksumCRC32", "ChecksumCRC32C", "ChecksumCRC64NVME", "ChecksumSHA1", "ChecksumSHA256"})


def _checksums(head: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Checksums of the whole content: a checksum over those of the parts depends on the part size."""
    if head.get("ChecksumType", "FULL_OBJECT") != "FULL_OBJECT":
        return ()
    return tuple(sorted((name, value) for name in _CHECKSUMS if (value := head.get(name)) and "-" not in value))


def _refusal(bucket: str, refused: Sequence[Mapping[str, str]]) -> str:
    first = refused[0]
    code = first.get("Code", "")
    advice = f"; allow s3:DeleteObject on bucket {bucket} to these credentials" if code == "AccessDenied" else ""
    return (
        f"DeleteObjects s3://{bucket}: {len(refused)} keys refused, first {first.get('Key')}: "
        f"{code}: {first.get('Message', '')}{advice}"
    )
