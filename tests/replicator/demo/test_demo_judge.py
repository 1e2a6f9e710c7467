"""The demo's judge detects every kind of difference."""

from __future__ import annotations

import io
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, Message, Producer

from formats.footer import SegmentOrigin
from formats.parquet.writer import ParquetFormat
from formats.records.align import StreamRead
from formats.records.digest import digest_of
from formats.records.scope import RecordFilter
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from formats.topic_selection import TopicPattern
from infra.archive.segments import SegmentStore
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.aws import REGION
from infra.runtime.lifecycle import SystemClock
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.config import from_mapping
from replicator.demo.disaster import Recovery
from replicator.demo.flights import by_partition, flights
from replicator.demo.judge import PartitionVerdict, differing, judge
from replicator.demo.load import create_topic, load
from replicator.selection import Selection
from replicator.verify.verifier import TargetVerdict, Verifier
from replicator.verify.verify import Verification
from tests.fakes.archive import archive_of
from tests.formats.sample_records import Row, batch_of
from tests.processes.judge import read_topic
from tests.replicator.demo.few_flights import FEW, SOURCE, TOPIC, compared, lost, numbered, side, verdict_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.local.stack import LocalStack


FORMAT = ParquetFormat()


def repeated(rows: list[Row]) -> list[Row]:
    return [*rows[:5], rows[4], *rows[5:]]


def swapped(rows: list[Row]) -> list[Row]:
    return [*rows[:4], rows[5], rows[4], *rows[6:]]


def with_fourth(**columns: object) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [*rows[:4], rows[4] | columns, *rows[5:]]


def with_fourth_headers(change: Callable[[list[tuple[str, bytes | None]]], object]) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: with_fourth(headers=change(rows[4]["headers"]))(rows)


def nothing(rows: list[Row]) -> list[Row]:
    return rows


PLANTED: dict[str, tuple[Callable[[list[Row]], list[Row]], str]] = {
    "a loss": (lost, "1 record(s) missing"),
    "a duplicate": (repeated, "1 record(s) too many"),
    "a loss and a duplicate": (lambda rows: repeated(lost(rows)), "differ"),
    "a swap": (swapped, "value.data"),
    "a key": (lambda rows: with_fourth(key=rows[4]["key"][:-1] + b"!")(rows), "key.data differ"),
    "a key gone": (with_fourth(key=None), "key.length, key.data differ"),
    "an empty key for none": (lambda rows: [*rows[:10], rows[10] | {"key": b""}, *rows[11:]], "key.length differ"),
    "a value": (lambda rows: with_fourth(value=b"[" + rows[4]["value"][1:])(rows), "value.data differ"),
    "a timestamp": (lambda rows: with_fourth(timestamp=rows[4]["timestamp"] + 1)(rows), "timestamp differ"),
    "a header's value": (
        with_fourth_headers(lambda h: [*h[:2], ("airport", b"???"), h[3]]),
        "headers.value.data differ",
    ),
    "a header's name": (with_fourth_headers(lambda h: [*h[:2], ("Airport", h[2][1]), h[3]]), "headers.key.data differ"),
    "headers' order": (with_fourth_headers(lambda h: [h[0], h[2], h[1], h[3]]), "headers.value.data differ"),
    "a repeated header gone": (with_fourth_headers(lambda h: [h[0], h[1], h[3]]), "headers.count"),
    "an empty header for none": (
        lambda rows: [*rows[:11], rows[11] | {"headers": [*rows[11]["headers"][:3], ("dep_delay", b"")]}],
        "headers.value.length differ",
    ),
}


