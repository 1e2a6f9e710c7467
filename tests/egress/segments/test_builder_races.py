"""Threads of the builder against each other, at the moments that matter."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from egress.partition import Reason, Seal
from egress.segments.outcomes import SegmentStored, UploadConflict
from egress.segments.spool import Spool
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.segments import SegmentStore
from tests.egress.segments.test_builder import ORIGIN, run
from tests.egress.world import FORMAT, make_builder
from tests.fakes.executors import HandExecutor
from tests.fakes.surroundings import FailingStore, HandClock

SOURCE = SourcePartition("a", "t", 0)
SEGMENT = Segment(SOURCE, 0, OffsetRange(0, 9))


def test_discarding_what_is_being_uploaded_never_stores_a_part_of_it(tmp_path: Path) -> None:
    """The key is found taken, then free again; meanwhile the partition was lost and its file given up."""
    objects = FailingStore(HandClock())
    store = SegmentStore(objects, "data")
    encoders, uploads = HandExecutor(), HandExecutor(holding=True)
    with Spool(tmp_path, 1 << 20) as spool:
        built = make_builder(store, FORMAT, spool, memory_bytes=1 << 20, encoders=encoders, uploads=uploads)
        for _ in range(2):
            built.append(SOURCE, 0, run(0, 10))
            built.seal(SOURCE, Seal(SEGMENT.offsets, 10, Reason.SIZE), ORIGIN)
        uploads.run_next()

        def vanishes(key: str) -> None:
            objects.memory.delete_many([key])
            built.discard(SOURCE)  # runs to its end before the upload continues

        objects.before["open"] = vanishes
        uploads.run_next()
        with closing(FORMAT.open(store.open(SEGMENT), SEGMENT)) as reader:
            assert sum(batch.num_rows for batch in reader.batches()) == 10
        assert spool.size_bytes == 0
        assert built.buffered_bytes == 0


def test_discarded_before_its_upload_began_leaves_nothing(tmp_path: Path) -> None:
    objects = FailingStore(HandClock())
    uploads = HandExecutor(holding=True)
    with Spool(tmp_path, -1) as spool:
        store = SegmentStore(objects, "data")
        built = make_builder(store, FORMAT, spool, memory_bytes=1 << 20, encoders=HandExecutor(), uploads=uploads)
        built.append(SOURCE, 0, run(0, 10))
        built.seal(SOURCE, Seal(SEGMENT.offsets, 10, Reason.SIZE), ORIGIN)
        built.discard(SOURCE)
        uploads.run_all()
        assert objects.keys() == []
        assert spool.size_bytes == 0
        assert [path.name for path in spool.directory.iterdir()] == ["lock"]
        assert built.outcomes() == []


def test_discarded_in_the_middle_and_built_again(tmp_path: Path) -> None:
    """Only the second one is uploaded."""
    store = SegmentStore(FailingStore(HandClock()), "data")
    uploads = HandExecutor(holding=True)
    with Spool(tmp_path, 1 << 20) as spool:
        built = make_builder(store, FORMAT, spool, memory_bytes=1 << 20, encoders=HandExecutor(), uploads=uploads)
        for _ in range(2):
            built.append(SOURCE, 0, run(0, 10))
            built.seal(SOURCE, Seal(SEGMENT.offsets, 10, Reason.SIZE), ORIGIN)
            if uploads.waiting == 1:
                built.discard(SOURCE)
        uploads.run_all()
        assert [o.new for o in built.outcomes() if isinstance(o, SegmentStored)] == [True]
        assert built.oldest_ms(SOURCE) is None
        assert spool.size_bytes == 0


def test_the_outcome_of_what_was_discarded_in_mid_upload_does_not_count_for_what_was_built_since(
    tmp_path: Path,
) -> None:
    """The log may have forked in between: only the later segment's own upload compares the two."""
    objects = FailingStore(HandClock())
    uploads = HandExecutor(holding=True)
    with Spool(tmp_path, 1 << 20) as spool:
        store = SegmentStore(objects, "data")
        built = make_builder(store, FORMAT, spool, memory_bytes=1 << 20, encoders=HandExecutor(), uploads=uploads)

        def build(value: bytes) -> None:
            built.append(SOURCE, 0, run(0, 10, value=value))
            built.seal(SOURCE, Seal(SEGMENT.offsets, 10, Reason.SIZE), ORIGIN)

        def again(_: str) -> None:
            built.discard(SOURCE)
            build(b"other")

        build(b"value")
        objects.before["put_new"] = again
        uploads.run_next()
        assert built.outcomes() == []
        assert built.oldest_ms(SOURCE) is not None, "what was built since is not stored"
        uploads.run_next()
        (found,) = built.outcomes()
        assert isinstance(found, UploadConflict)
