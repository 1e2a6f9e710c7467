"""A drill that fails outright leaves no measurements of an earlier one that was good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest

from formats.errors import StoreUnavailable
from replicator import main
from replicator.drill import DrillStopped
from replicator.verify.verify import Verification

CONFIG = """
region = "a"
[kafka]
"bootstrap.servers" = "localhost:9092"
[s3]
bucket = "b"
"""


def drill(folder: Path, error: Exception, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The files of its metrics and its history, after an earlier one that was good."""

    def failing(_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(Verification, "sources", failing)
    config, metrics, history = folder / "a.toml", folder / "drill.prom", folder / "drills.jsonl"
    config.write_text(CONFIG)
    metrics.write_text('replicator_drill_differences{region="a"} 0.0\n')
    files = ["--metrics-file", str(metrics), "--history", str(history)]
    with pytest.raises(SystemExit) as caught:
        main.main(["drill", *files, "--config", str(config)])
    assert caught.value.code == 1
    return metrics, history


def test_its_metrics_are_not_those_of_the_last_good_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, history = drill(tmp_path, StoreUnavailable("the key is gone"), monkeypatch)
    assert 'replicator_drill_differences{region="a"} 1.0' in metrics.read_text()
    (line,) = history.read_text().splitlines()
    assert json.loads(line)["differences"] == ["the drill failed: the key is gone"]
    assert json.loads(line)["good"] is False


def test_one_that_is_stopped_says_nothing_of_a_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, history = drill(tmp_path, DrillStopped("stopped"), monkeypatch)
    assert 'replicator_drill_differences{region="a"} 0.0' in metrics.read_text()
    assert not history.exists()