class TestJudge:
    def test_offsets_of_the_target_may_differ(self, some_rows: list[Row]) -> None:
        verdict = verdict_of(side(some_rows), side(some_rows), side(numbered(some_rows, first=7)))
        assert verdict.equal
        assert verdict.differences == ()

    def test_the_archive_must_have_the_offsets_of_the_source(self, some_rows: list[Row]) -> None:
        verdict = verdict_of(side(some_rows), side(numbered(some_rows, first=7)), side(some_rows))
        assert verdict.differences == ("archive: offset differ",)

    @pytest.mark.parametrize("kind", PLANTED)
    def test_each_kind_of_difference_is_reported(self, kind: str, some_rows: list[Row]) -> None:
        plant, expected = PLANTED[kind]
        changed = numbered(plant(some_rows))
        assert changed != some_rows
        whole = side(some_rows)
        (difference,) = verdict_of(whole, whole, side(changed)).differences
        assert difference.startswith("target: ")
        assert expected in difference
        (difference,) = verdict_of(whole, side(changed), whole).differences
        assert difference.startswith("archive: ")

    def test_a_missing_partition_is_a_difference(self, some_rows: list[Row]) -> None:
        whole = side(some_rows)
        assert verdict_of(whole, whole, []).differences == ("target: 12 record(s) missing",)
        assert verdict_of([], [], whole).differences == ("target: 12 record(s) too many",)
        absent = TargetVerdict(source=SOURCE, target=TOPIC, result=None, unreadable="no such partition")
        for verdict, named in (
            (replace(verdict_of(whole, whole, whole), delivered=absent), "target: no such partition"),
            (replace(verdict_of(whole, whole, whole), archived=absent), "archive: no such partition"),
        ):
            assert verdict.differences == (named,)
            assert verdict.source.count == 12

    def test_streams_are_named(self, some_rows: list[Row]) -> None:
        changed = [row | {"key": b"x" + (row["key"] or b"")} for row in some_rows]
        assert differing(digest_of([batch_of(some_rows)]), digest_of([batch_of(changed)])) == ["key.length", "key.data"]


def put(store: SegmentStore, source: SourcePartition, rows: list[Row], covered: OffsetRange | None = None) -> Segment:
    covered = covered or OffsetRange(rows[0]["offset"], rows[-1]["offset"])
    segment = Segment(source, 0, covered)
    body = io.BytesIO()
    writer = FORMAT.create(body)
    writer.write([batch_of(rows)])
    writer.close(segment, SegmentOrigin(created_at=datetime(2026, 1, 1, tzinfo=UTC), writer="test"))
    store.store(segment, body, len(body.getvalue()))
    return segment


def archived(store: SegmentStore, rows: list[Row]) -> PartitionVerdict:
    """The archive compared with these records of the source, which the target has, too."""
    verifier, batches = Verifier(stored=archive_of(store, FORMAT), clock=SystemClock()), side(rows)
    return PartitionVerdict(
        partition=0,
        alone=verifier.archive(SOURCE, {}, read_again_after=None),
        archived=verifier.compare_with_target(SOURCE, TOPIC, RecordFilter(), iter(batches)),
        delivered=compared(batches, batches),
    )


