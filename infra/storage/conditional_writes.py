"""Checks that a bucket honours `If-None-Match`, on which the guarantee that no object is overwritten rests.

A store that ignores the header answers every conditional put with 200. Then two writers of one key overwrite each
other, and every process wins every claim and every lease, without an error. Therefore a fixed object is put until the
store rejects it, with a single request and as a multipart upload: some stores honour the header in one of them only.

    PutObject ─── 412 ──> rejected, as required                      (the object exists from an earlier start)
        └── 200 ──> PutObject again ─── 412 ──> rejected, as required
                          └── 200 ──> the store ignores the header
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from botocore.exceptions import ClientError

from formats.errors import StoreUnavailable
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable
from infra.storage.aws import status
from infra.storage.passing_store import PassingObjectStore
from infra.storage.s3_errors import FAILURES, translate, translated

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

CONTENT = b"A put of this key with If-None-Match must be refused.\n"
_REFUSED = frozenset({409, 412})  # 409: another process runs the same check
_NOT_IMPLEMENTED = 501


_WHOLE, _MULTIPART = "PutObject", "CompleteMultipartUpload"


def check(client: S3Client, bucket: str, key: str, *, arguments: Mapping[str, Any], checksum: Mapping[str, str]) -> str:
    """The problem with conditional writes, and the remedy; empty when the store honours them. Leaves an object at
    `key`. Raises StoreUnavailable when there is no answer. `arguments`: those of every new object; `checksum`: those of
    every request with a body."""
    probe = _Probe(client, bucket, key, arguments, checksum)
    with durable(Step.PROBE_STORE):
        answers = {_WHOLE: probe.rejects_whole(), _MULTIPART: probe.rejects_multipart()}
    ignored = [operation for operation, is_refused in answers.items() if not is_refused]
    if not ignored:
        return ""
    return (
        f"s3.bucket: the store of s3://{bucket} at {client.meta.endpoint_url} does not reject a second object at the "
        f"key {key}: it ignores If-None-Match in {' and '.join(ignored)}, and segments, claims and leases would be "
        "overwritten without an error. Use a store that supports conditional writes, or fix the gateway that removes "
        "the header; s3.conditional_writes = 'assume' disables this check and its protection"
    )


@dataclass(frozen=True, slots=True)
class _Probe:
    client: Any
    bucket: str
    key: str
    arguments: Mapping[str, Any]
    checksum: Mapping[str, str]

    @property
    def where(self) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self.key}

    def rejects_whole(self) -> bool:
        def put() -> None:
            self.client.put_object(**self.where, Body=CONTENT, IfNoneMatch="*", **self.arguments)

        # the first put may create the object; the second must be rejected
        return self._is_refused(_WHOLE, put) or self._is_refused(_WHOLE, put)

    def rejects_multipart(self) -> bool:
        return self._rejects_upload() or self._rejects_upload()

    def _rejects_upload(self) -> bool:
        with translated("CreateMultipartUpload", self.bucket, self.key):
            upload = self.where | {
                "UploadId": self.client.create_multipart_upload(**self.where, **self.arguments)["UploadId"]
            }
        is_refused = True
        try:
            with translated("UploadPart", self.bucket, self.key):
                answer = self.client.upload_part(**upload, PartNumber=1, Body=CONTENT, **self.checksum)
            checksums = {name: value for name, value in answer.items() if name.startswith("Checksum")}
            parts = {"Parts": [{"PartNumber": 1, "ETag": answer["ETag"], **checksums}]}

            def complete() -> None:
                self.client.complete_multipart_upload(**upload, MultipartUpload=parts, IfNoneMatch="*")

            is_refused = self._is_refused(_MULTIPART, complete)
        finally:
            if is_refused:  # else the upload is complete
                with suppress(*FAILURES):  # a store may have ended the upload when it rejected it
                    self.client.abort_multipart_upload(**upload)
        return is_refused

    def _is_refused(self, operation: str, put: Callable[[], None]) -> bool:
        try:
            put()
        except FAILURES as error:
            if isinstance(error, ClientError) and status(error) in _REFUSED:
                return True
            if isinstance(error, ClientError) and status(error) == _NOT_IMPLEMENTED:
                return False  # the store does not implement the header
            raise translate(error, operation=operation, bucket=self.bucket, key=self.key) from error
        return False


class ProvenObjectStore(PassingObjectStore):
    """An `ObjectStore` that puts nothing until `check` has found no problem with the store below. Belongs inside the
    retry decorator, which repeats the check and reports the reason. Thread safe."""

    def __init__(self, store: ObjectStore, check: Callable[[], str]) -> None:
        """`check` returns the problem, empty when there is none; it may raise StoreUnavailable."""
        super().__init__(store)
        self._check = check
        self._mutex = threading.Lock()
        self._is_proven = False

    def problem(self) -> str:
        """The problem with the store; empty when there is none. Runs the check until it has passed once."""
        with self._mutex:
            if self._is_proven:
                return ""
            problem = self._check()
            self._is_proven = not problem
            return problem

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        if not self._is_proven and (problem := self.problem()):
            raise StoreUnavailable(problem)
        super().put_new(key, body, size_bytes)
