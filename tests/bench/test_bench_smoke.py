"""The benchmark runs to its end and writes its results; with so few records its numbers mean nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.child import ROOT
from bench.data import records

if TYPE_CHECKING:
    from infra.local.stack import LocalStack

BARE_LINES = 60


@pytest.mark.integration
def test_it_measures_and_writes(stack: LocalStack, tmp_path: Path) -> None:
    place = ["--bootstrap", stack.brokers["a"].bootstrap, "--endpoint-url", stack.moto.endpoint_url]
    few = ["--records", "6000", "--rounds", "1", "--partitions", "20", "--kind", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *place, *few, "--output", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr  # targets are for the full run
    found = json.loads((tmp_path / "bench.json").read_text())
    lines = {line["service"]: line for line in found["results"]["lines"]}
    assert {service: line["records"] for service, line in lines.items()} == {
        "egress": 6000,
        "ingress": 6000,
        "ingress, at least once": 6000,
    }
    for line in lines.values():
        (ours,), (bare,) = line["ours"], line["bare"]
        assert ours["other"]["records"] == 6000
        assert ours["seconds"] > 0
        assert bare["seconds"] > 0
        assert 0 < ours["cpu_seconds"] < ours["whole_cpu_seconds"]
    assert lines["egress"]["ours"][0]["other"]["requests"]["put_new"] == 7  # six segments, and the claim of their place
    assert found["results"]["many"]["egress"]["other"]["requests"]["put_new"] >= 20
    assert found["results"]["stored_ratio"]["json"] > 2
    assert len(found["targets"]) == 4
    assert "| 1 kB JSON" in (tmp_path / "bench.md").read_text()
    assert "of bare" in done.stdout


def test_merging_is_measured(tmp_path: Path) -> None:
    few = ["--rounds", "1", "--partitions", "2", "--segments", "2", "--records", "100"]
    done = subprocess.run(
        [sys.executable, "-m", "bench.merge", *few, "--output", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "bench-compaction.md").read_text()
    assert "400 records" in table
    assert "| Spark local[2] against one process" in table


def test_the_bare_loops_stay_bare() -> None:
    assert len((ROOT / "bench" / "bare.py").read_text().splitlines()) < BARE_LINES


def test_the_records_are_the_same_every_time() -> None:
    first, again = records("json", 1000, 6), records("json", 1000, 6)
    assert (first.values, first.headers) == (again.values, again.headers)
    assert len(set(first.values)) == 1000
    assert {len(value) for value in first.values} == {1024}
