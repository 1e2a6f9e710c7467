"""Requests are counted at the server: each HTTP request for a bucket, whichever client call caused it."""

from __future__ import annotations

import io
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from bench.server_log import ServerLog, kind_of
from infra.local.aws import s3_client
from infra.storage.s3 import S3ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.local.stack import LocalStack

PART_BYTES = 5 << 20  # the minimum of S3
LINE = '127.0.0.1 - - [22/Nov/2026 13:41:20] "{}" {} -'


@pytest.mark.parametrize(
    ("request_line", "status", "kind"),
    [
        ("PUT /b/a%20b/c HTTP/1.1", 200, "PUT"),
        ("PUT /b/c HTTP/1.1", 412, "PUT"),  # failed, but charged
        ("GET /b?list-type=2&prefix=a&encoding-type=url HTTP/1.1", 200, "LIST"),
        ("GET /b/c?partNumber=1 HTTP/1.1", 206, "GET"),
        ("\x1b[35m\x1b[1mGET /b/c HTTP/1.1\x1b[0m", 206, "GET"),
        ("POST /b?delete HTTP/1.1", 200, "POST"),
        ("GET /bb/c HTTP/1.1", 200, None),
        ("POST / HTTP/1.1", 200, None),
    ],
)
def test_a_line_of_the_log(request_line: str, status: int, kind: str | None) -> None:
    assert kind_of(LINE.format(request_line, status), "b") == kind


def test_lines_that_are_not_requests() -> None:
    assert kind_of(" * Running on http://127.0.0.1:22985", "b") is None


@pytest.mark.integration
def test_each_part_of_an_upload_is_a_request(stack: LocalStack, unique: Callable[[str], str]) -> None:
    bucket, log = unique("counted"), ServerLog(stack.log_dir / "moto.log")
    with closing(s3_client(stack.moto.endpoint_url)) as client:
        client.create_bucket(Bucket=bucket)
        store, since = S3ObjectStore(client, bucket, part_size_bytes=PART_BYTES), log.position()
        parts = 3
        body = bytes(parts * PART_BYTES)
        store.put_new("k", io.BytesIO(body), len(body))
        assert log.requests(bucket, since) == {"PUT": parts, "POST": 2}
        since = log.position()
        assert [info.key for info in store.list("")] == ["k"]
        assert log.requests(bucket, since) == {"LIST": 1}
