"""The footer of a segment is read without its records: a start of egress reads one of each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive import archive as archive_module
from infra.archive.archive import FOOTER_BYTES, Archive
from infra.archive.segments import SegmentStore
from infra.contracts.storage import ObjectStore
from infra.local.stack import LocalStack
from infra.storage.encryption_mark import CHUNK_BYTES, TAIL_BYTES
from tests.fakes.archive import archive_of
from tests.fakes.key_files import encrypted_around
from tests.integration.bucket import Bucket

pytestmark = pytest.mark.integration

Around = Callable[[ObjectStore], ObjectStore]
ROWS = 2000
WANTED = Segment(SourcePartition("a", "t", 0), 0, OffsetRange(0, ROWS - 1))


class CountedBucket(Bucket):
    """And how many bytes of its objects each request has read."""

    def __init__(self, stack: LocalStack, unique: Callable[[str], str], folder: Path) -> None:
        super().__init__(stack, unique, folder)
        self.fetched: list[int] = []
        self.client.meta.events.register("after-call.s3.GetObject", self._answered)

    def _answered(self, parsed: dict[str, Any], **_: object) -> None:
        self.fetched.append(int(parsed.get("ContentLength", 0)))

    def archive(self, around: Around) -> Archive:
        """With a segment of 4 MB, which a reader of records gets with one request."""
        self.store = SegmentStore(around(self.objects), "data")
        (size_bytes,) = self.fill("t", 1, 1, ROWS, noise_bytes=2000)
        assert size_bytes > 4_000_000
        return archive_of(self.store, self.format)


@pytest.fixture
def bucket(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[CountedBucket]:
    made = CountedBucket(stack, unique, tmp_path)
    with closing(made.client):
        yield made


@pytest.mark.parametrize(
    ("around", "most"),
    [(lambda objects: objects, FOOTER_BYTES), (encrypted_around, FOOTER_BYTES + CHUNK_BYTES + TAIL_BYTES)],
    ids=["plain", "encrypted"],
)
def test_a_footer_is_read_without_the_records(bucket: CountedBucket, around: Around, most: int) -> None:
    archive = bucket.archive(around)
    assert archive.footer(WANTED).count == ROWS
    assert bucket.fetched == [most]
    bucket.fetched.clear()
    with archive.open(WANTED) as reader:
        assert sum(batch.num_rows for batch in reader.batches()) == ROWS
    assert len(bucket.fetched) == 1


@pytest.mark.parametrize("around", [lambda objects: objects, encrypted_around], ids=["plain", "encrypted"])
def test_a_footer_that_is_longer_is_read_too(
    bucket: CountedBucket, around: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_module, "FOOTER_BYTES", 100)
    archive = bucket.archive(around)
    with archive.open(WANTED) as reader:
        whole = reader.footer
    assert archive.footer(WANTED) == whole
