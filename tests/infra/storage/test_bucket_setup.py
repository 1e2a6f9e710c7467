"""What a store answers about a bucket, where moto cannot say it: clocks, and rights that are refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from formats.errors import StoreRefused, StoreUnavailable
from infra.contracts.deployment import ReplicationRule
from infra.storage.aws import AwsCredentials
from infra.storage.bucket_setup import S3BucketSetup
from infra.storage.s3 import make_s3_client

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@contextmanager
def store(status: int, ahead: timedelta = timedelta(), body: bytes = b"") -> Iterator[S3BucketSetup]:
    """A store that gives every request the same answer, by a clock that is `ahead` of NOW."""

    class Answers(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.send_response_only(status)
            self.send_header("Date", format_datetime(NOW + ahead, usegmt=True))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_GET = do_DELETE = answer  # noqa: N815 -- names that the server calls

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    client = make_s3_client(
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        region_name="us-east-1",
        credentials=AwsCredentials(access_key_id="a", secret_access_key="s"),
        attempts=1,
    )
    try:
        yield S3BucketSetup(client, "b")
    finally:
        client.close()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("theirs", "ahead"), [(0, 0.0), (-0.9, 0.0), (-7, 6.0), (7, -7.0), (-2000, 1999.0), (2000, -2000.0)]
)
@pytest.mark.parametrize("status", [200, 403])
def test_the_difference_of_clocks(theirs: float, ahead: float, status: int) -> None:
    """Of a clock that is far off, also where the store refuses the request for it."""
    with store(status, timedelta(seconds=int(theirs))) as setup:
        if status == 403 and abs(ahead) < 900:
            with pytest.raises(StoreRefused, match="s3:ListBucket"):
                setup.clock_ahead(lambda: NOW)
        else:
            assert setup.clock_ahead(lambda: NOW) == ahead


def test_a_request_that_takes_long_is_no_difference_of_clocks() -> None:
    times = iter([NOW - timedelta(seconds=30), NOW + timedelta(seconds=30)])
    with store(200) as setup:
        assert setup.clock_ahead(lambda: next(times)) == 0.0


@pytest.mark.parametrize(("status", "allowed"), [(200, True), (404, True), (412, True), (403, False)])
def test_what_the_answer_says_of_a_right(status: int, allowed: bool) -> None:
    with store(status) as setup:
        for refusal in (setup.refusal_of_get("k"), setup.refusal_of_delete("k")):
            assert (refusal == "") is allowed
            assert allowed or "allow s3:" in refusal


@pytest.mark.parametrize("status", [500, 503])
def test_no_answer_is_no_refusal(status: int) -> None:
    with store(status) as setup:
        with pytest.raises(StoreUnavailable):
            setup.refusal_of_get("k")
        with pytest.raises(StoreUnavailable):
            setup.refusal_of_delete("k")


def replication(selected: str, filtered: str) -> bytes:
    return f"""<ReplicationConfiguration><Role>r</Role><Rule><ID>own</ID><Status>Enabled</Status><Priority>1</Priority>
    <Filter>{filtered}</Filter>{selected}<Destination><Bucket>arn:aws:s3:::there</Bucket></Destination>
    </Rule></ReplicationConfiguration>""".encode()


OPTS_IN = (
    "<SourceSelectionCriteria><SseKmsEncryptedObjects><Status>Enabled</Status></SseKmsEncryptedObjects>"
    "</SourceSelectionCriteria>"
)
PREFIX = "<Prefix>data/</Prefix>"
TAG = "<Tag><Key>k</Key><Value>v</Value></Tag>"


@pytest.mark.parametrize("opts_in", [True, False])
@pytest.mark.parametrize(("filtered", "is_narrower"), [(PREFIX, False), (f"<And>{PREFIX}{TAG}</And>", True)])
def test_what_a_rule_of_replication_takes(filtered: str, *, is_narrower: bool, opts_in: bool) -> None:
    with store(200, body=replication(OPTS_IN if opts_in else "", filtered)) as setup:
        assert setup.replication() == [
            ReplicationRule(name="own", bucket="there", prefix="data/", is_narrower=is_narrower, takes_kms=opts_in)
        ]


def rule_with(more: str) -> bytes:
    return f"""<ReplicationConfiguration><Role>r</Role><Rule><ID>own</ID><Status>Enabled</Status>{more}
    <Destination><Bucket>arn:aws:s3:::there</Bucket></Destination></Rule></ReplicationConfiguration>""".encode()


def deletions(status: str) -> str:
    return f"<DeleteMarkerReplication><Status>{status}</Status></DeleteMarkerReplication>"


@pytest.mark.parametrize(
    ("rule", "copies"),
    [
        (f"<Filter>{PREFIX}</Filter>", False),
        (f"<Filter>{PREFIX}</Filter>{deletions('Disabled')}", False),
        (f"<Filter>{PREFIX}</Filter>{deletions('Enabled')}", True),
        (PREFIX, True),  # without a filter, S3 takes it for a rule of the first version, which sends delete markers
        (f"{PREFIX}{deletions('Disabled')}", False),
    ],
)
def test_which_rules_of_replication_send_deletions(rule: str, *, copies: bool) -> None:
    with store(200, body=rule_with(rule)) as setup:
        (found,) = setup.replication()
        assert (found.prefix, found.copies_delete_markers) == ("data/", copies)


def test_a_store_without_replication_has_no_rules() -> None:
    with store(501, body=b"<Error><Code>NotImplemented</Code></Error>") as setup:
        assert setup.replication() == []
    with store(403, body=b"<Error><Code>AccessDenied</Code></Error>") as setup, pytest.raises(StoreRefused):
        setup.replication()
