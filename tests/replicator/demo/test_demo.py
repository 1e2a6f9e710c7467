"""The demo: its flights, its judge (which must detect every kind of difference), and a whole run with few flights."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, Message, Producer
from rich.console import Console

from formats.footer import SegmentOrigin
from formats.parquet.writer import ParquetFormat
from formats.records.align import StreamRead, compare_streams
from formats.records.digest import digest_of
from formats.records.scope import RecordFilter
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from formats.topic_selection import TopicPattern
from infra.archive.segments import SegmentStore
from infra.contracts.cluster import TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local import detached
from infra.local.aws import REGION
from infra.local.cache import CACHE_VARIABLE, cache_dir
from infra.local.errors import LocalStackError
from infra.local.identity import identify
from infra.local.waiting import wait_until
from infra.runtime.lifecycle import SystemClock
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.config import from_mapping
from replicator.config import load as load_config
from replicator.demo import run
from replicator.demo.disaster import Recovery
from replicator.demo.flights import by_partition, flights
from replicator.demo.judge import PartitionVerdict, differing, judge
from replicator.demo.live import Latencies
from replicator.demo.load import create_topic, load
from replicator.demo.progress import TopicPositions
from replicator.demo.report import DemoReport, show
from replicator.demo.screen import Screen
from replicator.demo.script import Play, Scenario
from replicator.demo.services import Names, Segments, Services, write_configs
from replicator.selection import Selection
from replicator.verify.verifier import ArchiveVerdict, TargetVerdict, Verifier
from replicator.verify.verify import Verification
from tests.fakes.archive import archive_of
from tests.formats.sample_records import Row, batch_of, rows_of
from tests.processes.judge import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from infra.local.stack import LocalStack

ROOT = Path(__file__).resolve().parent.parent.parent.parent
ALL = 336_776
FEW = 3_000
SMALL = Scenario(live_records=40)
FORMAT = ParquetFormat()
SOURCE = SourcePartition("a", "flights", 0)


@pytest.fixture(scope="module")
def all_flights() -> pa.RecordBatch:
    return flights()


@pytest.fixture(scope="module")
def some_rows() -> list[Row]:
    """Twelve flights: one without a tail number, and one that never left."""
    found = rows_of([flights(FEW)])
    unknown = next(row for row in found if row["key"] is None)
    grounded = next(row for row in found if ("dep_delay", None) in row["headers"] and row is not unknown)
    return numbered([*found[:10], unknown, grounded])


def numbered(rows: list[Row], first: int = 0) -> list[Row]:
    return [row | {"offset": first + i} for i, row in enumerate(rows)]


def _keyed(records: pa.RecordBatch) -> Iterator[tuple[bytes, bytes]]:
    pairs = zip(records.column("key").to_pylist(), records.column("value").to_pylist(), strict=True)
    return ((key, value) for key, value in pairs if key is not None)


class TestFlights:
    def test_all_flights_are_read_and_match_the_schema(self, all_flights: pa.RecordBatch) -> None:
        all_flights.validate(full=True)
        assert all_flights.num_rows == ALL
        assert all_flights.column("key").null_count == 2_512
        assert all_flights.column("value").null_count == 0

    def test_a_record_has_the_fields_of_its_row(self, some_rows: list[Row]) -> None:
        first = some_rows[0]
        assert first["key"] == b"N14228"
        assert datetime.fromtimestamp(first["timestamp"] / 1000, UTC) == datetime(2013, 1, 1, 10, 15, tzinfo=UTC)
        assert first["headers"] == [("carrier", b"UA"), ("airport", b"EWR"), ("airport", b"IAH"), ("dep_delay", b"2")]
        value = json.loads(first["value"])
        assert (value["tailnum"], value["distance"], value["time_hour"]) == ("N14228", 1400, "2013-01-01T10:00:00Z")

    def test_values_are_json_with_nulls(self, all_flights: pa.RecordBatch) -> None:
        rows = [json.loads(value) for value in all_flights.column("value").to_pylist()[::97]]
        assert {len(row) for row in rows} == {19}
        assert any(row["dep_time"] is None for row in rows)
        assert all(row["year"] == 2013 for row in rows)

    def test_a_flight_that_never_left_has_a_header_without_a_value(self, some_rows: list[Row]) -> None:
        assert some_rows[-1]["headers"][-1] == ("dep_delay", None)
        assert json.loads(some_rows[-1]["value"])["dep_delay"] is None

    def test_partitions_keep_keys_together_and_in_order(self, all_flights: pa.RecordBatch) -> None:
        parts = by_partition(all_flights, 6)
        assert sum(part.num_rows for part in parts.values()) == ALL
        keys = [set(part.column("key").drop_null().to_pylist()) for part in parts.values()]
        assert sum(map(len, keys)) == len(set.union(*keys))
        assert all(part.column("key").null_count for part in parts.values())
        for part in parts.values():
            assert part.column("offset").to_pylist() == list(range(part.num_rows))
        home = {key: number for number, some in enumerate(keys) for key in some}
        wanted: dict[int, list[bytes]] = {number: [] for number in parts}
        for key, value in _keyed(all_flights):
            wanted[home[key]].append(value)
        assert {number: [value for _, value in _keyed(part)] for number, part in parts.items()} == wanted

    def test_a_limit_takes_the_first(self, all_flights: pa.RecordBatch) -> None:
        assert flights(10).equals(all_flights.slice(0, 10))


# ---------- the judge


def lost(rows: list[Row]) -> list[Row]:
    return rows[:4] + rows[5:]


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


WHOLE = ArchiveVerdict(source=SOURCE, offsets=None, objects=1, size_bytes=1, read={})
TOPIC = TopicPartition("flights", 0)


def side(rows: list[Row]) -> list[pa.RecordBatch]:
    return [batch_of(rows)] if rows else []


def compared(first: list[pa.RecordBatch], second: list[pa.RecordBatch]) -> TargetVerdict:
    return TargetVerdict(source=SOURCE, target=TOPIC, result=compare_streams(iter(first), iter(second)))


def verdict_of(
    source: list[pa.RecordBatch], archive: list[pa.RecordBatch], target: list[pa.RecordBatch]
) -> PartitionVerdict:
    return PartitionVerdict(
        partition=0, alone=WHOLE, archived=compared(archive, source), delivered=compared(source, target)
    )


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
        plant, told = PLANTED[kind]
        changed = numbered(plant(some_rows))
        assert changed != some_rows
        whole = side(some_rows)
        (said,) = verdict_of(whole, whole, side(changed)).differences
        assert said.startswith("target: ")
        assert told in said
        (said,) = verdict_of(whole, side(changed), whole).differences
        assert said.startswith("archive: ")

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
        plant, told = PLANTED[kind]
        restored = compared(side(some_rows), side(numbered(plant(some_rows))))
        (said,) = self.recovery(some_rows, restored).differences
        assert said.startswith("partition 0: restored: ")
        assert told in said

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
    told = ["", *(words for _, words in PLANTED.values())]
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
    for verdict, words in list(zip(verdicts, told, strict=True))[1:]:
        (said,) = verdict.differences
        assert said.startswith("target: ")
        assert words in said


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


# ---------- what is said


def latencies(*seconds: float, sent: int | None = None) -> Latencies:
    return Latencies(sent=len(seconds) if sent is None else sent, seconds=seconds)


def report_of(*verdicts: PartitionVerdict, produced: int, live: Latencies | None = None) -> DemoReport:
    return DemoReport(
        produced=produced,
        verdicts=verdicts,
        latencies=live or latencies(0.5, 1.5),
        max_segment_age=timedelta(seconds=1),
        objects=3,
        stored_bytes=1000,
        raw_bytes=2000,
        compacted_objects=1,
        compacted_bytes=800,
        took=timedelta(seconds=42.04),
    )


def shown(report: DemoReport, *, terminal: bool = False) -> str:
    text = io.StringIO()
    show(report, Console(file=text, width=80, force_terminal=terminal))
    return text.getvalue()


class TestReport:
    def test_equal(self, some_rows: list[Row]) -> None:
        whole = side(some_rows)
        report = report_of(verdict_of(whole, whole, whole), produced=12)
        assert report.equal
        text = shown(report)
        assert "All 12 records are equal" in text
        assert "p50 0.50 s, p99 1.50 s" in text
        assert digest_of(whole).content[:12] in text
        assert "0-11" in text

    def test_plain_text_has_no_control_characters_and_the_table_fits(self, some_rows: list[Row]) -> None:
        whole = side(some_rows)
        lines = shown(report_of(verdict_of(whole, side(lost(some_rows)), whole), produced=12)).splitlines()
        assert all(character.isprintable() for line in lines for character in line)
        table = lines[: lines.index("", 1)]
        assert max(map(len, table)) <= 80
        assert "\x1b[" in shown(report_of(produced=0), terminal=True)

    def test_a_difference_is_printed_and_counts(self, some_rows: list[Row]) -> None:
        whole = side(some_rows)
        report = report_of(verdict_of(whole, whole, side(lost(some_rows))), produced=12)
        assert not report.equal
        assert "partition 0: target: 1 record(s) missing" in shown(report)
        assert "differs" in shown(report)

    def test_three_empty_sides_are_not_equal_to_the_produced_records(self) -> None:
        nowhere = side([])
        report = report_of(verdict_of(nowhere, nowhere, nowhere), produced=12)
        assert report.differences == ("source: 12 records were produced, 0 were read",)

    def test_a_live_record_that_was_not_read_is_a_difference(self, some_rows: list[Row]) -> None:
        whole = side(some_rows)
        report = report_of(verdict_of(whole, whole, whole), produced=12, live=latencies(0.5, sent=2))
        assert report.differences == ("live: 2 records sent, 1 seen",)

    def test_the_json_has_the_whole_report(self, some_rows: list[Row]) -> None:
        whole = side(some_rows)
        values = json.loads(json.dumps(report_of(verdict_of(whole, whole, whole), produced=12).to_json()))
        assert values["equal"] is True
        assert values["partitions"][0]["target"] == {
            "records": 12,
            "first_offset": 0,
            "last_offset": 11,
            "digest": digest_of(whole).content,
        }
        assert values["live"]["p99_seconds"] == 1.5
        assert values["seconds"] == 42.0


class TestLatencies:
    def test_percentiles_are_nearest_ranks(self) -> None:
        hundred = latencies(*(n / 100 for n in range(1, 101)))
        assert hundred.percentile(50) == 0.50
        assert hundred.percentile(99) == 0.99
        assert latencies(1.0, 2.0, 3.0).percentile(50) == 2.0
        assert latencies(1.0, 2.0, 3.0).percentile(99) == 3.0
        assert latencies(1.0).percentile(1) == 1.0
        assert latencies().percentile(50) is None

    def test_latencies_must_be_in_order(self) -> None:
        with pytest.raises(ValueError, match="order"):
            latencies(2.0, 1.0)


class TestStanding:
    def test_complete_when_each_target_partition_has_as_many_offsets(self) -> None:
        standing = TopicPositions(source={0: 5, 1: 7, 2: 0}, archive={}, target={0: 5, 1: 7})
        assert standing.complete
        assert not replace(standing, target={0: 6, 1: 6}).complete
        assert not replace(standing, target={}).complete


def test_the_configuration_files_are_valid(tmp_path: Path) -> None:
    brokers = {"a": "127.0.0.1:1", "b": "127.0.0.1:2"}
    names = replace(Names.usual(), topic="odd.name", copy="odd.copy")
    files = write_configs(
        tmp_path, brokers=brokers, endpoint_url="http://127.0.0.1:3", names=names, segments=Segments()
    )
    a, b = load_config(files["a"]), load_config(files["b"])
    assert a.egress is not None
    assert a.egress.topics[0].pattern.text == "odd.name"
    assert a.egress.topics[0].settings.max_segment_age == timedelta(seconds=1)
    assert a.sync is not None
    assert a.sync.destination.bucket == b.s3.bucket
    assert a.s3.access_key_id is None  # no secret in a file: the services' environment has the credentials
    assert b.ingress is not None
    assert b.ingress.sources[0].destination("odd.name") == "odd.copy"


# ---------- the whole of it


@pytest.mark.integration
def test_the_demo_on_few_flights() -> None:
    text = io.StringIO()
    code = run(keep=False, console=Console(file=text), limit=FEW, scenario=SMALL)
    assert code == 0, text.getvalue()
    assert "All 3,040 records are equal in source, archive and target" in text.getvalue()
    assert "Latency of 40 live records" in text.getvalue()
    assert "Region a was lost, and its 3,040 records were restored" in text.getvalue()
    assert "\x1b" not in text.getvalue()


@pytest.mark.integration
def test_a_service_that_ends_is_reported_with_its_log(stack: LocalStack, tmp_path: Path) -> None:
    services = Services(stack, dict.fromkeys(("a", "b"), tmp_path / "absent.toml"))
    try:

        def told() -> bool:
            services.check()
            return False

        with pytest.raises(LocalStackError, match=r"ended with 2\nlog: (.|\n)*there is no such file"):
            wait_until(told, timedelta(seconds=30))
    finally:
        services.kill()


@pytest.mark.integration
def test_a_demo_without_progress_names_the_logs(stack: LocalStack, unique: Callable[[str], str]) -> None:
    names = Names(
        topic=unique("flights"),
        copy=unique("copy"),
        buckets={region: unique("archive") for region in "ab"},
        queues={region: unique("events") for region in "ab"},
    )
    scenario = replace(SMALL, patience=timedelta(milliseconds=1), names=names)  # shorter than the start of any service
    read: Future[pa.RecordBatch] = Future()
    read.set_result(flights(100))
    with Play(stack, scenario, Screen(Console(file=io.StringIO()))) as play:
        try:
            with pytest.raises(LocalStackError, match=r"no progress.*of 100 records in region a, 0 are") as error:
                play.run(read, since=0)
        finally:
            play.kill()
    assert str(stack.log_dir) in str(error.value)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with Kafka from the user's cache: the user's own detached stack is not affected."""
    for present in cache_dir().glob("kafka-*"):
        if not present.name.endswith(".lock"):
            (tmp_path / present.name).symlink_to(present)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    return tmp_path


