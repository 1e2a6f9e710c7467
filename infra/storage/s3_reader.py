"""Reads an S3 object: with one GET when it is small, else ranges of one pinned version, fetched on demand.

The first request fetches the end of the object. That is the whole of a small object, and the part of a large one that a
Parquet reader needs first; a reader of a footer asks for less. Later requests carry `If-Match`, so that every byte is
of the version first seen. Every range is read to its end, which keeps the connection for the next request; a truncated
body is resumed where it stopped.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, cast

from botocore.exceptions import ClientError, FlexibleChecksumError

from formats.errors import SegmentNotFound, StoreUnavailable
from infra.storage.aws import error_code, status
from infra.storage.s3_errors import FAILURES, translate, translated
from infra.storage.seekable import SeekableReader

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from mypy_boto3_s3.client import S3Client

SMALL_BYTES = 8 * 1024 * 1024  # up to this size an object is read by one request and held in memory, by default
READ_AHEAD_MIN_BYTES = 128 * 1024  # after a seek
READ_AHEAD_MAX_BYTES = 8 * 1024 * 1024  # after several sequential reads
BUFFER_BYTES = 64 * 1024  # of the buffered reader, for small reads
CHUNK_BYTES = 1024 * 1024  # read from a body at once
ATTEMPTS = 5  # consecutive ones without a byte; the client makes attempts of its own within each

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


def open_object(client: S3Client, bucket: str, key: str, *, tail_bytes: int = SMALL_BYTES) -> BinaryIO:
    """Open the object as a seekable file. `tail_bytes`: how much of its end the first request fetches. Opening and
    reading raise SegmentNotFound and StoreUnavailable."""
    for attempt in range(1, ATTEMPTS + 1):
        with translated("GetObject", bucket, key):
            try:
                response: Any = client.get_object(Bucket=bucket, Key=key, Range=f"bytes=-{tail_bytes}")
            except ClientError as error:
                if status(error) != 416:
                    raise
                response = client.get_object(Bucket=bucket, Key=key)
        start, size_bytes = _content_range(response)
        tail = bytearray(int(response["ContentLength"]))
        if len(tail) > tail_bytes:
            response["Body"].close()
            raise StoreUnavailable(
                f"GetObject s3://{bucket}/{key}: the store ignores the Range header; it cannot be used"
            )
        try:
            count = _drain(response["Body"], memoryview(tail))
        except FAILURES as error:
            if attempt == ATTEMPTS:
                raise translate(error, operation="GetObject", bucket=bucket, key=key) from error
            continue
        if count == len(tail):
            break
    else:
        raise StoreUnavailable(f"GetObject s3://{bucket}/{key}: the body ends early, {ATTEMPTS} times in a row")
    if start == 0:
        return io.BytesIO(tail)
    raw = S3RangeFile(client, bucket, key, etag=response["ETag"], size_bytes=size_bytes, tail=bytes(tail))
    return cast(BinaryIO, io.BufferedReader(raw, BUFFER_BYTES))


class S3RangeFile(SeekableReader):
    """One version of an object. Not thread safe; `io.BufferedReader` around it is.

    Holds the end of the object (`tail`) and one read-ahead window of at most `READ_AHEAD_MAX_BYTES`. A read larger than
    the read-ahead is fetched directly into the caller's buffer.
    """

    def __init__(
        self, client: S3Client, bucket: str, key: str, *, etag: str, size_bytes: int, tail: bytes = b""
    ) -> None:
        super().__init__(size_bytes)
        self._client, self._bucket, self._key, self._etag = client, bucket, key, etag
        self._tail = tail
        self._window = memoryview(b"")
        self._window_start = 0
        self._fetched_end = -1  # where the last fetch ended: reading on from there is sequential
        self._ahead_bytes = READ_AHEAD_MIN_BYTES

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fills `buffer`, or less at the end of the object or of the bytes held in memory. Raises SegmentNotFound when
        this version is gone, and StoreUnavailable."""
        self._check_open()
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), self._size_bytes - self._position)
        if wanted <= 0:
            return 0
        view = view[:wanted]
        count = self._take(view) or self._fetch_for(view)
        self._position += count
        return count

    def close(self) -> None:
        self._window, self._tail = memoryview(b""), b""
        super().close()

    def _take(self, view: memoryview) -> int:
        """Copy bytes held in memory at the current position; 0 when there are none."""
        tail_start = self._size_bytes - len(self._tail)
        for start, data in ((tail_start, memoryview(self._tail)), (self._window_start, self._window)):
            at = self._position - start
            if 0 <= at < len(data):
                count = min(len(view), len(data) - at)
                view[:count] = data[at : at + count]
                return count
        return 0

    def _fetch_for(self, view: memoryview) -> int:
        """Fetch at the current position: into `view` when it is large, else into a new window."""
        start = self._position
        sequential = start == self._fetched_end
        self._ahead_bytes = min(self._ahead_bytes * 2, READ_AHEAD_MAX_BYTES) if sequential else READ_AHEAD_MIN_BYTES
        end = self._size_bytes - len(self._tail)  # the tail is held in memory
        self._window = memoryview(b"")  # release it before the next one is allocated
        if len(view) >= self._ahead_bytes:
            view = view[: end - start]
            self._fetch(start, view)
            self._fetched_end = start + len(view)
            return len(view)
        window = memoryview(bytearray(min(self._ahead_bytes, end - start)))
        self._fetch(start, window)
        self._window, self._window_start, self._fetched_end = window, start, start + len(window)
        return self._take(view)

    def _fetch(self, start: int, view: memoryview) -> None:
        """Fill `view` from the object, with as many requests as it takes."""
        done = failed = 0
        while done < len(view):
            received = 0
            reason: BaseException | None = None
            try:
                for count in self._received(start + done, view[done:]):
                    received += count
            except FlexibleChecksumError as error:
                received, reason = 0, error  # not the stored bytes: none of them count
            except FAILURES as error:
                reason = error
            done += received
            failed = 0 if received else failed + 1
            if failed == ATTEMPTS:
                self._give_up(reason)

    def _received(self, start: int, view: memoryview) -> Iterator[int]:
        """Fill `view` with one request. Yields byte counts as data arrives, so that the bytes of a truncated body
        count."""
        with self._pinned():
            response: Any = self._client.get_object(
                Bucket=self._bucket, Key=self._key, Range=f"bytes={start}-{start + len(view) - 1}", IfMatch=self._etag
            )
        body = response["Body"]
        try:
            if _content_range(response)[0] != start:
                raise StoreUnavailable(f"GetObject s3://{self._bucket}/{self._key}: not the requested range")
            while len(view):
                count = body.readinto(view[:CHUNK_BYTES])
                if not count:
                    return
                yield count
                view = view[count:]
            body.read(1)  # the end of the body: verifies its checksum, and releases the connection for the next request
        finally:
            body.close()

    @contextmanager
    def _pinned(self) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            if error_code(error) in ("NoSuchKey", "PreconditionFailed") or status(error) == 412:
                raise SegmentNotFound(self._key) from error  # deleted, or another version: this one is gone
            raise

    def _give_up(self, reason: BaseException | None) -> NoReturn:
        if reason is None:
            raise StoreUnavailable(
                f"GetObject s3://{self._bucket}/{self._key}: the body is empty, {ATTEMPTS} times in a row"
            )
        raise translate(reason, operation="GetObject", bucket=self._bucket, key=self._key) from reason


def _content_range(response: Any) -> tuple[int, int]:
    """First byte of a GET response, and size of the whole object."""
    match = _CONTENT_RANGE.fullmatch(response.get("ContentRange", ""))
    return (int(match[1]), int(match[3])) if match else (0, int(response["ContentLength"]))


def _drain(body: Any, view: memoryview) -> int:
    """Fill `view` from a body and close the body. Returns the number of bytes, fewer when the body ends early."""
    done = 0
    try:
        while done < len(view):
            count = body.readinto(view[done:])
            if not count:
                break
            done += count
        body.read(1)
    finally:
        body.close()
    return done
