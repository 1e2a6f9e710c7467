"""The demo: its flights, what it reports, and a whole run with few flights."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from formats.records.digest import digest_of
from infra.local import detached
from infra.local.cache import CACHE_VARIABLE, cache_dir
from infra.local.errors import LocalStackError
from infra.local.identity import identify
from infra.local.waiting import wait_until
from replicator.config import load as load_config
from replicator.demo import run
from replicator.demo.flights import by_partition, flights
from replicator.demo.judge import PartitionVerdict
from replicator.demo.live import Latencies
from replicator.demo.progress import TopicPositions
from replicator.demo.report import DemoReport, show
from replicator.demo.screen import Screen
from replicator.demo.script import Play, Scenario
from replicator.demo.services import Names, Segments, Services, write_configs
from tests.formats.sample_records import Row
from tests.replicator.demo.few_flights import FEW, lost, side, verdict_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from infra.local.stack import LocalStack


ROOT = Path(__file__).resolve().parent.parent.parent.parent
ALL = 336_776
SMALL = Scenario(live_records=40)


@pytest.fixture(scope="module")
def all_flights() -> pa.RecordBatch:
    return flights()


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


# --- the output -------------------------------------------------------------------------------------------------------


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


# --- the whole of it --------------------------------------------------------------------------------------------------


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

        def check() -> bool:
            services.check()
            return False

        with pytest.raises(LocalStackError, match=r"ended with 2\nlog: (.|\n)*there is no such file"):
            wait_until(check, timedelta(seconds=30))
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
        printed = capsys.readouterr()
        assert code == 0, printed.err
        found = detached.status()
        assert found is not None
        assert found.up
        assert {"egress", "sync", "ingress"} <= found.alive.keys()
        values = json.loads(answer.getvalue())
        assert values["equal"] is True
        assert values["stack"] == found.state.to_json()
        assert printed.out == ""
        assert "replicator local down" in printed.err
        assert "Starting two Kafka brokers" in printed.err
        assert str(own_cache / "local-stack" / "region-b.toml") in printed.err
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
    processes = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    children: dict[int, list[int]] = {}
    for line in processes.splitlines():
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
