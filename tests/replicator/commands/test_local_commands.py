"""`replicator local env`: the variables of a detached stack."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from infra.local.cache import CACHE_VARIABLE, cache_dir
from infra.local.detached import STATE_FILE, StackState
from infra.local.identity import ProcessIdentity, process_start
from tests.replicator.test_main import Run, run

__all__ = ["run"]  # a fixture


def detached(*, alive: bool) -> None:
    """The state file of a stack whose only process is this one, or has ended."""
    started = process_start(os.getpid()) if alive else "at another time"
    folder = cache_dir() / "local-stack"
    folder.mkdir()
    state = StackState(
        dir=folder,
        keep_dir=False,
        kafka_version="4.0.0",
        started_at=datetime.now(UTC),
        brokers={"a": "127.0.0.1:1", "us-east": "127.0.0.1:2"},
        endpoint_url="http://127.0.0.1:3",
        processes={"supervisor": ProcessIdentity(pid=os.getpid(), started=started)},
    )
    (folder / STATE_FILE).write_text(json.dumps(state.to_json()), encoding="utf-8")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


def test_a_shell_takes_the_variables(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    detached(alive=True)
    monkeypatch.setenv("NO_PROXY", "x y")
    text = run("local", "env").out
    wanted = json.loads(run("local", "env", "--json").out)
    assert wanted == {
        "KAFKA_A": "127.0.0.1:1",
        "KAFKA_US_EAST": "127.0.0.1:2",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:3",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "x y,127.0.0.1",
        "no_proxy": "x y,127.0.0.1",
    }
    printed = "; ".join(f'echo "${{{name}}}"' for name in wanted)
    found = subprocess.run(["sh", "-c", f"{text}\n{printed}"], capture_output=True, text=True, check=True, env={})
    assert found.stdout.splitlines() == list(wanted.values())


def test_without_a_stack_there_are_none(run: Run) -> None:
    result = run("local", "env")
    assert (result.code, result.out) == (1, "")
    assert "replicator local up --detach" in result.err


def test_of_a_stack_that_has_ended_there_are_none(run: Run) -> None:
    detached(alive=False)
    result = run("local", "env")
    assert (result.code, result.out) == (1, "")
    assert "replicator local status" in result.err