@pytest.mark.long  # that a detached stack runs until `down` is also tested without the demo
@pytest.mark.integration
def test_a_kept_demo_keeps_running_until_down(own_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = io.StringIO()
    code = run(keep=True, console=Console(file=answer), json=True, limit=FEW, scenario=SMALL)
    try:
        said = capsys.readouterr()
        assert code == 0, said.err
        found = detached.status()
        assert found is not None
        assert found.up
        assert {"egress", "sync", "ingress"} <= found.alive.keys()
        values = json.loads(answer.getvalue())
        assert values["equal"] is True
        assert values["stack"] == found.state.to_json()
        assert said.out == ""
        assert "replicator local down" in said.err
        assert "Starting two Kafka brokers" in said.err
        assert str(own_cache / "local-stack" / "region-b.toml") in said.err
    finally:
        ended = detached.down()
    assert ended is not None
    assert not any(process.alive() for process in ended.processes.values())


INTERRUPTED = """
import signal, sys
from rich.console import Console
from replicator.demo import run

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
sys.exit(run(keep=False, console=Console()))
"""


def descendants(pid: int) -> list[int]:
    told = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    children: dict[int, list[int]] = {}
    for line in told.splitlines():
        child, parent = map(int, line.split())
        children.setdefault(parent, []).append(child)
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found[1:]


@pytest.mark.integration
@pytest.mark.long
def test_an_interrupt_ends_everything(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as demo:
        try:
            assert demo.stdout is not None
            while "Loading" not in (line := demo.stdout.readline()):
                assert line, "the demo ended before it loaded anything"
            running = [one for pid in descendants(demo.pid) if (one := identify(pid)) is not None]
            assert len(running) >= 7  # supervisor, two brokers, moto, three services
            demo.send_signal(signal.SIGINT)
            rest = demo.stdout.read()
            assert demo.wait(30) == 130
        finally:
            demo.kill()
    assert "Interrupted" in rest
    assert "Traceback" not in rest
    assert wait_until(lambda: not any(one.alive() for one in running), timedelta(seconds=10))
