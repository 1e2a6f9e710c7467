"""The benchmark completes and writes its results; with so few records its figures are meaningless."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bench import field_report, merge_threads, report
from bench.bare_segments import STEPS
from bench.child import ROOT
from bench.data import records
from bench.field_report import FieldRun
from bench.latency_report import LatencyRun
from bench.rows import MEASURED, TARGETS, BenchRun

if TYPE_CHECKING:
    from pathlib import Path

    from infra.local.stack import LocalStack

BARE_LINES = 60


ON_SPARK = tuple(name for name in MEASURED if "Spark" in name)


@pytest.fixture(scope="module", params=[pytest.param("--no-spark", id="here"), pytest.param(None, id="all")])
def run(
    request: pytest.FixtureRequest, stack: LocalStack, tmp_path_factory: pytest.TempPathFactory
) -> tuple[BenchRun, str]:
    """A small run, and its page."""
    output = tmp_path_factory.mktemp("bench")
    place = ["--bootstrap", stack.brokers["a"].bootstrap, "--endpoint-url", stack.moto.endpoint_url]
    place += ["--server-log", str(stack.log_dir / "moto.log")]
    few = ["--records", "6000", "--rounds", "1", "--partitions", "20", "--kind", "json"]
    few += [request.param] if request.param else []
    done = subprocess.run(
        [sys.executable, "-m", "bench", *place, *few, "--output", str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr  # targets are for the full run
    found = BenchRun.from_json((output / "bench.json").read_text())
    assert done.returncode == (0 if all(met for _, _, met in found.verdicts()) else 3)
    return found, (output / "bench.md").read_text()


@pytest.mark.integration
@pytest.mark.long
class TestASmallRun:
    def test_every_row_is_measured(self, run: tuple[BenchRun, str]) -> None:
        found, page = run
        left_out = () if found.plan["spark"] else ON_SPARK
        assert tuple(row.name for row in found.rows) == tuple(name for name in MEASURED if name not in left_out)
        assert tuple(found.not_measured) == left_out
        wanted = [one for one in TARGETS if one.data == "1 kB JSON, key, 2 headers" and one.row not in left_out]
        assert [target for target, _, _ in found.verdicts()] == wanted
        assert page == report.page(found)
        assert len(found.commit) == 40

    def test_every_program_processed_its_records(self, run: tuple[BenchRun, str]) -> None:
        rows = {row.name: row for row in run[0].rows}
        for row in rows.values():
            assert row.records > 0
            assert row.raw_bytes > 1000 * row.records
            assert all(result.seconds > 0 for result in (*row.ours, *row.floors))
            assert len(row.ours) == 1
            assert len(row.floors) == (1 if row.floor else 0)
        for name in ("egress", "ingress", "merge", "restore", "verify"):
            (ours,) = rows[name].ours
            assert ours.other["records"] == rows[name].records
            assert 0 < ours.cpu_seconds < ours.whole_cpu_seconds
        assert run[0].stored_ratio["1 kB JSON, key, 2 headers"] > 2
        (trickle,) = rows["egress, trickle"].ours
        assert 0 < trickle.other["wait_seconds"]["median"] <= trickle.other["wait_seconds"]["99 of 100"]
        assert 0 < rows["restore, first record"].figure("wait") < 60

    def test_requests_are_counted_by_the_server(self, run: tuple[BenchRun, str]) -> None:
        rows = {row.name: row for row in run[0].rows}
        requests = {name: rows[name].requests or {} for name in rows}
        assert requests["egress"]["PUT"] >= 7  # six segments, and the topic's claim
        assert requests["egress, many partitions"]["PUT"] >= 20
        assert requests["ingress"]["GET"] >= 6
        assert requests["merge"] == {"PUT": 4} | {k: n for k, n in requests["merge"].items() if k != "PUT"}
        assert requests["merge"]["GET"] == 44  # forty inputs, and four results to prove
        assert requests["verify"]["GET"] >= 12
        (decode,) = rows["verify"].floors
        objects = 12
        assert decode.other["requests"]["GET"] == objects  # the floor reads what `verify` reads, and no less
        control = requests["verify"]["GET"] - objects
        assert 0 <= control <= 12


def test_a_failure_is_not_a_missed_target() -> None:
    nowhere = ["--bootstrap", "127.0.0.1:9", "--endpoint-url", "http://127.0.0.1:9", "--records", "60"]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *nowhere], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stderr


def test_the_bare_loops_contain_nothing_else() -> None:
    assert len((ROOT / "bench" / "bare.py").read_text().splitlines()) < BARE_LINES


def test_the_records_are_the_same_every_time() -> None:
    first, again = records("json", 1000, 6), records("json", 1000, 6)
    assert (first.values, first.headers) == (again.values, again.headers)
    assert len(set(first.values)) == 1000
    assert {len(value) for value in first.values} == {1024}


@pytest.mark.integration
@pytest.mark.long
def test_services_on_spark_beside_plain_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.on_spark", "--records", "20000", "--rounds", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [line for line in done.stdout.splitlines() if line.startswith(("| egress", "| ingress"))]
    assert len(rows) == 10
    for row in rows:
        shares = [int(cell.strip(" %")) for cell in row.split("|")[7:13]]
        assert 97 <= sum(shares) <= 103, row


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.parametrize("server", ["moto", "folder", pytest.param("versitygw", marks=pytest.mark.real_s3)])
def test_a_small_run_of_the_field(server: str, tmp_path: Path) -> None:
    """Without the earlier commit, whose wheel takes minutes."""
    few = ["--alone", "--records", "4800", "--rounds", "1", "--partitions", "6", "--data", "json", "--data", "small"]
    done = _module("bench.field", *few, "--server", server, "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    found = FieldRun.from_json((tmp_path / "benchmarks.json").read_text(encoding="utf-8"))
    names = ["egress", "ingress", "restore"] * 2 if server != "folder" else ["egress", "ingress", "merge"]
    assert [row.name for row in found.rows] == names
    for row in found.rows:
        (pair,) = row.pairs["this commit"]
        assert pair.large.other["records"] == row.records == 4 * row.small
        assert pair.large.whole_cpu_seconds > 0
        assert row.floors
    if server != "folder":
        assert found.rows[0].pairs["this commit"][0].large.other["requests"]["PUT"] >= 7
    assert (tmp_path / "benchmarks.md").read_text(encoding="utf-8") == field_report.page(found)


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.parametrize("server", ["moto", pytest.param("versitygw", marks=pytest.mark.real_s3)])
def test_a_small_run_of_latency(server: str, tmp_path: Path) -> None:
    few = ["--age", "1s", "--seconds", "10", "--warm-up", "40", "--per-second", "100", "--partitions", "4"]
    done = _module("bench.latency", *few, "--server", server, "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = LatencyRun.from_json((tmp_path / "latency.json").read_text(encoding="utf-8")).rows
    assert row.is_whole
    assert row.arrived == 5_000
    assert row.segments > 0
    assert row.requests["PUT"] >= row.segments - 4  # some were stored as the measuring began
    assert 0.2 < row.ages["p50"] <= row.ages["p99"]
    assert set(row.bare) == set(STEPS)
    assert min(row.bare.values()) > 0
    if server == "versitygw":
        assert row.queue_delay
        assert row.notification_delay


def _module(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", name, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)


@pytest.mark.long
def test_merges_by_threads_and_by_processes(capsys: pytest.CaptureFixture[str]) -> None:
    assert merge_threads.main(["--records", "200", "--rounds", "1"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("merges by")
    assert [row.partition("|")[0].strip() for row in rows] == list(merge_threads.WAYS)
    assert all(int(row.split("|")[1].replace(",", "")) > 0 for row in rows)
