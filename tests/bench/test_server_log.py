"""Requests are counted at the server: each HTTP request for a bucket, whichever client call caused it."""

from __future__ import annotations

import io
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from bench.server_log import ServerLog, VersityLog, kind_of
from infra.local.aws import s3_client
from infra.storage.s3 import S3ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


def test_versitygw_logs_as_s3_does(tmp_path: Path) -> None:
    rest = "200 - 0 30448 1 1 - boto - host SigV4 - AuthHeader s3.us-east-1.amazonaws.com - arn:aws:s3:::x Yes"

    def line(bucket: str, operation: str, key: str) -> str:
        when = "[25/November/2026:07:00:00 +0000]"
        return f"me {bucket} {when} 127.0.0.1 me 0AB {operation} {key} /{bucket}/{key}?x=1 {rest}\n"

    log = tmp_path / "access.log"
    log.write_text("log starts 2026-11-25\n" + line("mine", "s3_GetObject", "data/before"))
    since = log.stat().st_size
    with log.open("a") as file:
        file.write(line("mine", "s3_PutObject", "data/1") + line("mine", "s3_PutObject", "probe/1"))
        file.write(line("other", "s3_PutObject", "data/2") + line("mine", "s3_ListObjectsV2", "-"))
        file.write(line("mine", "s3_UploadPart", "data/3") + line("mine", "s3_HeadBucket", "-"))
    counted = VersityLog(log).requests("mine", since, without="probe/")
    assert counted == {"PUT": 2, "LIST": 1, "HeadBucket": 1}
    end = VersityLog(log).position()
    assert VersityLog(log).requests("mine", since, end)["PUT"] == 3
    assert VersityLog(log).requests("mine", end) == {}
