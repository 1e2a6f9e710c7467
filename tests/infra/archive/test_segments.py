"""SegmentStore over every object store: it adds the meaning of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import MalformedKey, SegmentExists, SegmentNotFound
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition, format_key
from infra.archive.segments import SegmentStore
from infra.contracts.storage import ObjectStore
from infra.local.aws import CREDENTIALS
from infra.local.stack import LocalStack
from infra.storage.aws import AwsCredentials
from infra.storage.memory_and_folder import DirectoryObjectStore, MemoryObjectStore
from infra.storage.s3 import S3ObjectStore, make_s3_client
from tests.contracts.store import put
from tests.fakes.surroundings import FailingStore, HandClock

REGION = "eu-west-1"
TOPIC = SourcePartition(REGION, "topic", 0)
OTHER_LIFE = SourcePartition(REGION, "topic", 0, "AbC_-9")
NEIGHBOURS = [
    SourcePartition(REGION, "topic", 1),
    SourcePartition(REGION, "topic", 10),
    SourcePartition(REGION, "topic.a", 0),
    SourcePartition(REGION, "topi", 0),
    SourcePartition("eu-west-11", "topic", 0),
    OTHER_LIFE,
]


def segment(start: int, end: int, level: int = 0, source: SourcePartition = TOPIC) -> Segment:
    return Segment(source, level, OffsetRange(start, end))


FIRST, SECOND, LATE = segment(0, 99), segment(100, 199), segment(1_000_000, 2_000_000)
MERGED, MERGED_LATE = segment(0, 199, 1), segment(200, 299, 10)


def store_all(store: SegmentStore, *segments: Segment) -> None:
    for one in segments:
        store.store(one, BytesIO(str(one).encode()), len(str(one)))


class SegmentStoreContract:
    """Subclasses provide the fixture `objects`, an empty object store."""

    @pytest.fixture(params=["data", "", "deep/er data"])
    def store(self, objects: ObjectStore, request: pytest.FixtureRequest) -> SegmentStore:
        return SegmentStore(objects, request.param)

    def test_storing_twice_keeps_the_first(self, store: SegmentStore) -> None:
        store.store(FIRST, BytesIO(b"one"), 3)
        with pytest.raises(SegmentExists):
            store.store(FIRST, BytesIO(b"two"), 3)
        with closing(store.open(FIRST)) as file:
            assert file.read() == b"one"

    def test_a_segment_has_its_own_key(self, store: SegmentStore) -> None:
        store_all(store, FIRST)
        assert [info.key for info in store.objects.list("")] == [format_key(store.prefix, FIRST)]

    def test_absent_segments(self, store: SegmentStore) -> None:
        store_all(store, FIRST)
        with pytest.raises(SegmentNotFound) as raised:
            store.open(SECOND)
        assert raised.value.segment == SECOND
        assert list(store.list(NEIGHBOURS[0])) == []

    def test_list_is_by_level_and_start(self, store: SegmentStore) -> None:
        overlap = segment(100, 250)
        store_all(store, LATE, MERGED_LATE, overlap, MERGED, SECOND, FIRST)
        listed = store.list(TOPIC)
        assert [info.segment for info in listed] == [FIRST, SECOND, overlap, LATE, MERGED, MERGED_LATE]
        assert [info.size_bytes for info in listed] == [len(str(info.segment)) for info in listed]
        assert [info.segment for info in store.level(TOPIC, 0)] == [FIRST, SECOND, overlap, LATE]
        assert [info.segment for info in store.level(TOPIC, 1)] == [MERGED]
        assert list(store.level(TOPIC, 2)) == []

    def test_list_from_a_start(self, store: SegmentStore) -> None:
        store_all(store, FIRST, SECOND, LATE, MERGED)

        def found(start_at: int) -> list[Segment]:
            return [info.segment for info in store.level(TOPIC, 0, start_at=start_at)]

        assert found(0) == [FIRST, SECOND, LATE]
        assert found(1) == [SECOND, LATE]
        assert found(100) == [SECOND, LATE]  # one that starts right there is in
        assert found(101) == [LATE]
        assert found(LATE.offsets.start + 1) == []

    def test_list_is_of_one_partition_of_one_incarnation(self, store: SegmentStore) -> None:
        store_all(store, FIRST, *(segment(0, 99, source=source) for source in NEIGHBOURS))
        for source in (TOPIC, *NEIGHBOURS):
            assert [info.segment for info in store.list(source)] == [segment(0, 99, source=source)]

    def test_another_incarnation_has_its_own_objects(self, store: SegmentStore) -> None:
        mine, other = segment(0, 99), segment(0, 99, source=OTHER_LIFE)
        store_all(store, mine, other)
        store.delete_many([mine])
        assert list(store.list(TOPIC)) == []
        assert [info.segment for info in store.list(OTHER_LIFE)] == [other]
        with closing(store.open(other)) as file:
            assert file.read() == str(other).encode()

    def test_few_are_those_of_each_partition_or_unknown(self, store: SegmentStore) -> None:
        store_all(store, FIRST, SECOND, LATE, MERGED, *(segment(0, 99, source=source) for source in NEIGHBOURS))
        put(store.objects, format_key(store.prefix, FIRST) + ".tmp")
        few = store.few(REGION, TOPIC.path, most=100)
        assert few is not None
        assert few[TOPIC] == store.list(TOPIC)
        here = [source for source in (TOPIC, *NEIGHBOURS) if (source.region, source.path) == (REGION, TOPIC.path)]
        assert len(here) > 1
        assert few == {source: store.list(source) for source in here}
        objects = 1 + sum(len(infos) for infos in few.values())  # a foreign key, too
        assert store.few(REGION, TOPIC.path, most=objects) is None, "there may be more"
        assert store.few(REGION, TOPIC.path, most=objects + 1) == few
        assert store.few(REGION, "absent", most=1) == {}

    def test_foreign_keys_are_left_out_of_lists_and_named_by_scans(self, store: SegmentStore) -> None:
        store_all(store, FIRST)
        foreign = [
            f"{REGION}/topic/0/0/README",
            f"{REGION}/topic/0/0/{0:020d}-{99:020d}.tmp",
            f"{REGION}/topic/0/0/{99:020d}-{0:020d}",
            f"{REGION}/topic/0/00/{0:020d}-{99:020d}",
            f"{REGION}/topic/0/x",
            f"{REGION}/stray",
        ]
        keys = {f"{store.prefix}/{name}" if store.prefix else name for name in foreign}
        for key in keys:
            put(store.objects, key)
        assert [info.segment for info in store.list(TOPIC)] == [FIRST]
        scanned = list(store.scan(REGION))
        assert [item.segment for item in scanned if isinstance(item, SegmentInfo)] == [FIRST]
        problems = [str(item) for item in scanned if isinstance(item, MalformedKey)]
        assert len(problems) == len(keys)
        assert all(any(repr(key) in problem for problem in problems) for key in keys)

    def test_a_scan_skips_control_objects_and_other_regions(self, store: SegmentStore) -> None:
        store_all(store, FIRST, MERGED, *(segment(0, 99, source=source) for source in NEIGHBOURS))
        put(store.objects, f"{store.prefix}/{REGION}/_control/v1/places/topic".lstrip("/"))
        scanned = list(store.scan(REGION))
        wanted = {FIRST, MERGED} | {segment(0, 99, source=s) for s in NEIGHBOURS if s.region == REGION}
        assert {item.segment for item in scanned if isinstance(item, SegmentInfo)} == wanted
        assert len(scanned) == len(wanted)

    def test_incarnations_and_partitions(self, store: SegmentStore) -> None:
        store_all(store, FIRST, MERGED, *(segment(0, 99, source=source) for source in NEIGHBOURS))
        put(store.objects, f"{store.prefix}/{REGION}/_control/v1/places/topic".lstrip("/"))
        put(store.objects, f"{store.prefix}/{REGION}/stray".lstrip("/"))
        put(store.objects, f"{store.prefix}/{REGION}/topic/x/y".lstrip("/"))
        put(store.objects, f"{store.prefix}/{REGION}/topic@a@b/0/x".lstrip("/"))
        put(store.objects, f"{store.prefix}/{REGION}/no topic/0/x".lstrip("/"))
        assert sorted(map(str, store.incarnations(REGION))) == ["topi", "topic", "topic.a", "topic@AbC_-9"]
        for foreign in ("01/x", "20261128120000/x", "2147483648/x", "١/x"):
            put(store.objects, f"{store.prefix}/{REGION}/topic/{foreign}".lstrip("/"))
        assert list(store.partitions(REGION, "topic")) == [0, 1, 10]
        assert list(store.partitions(REGION, "topic@AbC_-9")) == [0]
        assert list(store.partitions(REGION, "none")) == []
        assert list(store.incarnations("us-east-1")) == []

    def test_the_first_segment_of_each_level(self, store: SegmentStore) -> None:
        store_all(store, SECOND, LATE, MERGED, MERGED_LATE, *(segment(0, 99, source=source) for source in NEIGHBOURS))
        for name in (f"0/{0:020d}-{99:020d}.tmp", "0/README", "2/x", "x/y", "note"):  # the first one precedes SECOND
            put(store.objects, f"{store.prefix}/{REGION}/topic/0/{name}".lstrip("/"))
        assert [info.segment for info in store.firsts(TOPIC)] == [SECOND, MERGED, MERGED_LATE]
        assert list(store.firsts(SourcePartition(REGION, "none", 0))) == []

    def test_delete(self, store: SegmentStore) -> None:
        store_all(store, FIRST, SECOND, MERGED)
        store.delete_many([])
        store.delete_many([FIRST, SECOND, LATE])
        assert [info.segment for info in store.list(TOPIC)] == [MERGED]


class TestInMemory(SegmentStoreContract):
    @pytest.fixture
    def objects(self) -> MemoryObjectStore:
        return MemoryObjectStore()


class TestInADirectory(SegmentStoreContract):
    @pytest.fixture
    def objects(self, tmp_path: Path) -> DirectoryObjectStore:
        return DirectoryObjectStore(tmp_path)


@pytest.mark.integration
class TestOnMoto(SegmentStoreContract):
    @pytest.fixture
    def objects(self, stack: LocalStack, unique: Callable[[str], str]) -> Iterator[S3ObjectStore]:
        bucket = unique("bucket")
        keys = AwsCredentials(
            access_key_id=CREDENTIALS["aws_access_key_id"], secret_access_key=CREDENTIALS["aws_secret_access_key"]
        )
        url = stack.moto.endpoint_url
        client = make_s3_client(endpoint_url=url, region_name=CREDENTIALS["region_name"], credentials=keys)
        with closing(client):
            client.create_bucket(Bucket=bucket)
            yield S3ObjectStore(client, bucket)


NAMES = st.sampled_from(["a", "a-b", "a.b", "a_b", "ab", "b", "0", "A"])
SEGMENTS = st.builds(
    segment,
    st.integers(0, 5),
    st.integers(5, 10),
    st.integers(0, 12),
    st.builds(SourcePartition, NAMES, NAMES, st.sampled_from([0, 1, 2, 10]), st.sampled_from(["", "id", "a"])),
)


@given(st.sets(SEGMENTS, max_size=15), st.data())
def test_listings_show_exactly_what_is_stored(archive: set[Segment], choose: st.DataObject) -> None:
    store = SegmentStore(MemoryObjectStore(), "data")
    store_all(store, *archive)
    scanned = {
        item.segment
        for name in {s.source.region for s in archive}
        for item in store.scan(name)
        if isinstance(item, SegmentInfo)
    }
    assert scanned == archive
    for source in {s.source for s in archive}:
        mine = [one for one in archive if one.source == source]
        listed = [info.segment for info in store.list(source)]
        assert sorted(listed) == sorted(mine)
        for level in {one.level for one in mine}:
            start_at = choose.draw(st.integers(0, 6))
            wanted = sorted(one for one in mine if one.level == level and one.offsets.start >= start_at)
            assert [info.segment for info in store.level(source, level, start_at=start_at)] == wanted
            assert [info.segment for info in store.level(source, level, start_at=start_at, limit=2)] == wanted[:2]
            reaching = sorted(one for one in mine if one.level == level and one.offsets.end >= start_at)
            assert [info.segment for info in store.level_reaching(source, level, start_at)] == reaching
        assert list(store.each_level(source)) == sorted({one.level for one in mine}, key=str)
        assert source.path in map(str, store.incarnations(source.region))
        assert source.partition in store.partitions(source.region, source.path)


def test_partitions_and_incarnations_take_a_request_however_many_there_are() -> None:
    objects = FailingStore(HandClock())
    store = SegmentStore(objects, "data")
    for number in range(200):
        put(objects.memory, format_key("data", segment(0, 9, source=SourcePartition(REGION, f"t{number}", 0))))
        put(objects.memory, format_key("data", segment(0, 9, source=SourcePartition(REGION, "topic", number))))
    for answer, count in ((lambda: store.partitions(REGION, "topic"), 200), (lambda: store.incarnations(REGION), 201)):
        before = objects.calls["list"]
        assert len(answer()) == count
        assert objects.calls["list"] == before + 1