class TestArchive:
    """The archive as the judge reads it back."""

    @pytest.fixture
    def objects(self) -> MemoryObjectStore:
        return MemoryObjectStore()

    @pytest.fixture
    def store(self, objects: MemoryObjectStore) -> SegmentStore:
        return SegmentStore(objects, "data")

    def test_segments_are_read_in_order_and_overlaps_once(self, store: SegmentStore, some_rows: list[Row]) -> None:
        for first, last in ((0, 4), (2, 7), (8, 11)):
            put(store, SOURCE, some_rows[first : last + 1])
        verdict = archived(store, some_rows)
        assert verdict.archive == StreamRead(digest=digest_of(side(some_rows)), first_offset=0, last_offset=11)
        assert verdict.equal

    def test_a_missing_segment_is_reported(self, store: SegmentStore, some_rows: list[Row]) -> None:
        put(store, SOURCE, some_rows[:5])
        put(store, SOURCE, some_rows[8:])
        verdict = archived(store, some_rows)
        assert verdict.alone.missing == [OffsetRange(5, 7)]
        assert verdict.differences == (
            "archive: offsets [5,7] missing",
            "archive: 3 record(s) missing",
        )

    def test_a_damaged_segment_is_reported(
        self, store: SegmentStore, objects: MemoryObjectStore, some_rows: list[Row]
    ) -> None:
        segment = put(store, SOURCE, some_rows)
        key = format_key("data", segment)
        with objects.open(key) as stored:
            body = bytearray(stored.read())
        body[len(body) // 4] ^= 1
        objects.delete_many([key])
        objects.put_new(key, io.BytesIO(body), len(body))
        assert any("corrupt segment" in one for one in archived(store, some_rows).differences)

    def test_an_empty_archive_is_not_equal(self, store: SegmentStore, some_rows: list[Row]) -> None:
        assert archived(store, some_rows).differences == ("archive: 12 record(s) missing",)

    def test_the_footer_counts_keys_values_and_headers(self, store: SegmentStore, some_rows: list[Row]) -> None:
        segment = put(store, SOURCE, some_rows)
        assert archive_of(store, FORMAT).footer(segment).raw_bytes > sum(len(row["value"]) for row in some_rows)


class TestRecovery:
    def recovery(self, source: list[Row], restored: TargetVerdict) -> Recovery:
        read = compared(side(source), []).result
        assert read is not None
        return Recovery(source={SOURCE: read.first}, restored={SOURCE: restored}, took=timedelta(seconds=1))

    def test_offsets_of_the_restored_topic_may_differ(self, some_rows: list[Row]) -> None:
        restored = compared(side(some_rows), side(numbered(some_rows, first=7)))
        found = self.recovery(some_rows, restored)
        assert (found.differences, found.records) == ((), 12)

    @pytest.mark.parametrize("kind", PLANTED)
    def test_each_kind_of_difference_is_reported(self, kind: str, some_rows: list[Row]) -> None:
        plant, expected = PLANTED[kind]
        restored = compared(side(some_rows), side(numbered(plant(some_rows))))
        (difference,) = self.recovery(some_rows, restored).differences
        assert difference.startswith("partition 0: restored: ")
        assert expected in difference

    def test_a_topic_that_cannot_be_read_is_a_difference(self, some_rows: list[Row]) -> None:
        absent = TargetVerdict(source=SOURCE, target=TOPIC, result=None, unreadable="no such partition")
        assert self.recovery(some_rows, absent).differences == (
            "partition 0: restored: no such partition",
            "partition 0: restored: 12 record(s) missing",
        )


@pytest.mark.integration
def test_loaded_records_are_read_back_and_planted_differences_are_detected(
    stack: LocalStack, unique: Callable[[str], str], some_rows: list[Row]
) -> None:
    """Partition 0 is unchanged; each other partition has one kind of difference."""
    kinds = [nothing, *(plant for plant, _ in PLANTED.values())]
    expected = ["", *(words for _, words in PLANTED.values())]
    source, target = unique("source"), unique("target")
    for region, topic in (("a", source), ("b", target)):
        create_topic(KafkaAdmin({"bootstrap.servers": stack.brokers[region].bootstrap}), topic, partitions=len(kinds))
    whole = batch_of(some_rows)
    load(dict.fromkeys(range(len(kinds)), whole), bootstrap=stack.brokers["a"].bootstrap, topic=source)
    changed = {number: batch_of(numbered(plant(some_rows))) for number, plant in enumerate(kinds)}
    load(changed, bootstrap=stack.brokers["b"].bootstrap, topic=target)

    wanted = [(row["key"], row["value"], tuple(row["headers"]), row["timestamp"]) for row in some_rows]
    for log in read_topic(stack.brokers["a"].bootstrap, source, len(kinds)).values():  # shares no code with the judge
        assert [(r.key, r.value, r.headers, r.timestamp[1]) for r in log.records] == wanted

    objects = MemoryObjectStore()
    store = SegmentStore(objects, "data")
    sources = [SourcePartition("a", source, number) for number in range(len(kinds))]
    for one in sources:
        put(store, one, some_rows)
    here, there = (
        from_mapping(
            {
                "region": region,
                "kafka": {"bootstrap.servers": stack.brokers[region].bootstrap},
                "s3": {"bucket": "unused", "region_name": REGION},
            },
            source=region,
        )
        for region in "ab"
    )
    with Verification(here, Selection(region="a", topics=[TopicPattern(source)]), objects=objects) as verification:
        verdicts = judge(verification, sources, here, there, target)
    assert [verdict.source.digest for verdict in verdicts] == [digest_of([whole])] * len(kinds)
    assert [verdict.archive.digest for verdict in verdicts] == [digest_of([whole])] * len(kinds)
    assert verdicts[0].equal
    for verdict, words in list(zip(verdicts, expected, strict=True))[1:]:
        (difference,) = verdict.differences
        assert difference.startswith("target: ")
        assert words in difference


@pytest.mark.integration
def test_partitions_are_those_of_the_clients_own_partitioner(stack: LocalStack, unique: Callable[[str], str]) -> None:
    bootstrap, topic = stack.brokers["a"].bootstrap, unique("flights")
    create_topic(KafkaAdmin({"bootstrap.servers": bootstrap}), topic, partitions=6)
    parts = by_partition(flights(FEW), 6)
    homes = {key: number for number, part in parts.items() for key in part.column("key").drop_null().to_pylist()}
    found: dict[bytes | None, int | None] = {}

    def delivered(_: KafkaError | None, message: Message) -> None:
        found[message.key()] = message.partition()

    with closing(Producer({"bootstrap.servers": bootstrap})) as producer:
        for key in homes:
            producer.produce(topic, b"", key, on_delivery=delivered)
        assert producer.flush(20) == 0
    assert found == homes
