"""An encrypted archive is copied, compared and repaired as the bytes that are stored; only reading needs keys."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compaction.replicas import ReplicaCheck
from egress.bucket_sync import BucketSide, BucketSync
from formats.errors import KeyRefused
from formats.parquet.writer import ParquetFormat
from formats.segment import format_key
from infra.archive.archive import Archive
from infra.archive.segment_repair import RepairAction, SegmentCopy, SegmentRepair, SegmentState
from infra.archive.segments import SegmentStore
from infra.contracts.storage import ObjectStore
from infra.runtime.lifecycle import Stop
from infra.storage.encryption_mark import MARK
from infra.storage.memory_and_folder import MemoryObjectStore
from tests.contracts.store import get
from tests.fakes.archive import archive_of
from tests.fakes.key_files import encrypted_around, keys_of
from tests.fakes.surroundings import CountedMetrics
from tests.formats.sample_records import ORIGIN, SOURCE, batch_of, sample_rows, segment

WANTED = segment(10, 19)
HERE, THERE = format_key("data", WANTED), format_key("elsewhere", WANTED)


class Buckets:
    """Two buckets with an archive of two segments, of which the second bucket has copies."""

    def __init__(self, pool: ThreadPoolExecutor, *, encrypts: bool = True) -> None:
        self.here, self.there = MemoryObjectStore(), MemoryObjectStore()
        self.sync = BucketSync(
            SOURCE.region,
            BucketSide(self.here, "data"),
            BucketSide(self.there, "elsewhere"),
            [],
            [],
            pool,
            2,
            CountedMetrics(),
            Stop(),
        )
        objects: ObjectStore = encrypted_around(self.here) if encrypts else self.here
        for name in (segment(0, 9), WANTED):
            store(archive_in(objects), name.offsets.start)
        self.sync.once()

    @property
    def archive(self) -> Archive:
        return archive_in(encrypted_around(self.here))

    @property
    def copy(self) -> SegmentCopy:
        return SegmentCopy(archive_in(encrypted_around(self.there, prefix="elsewhere"), "elsewhere"), "there")

    def damage(self) -> bytes:
        data = get(self.here, HERE)
        damaged = data[:40] + bytes([data[40] ^ 1]) + data[41:]
        self.here.replace(HERE, damaged)
        return damaged


def archive_in(objects: ObjectStore, prefix: str = "data") -> Archive:
    return archive_of(SegmentStore(objects, prefix), ParquetFormat())


def store(archive: Archive, start: int) -> None:
    sink = io.BytesIO()
    writer = ParquetFormat().create(sink)
    writer.write([batch_of(sample_rows(10, first_offset=start))])
    writer.close(segment(start, start + 9), ORIGIN)
    archive.segments.store(segment(start, start + 9), sink, sink.tell())


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture
def buckets(pool: ThreadPoolExecutor) -> Buckets:
    return Buckets(pool)


def test_a_copy_has_the_bytes_of_the_original_and_is_read_with_its_keys(buckets: Buckets) -> None:
    assert get(buckets.there, THERE) == get(buckets.here, HERE)
    assert get(buckets.there, THERE).endswith(MARK)
    there = archive_in(encrypted_around(buckets.there, prefix="elsewhere"), "elsewhere")
    with there.open(WANTED) as reader:
        assert sum(batch.num_rows for batch in reader.batches()) == 10
    assert buckets.sync.once().present == 2


def test_a_copy_is_proven_without_keys(buckets: Buckets) -> None:
    """As `compact` and `gc` do before they delete: the destination's store has none."""
    check = ReplicaCheck(original=buckets.archive.segments, copy=SegmentStore(buckets.there, "elsewhere"))
    assert check.missing(segment(0, 19), [WANTED]) == {}
    data = get(buckets.there, THERE)
    buckets.there.replace(THERE, bytes([data[0] ^ 1]) + data[1:])
    assert "other bytes from byte 0 on" in check.missing(segment(0, 19), [WANTED])[WANTED]


def test_a_damaged_segment_is_replaced_by_the_bytes_of_its_copy(buckets: Buckets) -> None:
    damaged = buckets.damage()
    report = SegmentRepair(archive=buckets.archive).repair(WANTED, buckets.copy)
    assert (report.state, report.action) == (SegmentState.DAMAGED, RepairAction.REPAIRED)
    assert get(buckets.here, HERE) == get(buckets.there, THERE), "`sync` compares them"
    assert get(buckets.here, report.set_aside).endswith(MARK)
    assert get(encrypted_around(buckets.here), report.set_aside) == damaged
    assert buckets.sync.once().differing == {}


def test_a_missing_segment_is_taken_from_a_file_as_it_is_stored(buckets: Buckets, tmp_path: Path) -> None:
    file = tmp_path / "segment"
    file.write_bytes(get(buckets.there, THERE))
    buckets.here.delete_many([HERE])
    report = SegmentRepair(archive=buckets.archive).repair(WANTED, SegmentCopy(file, str(file)))
    assert (report.state, report.action) == (SegmentState.MISSING, RepairAction.REPAIRED)
    assert get(buckets.here, HERE) == file.read_bytes()


def test_a_copy_from_before_is_encrypted_on_its_way(pool: ThreadPoolExecutor) -> None:
    buckets = Buckets(pool, encrypts=False)
    assert not get(buckets.there, THERE).endswith(MARK)
    buckets.damage()
    assert SegmentRepair(archive=buckets.archive).repair(WANTED, buckets.copy).action is RepairAction.REPAIRED
    assert get(buckets.here, HERE).endswith(MARK)
    assert get(encrypted_around(buckets.here), HERE) == get(buckets.there, THERE)


def test_without_the_key_nothing_is_repaired(buckets: Buckets) -> None:
    """A segment that cannot be read for want of its key is not damaged."""
    buckets.damage()
    before = {info.key: get(buckets.here, info.key) for info in buckets.here.list("")}
    other = archive_in(encrypted_around(buckets.here, keys_of("other", other=9)))
    with pytest.raises(KeyRefused, match="the key 'new' is not in"):
        SegmentRepair(archive=other).repair(WANTED, buckets.copy)
    assert {info.key: get(buckets.here, info.key) for info in buckets.here.list("")} == before


def test_a_mixed_archive_is_read_as_one(pool: ThreadPoolExecutor) -> None:
    buckets = Buckets(pool, encrypts=False)
    store(buckets.archive, 20)
    assert get(buckets.here, format_key("data", segment(20, 29))).endswith(MARK)
    found = [
        sum(batch.num_rows for batch in reader.batches())
        for info in buckets.archive.segments.list(SOURCE)
        for reader in [buckets.archive.format.open(buckets.archive.segments.open(info.segment), info.segment)]
    ]
    assert found == [10, 10, 10]
