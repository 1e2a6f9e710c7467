"""The footer of a segment is read without its records: a start of egress reads one of each partition."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from formats.parquet.writer import ParquetFormat
from infra.archive import archive as archive_module
from infra.archive.archive import FOOTER_BYTES, Archive
from infra.archive.segments import SegmentStore
from infra.contracts.storage import ObjectStore
from infra.local.aws import CREDENTIALS
from infra.local.stack import LocalStack
from infra.storage.aws import AwsCredentials
from infra.storage.encryption_mark import CHUNK_BYTES, TAIL_BYTES
from infra.storage.s3 import S3ObjectStore, make_s3_client
from tests.fakes.archive import archive_of
from tests.fakes.key_files import encrypted_around
from tests.formats.sample_records import ORIGIN, batch_of, sample_rows, segment

pytestmark = pytest.mark.integration

WANTED = segment(0, 1999)


class CountedBucket:
    """A bucket of the stack, and how much of its objects was read."""

    def __init__(self, stack: LocalStack, name: str) -> None:
        self.client = make_s3_client(
            endpoint_url=stack.moto.endpoint_url,
            region_name=CREDENTIALS["region_name"],
            credentials=AwsCredentials(
                access_key_id=CREDENTIALS["aws_access_key_id"], secret_access_key=CREDENTIALS["aws_secret_access_key"]
            ),
            attempts=1,
        )
        self.client.create_bucket(Bucket=name)
        self.objects = S3ObjectStore(self.client, name)
        self.read: list[int] = []  # bytes, by request
        self.client.meta.events.register("after-call.s3.GetObject", self._answered)

    def _answered(self, parsed: dict[str, Any], **_: object) -> None:
        self.read.append(int(parsed.get("ContentLength", 0)))


@pytest.fixture
def bucket(stack: LocalStack, unique: Callable[[str], str]) -> Iterator[CountedBucket]:
    made = CountedBucket(stack, unique("bucket"))
    with closing(made.client):
        yield made


def large_segment(objects: ObjectStore) -> Archive:
    """An archive with a segment of 4 MB, which a reader of records gets with one request."""
    archive = archive_of(SegmentStore(objects, "data"), ParquetFormat())
    random_bytes = random.Random(3).randbytes
    rows = [row | {"value": random_bytes(2000)} for row in sample_rows(2000)]
    sink = io.BytesIO()
    writer = ParquetFormat().create(sink)
    writer.write([batch_of(rows)])
    writer.close(WANTED, ORIGIN)
    assert sink.tell() > 4_000_000
    archive.segments.store(WANTED, sink, sink.tell())
    return archive


@pytest.mark.parametrize(
    ("around", "most"),
    [(lambda objects: objects, FOOTER_BYTES), (encrypted_around, FOOTER_BYTES + CHUNK_BYTES + TAIL_BYTES)],
    ids=["plain", "encrypted"],
)
def test_a_footer_is_read_without_the_records(
    bucket: CountedBucket, around: Callable[[ObjectStore], ObjectStore], most: int
) -> None:
    archive = large_segment(around(bucket.objects))
    assert archive.footer(WANTED).count == 2000
    assert bucket.read == [most]
    bucket.read.clear()
    with archive.open(WANTED) as reader:
        assert sum(batch.num_rows for batch in reader.batches()) == 2000
    assert len(bucket.read) == 1


@pytest.mark.parametrize("around", [lambda objects: objects, encrypted_around], ids=["plain", "encrypted"])
def test_a_footer_that_is_longer_is_read_too(
    bucket: CountedBucket, around: Callable[[ObjectStore], ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_module, "FOOTER_BYTES", 100)
    stored = large_segment(around(bucket.objects))
    with stored.open(WANTED) as reader:
        whole = reader.footer
    assert stored.footer(WANTED) == whole
