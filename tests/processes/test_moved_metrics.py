"""The judge of moved metrics fails a run in which one did not move, alone and on two workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from infra.runtime.metrics import COUNTERS, GAUGES, HISTOGRAMS
from tests.processes.moved_metrics import NEEDED, verdict

ROOT = Path(__file__).resolve().parent.parent.parent
ALL = frozenset({*COUNTERS, *GAUGES, *HISTOGRAMS})

CONFTEST = """
import pytest
from tests.processes.moved_metrics import MOVED, MovedMetrics

def pytest_configure(config):
    config.pluginmanager.register(MovedMetrics(config))

@pytest.fixture
def moved(request):
    return request.config.stash[MOVED]
"""


def test_what_is_missing_and_what_is_unknown_is_named() -> None:
    one = min(ALL)
    assert verdict(ALL) == ""
    assert verdict(ALL - {one}) == f"never moved: {one}"
    assert verdict({*ALL, "no_such"}) == "unknown: no_such"


@pytest.mark.parametrize(
    ("workers", "whole"),
    [((), True), (("-n", "2", "--dist", "loadfile"), False)],
    ids=["all moved", "one did not, on two workers"],
)
def test_a_run_is_judged_when_it_ends(tmp_path: Path, workers: tuple[str, ...], whole: bool) -> None:
    shares = dict.fromkeys(sorted(NEEDED), frozenset[str]())
    for number, name in enumerate(sorted(ALL)[0 if whole else 1 :]):
        file = sorted(NEEDED)[number % len(NEEDED)]
        shares[file] |= {name}
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    for file, names in shares.items():
        test = f"def test_it(moved): moved.update({sorted(names)!r})\n"
        (tmp_path / file).write_text(test, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", *workers]
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if whole else 1), done.stdout + done.stderr
    assert ("never moved: " + min(ALL) in done.stdout) is not whole
