"""`replicator top` as a process, on a real cluster and a bucket: in a pseudo terminal, and without one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from tests.integration.bucket import RUN, Bucket
from tests.processes.harness import to_toml
from tests.replicator.terminal.test_live_screen import LEAVE, Terminal

pytestmark = [pytest.mark.integration, pytest.mark.long]

PATIENCE = timedelta(seconds=90)
STARTS = 20  # times of an empty Python, which takes 20 ms where nothing else works
ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> Path:
    """Region b, to which two partitions of region a are to be delivered; no process does it."""
    bucket = Bucket(stack, unique, tmp_path)
    topic = unique("orders")
    bucket.fill(topic, 2, 1, 30)
    tables = bucket.tables()
    del tables["compaction"]
    aws = {**tables["s3"], "secret_access_key": "${SECRET}"}
    sqs = {key: value for key, value in aws.items() if key != "bucket"}
    tables |= {
        "region": "b",
        "kafka": {"bootstrap.servers": stack.brokers["b"].bootstrap, "log_level": "0"},
        "s3": aws,
        "sqs": {"queue": unique("queue"), **sqs},
        "ingress": {
            "group_id": unique("ingress"),
            "checkpoint_topic": unique("checkpoints"),
            "sources": [{"region": "a", "topic": topic, "destination_topic": unique("copy")}],
        },
    }
    path = tmp_path / "b.toml"
    path.write_text(to_toml(tables))
    bucket.client.close()
    return path


@contextmanager
def running(file: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Terminal]]:
    user, program = os.openpty()
    terminal = Terminal(user, program)
    terminal.resize(120, 30)
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "top", "--config", str(file), *arguments],
        stdin=program,
        stdout=program,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "SECRET": "test"},
        start_new_session=True,
    )
    reader = threading.Thread(target=terminal.read)
    reader.start()
    try:
        yield process, terminal
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(program)
        reader.join()
        os.close(user)


def test_it_is_live_and_ends_by_a_key(file: Path) -> None:
    with running(file, "--interval", "0.5") as (process, terminal):
        assert wait_until(lambda: "60 behind" in terminal.text, PATIENCE), terminal.text
        assert "NO PROCESS RUNS" in terminal.text
        terminal.press("p")
        assert wait_until(lambda: "(2)" in terminal.text, PATIENCE), terminal.text
        terminal.press("q")
        assert process.wait(30) == 0
        assert wait_until(lambda: terminal.text.endswith(LEAVE), PATIENCE)
        assert termios.tcgetattr(terminal.program)[3] & termios.ICANON


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("servers", ["", "127.0.0.1:1"], ids=["running", "no broker"])
def test_a_signal_ends_it_at_once_and_the_terminal_is_as_before(
    file: Path, number: signal.Signals, code: int, servers: str
) -> None:
    if servers:
        text = file.read_text()
        line = next(one for one in text.splitlines() if "bootstrap.servers" in one)
        file.write_text(text.replace(line, f'"bootstrap.servers" = "{servers}"'))
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", ""], check=True)
    limit = 1 + STARTS * (time.monotonic() - began)
    with running(file, "--interval", "0.5") as (process, terminal):
        sign = "could not be read" if servers else "60 behind"
        assert wait_until(lambda: sign in terminal.text, PATIENCE), terminal.text
        at = time.monotonic()
        os.kill(process.pid, number)
        assert process.wait(60) == code
        assert time.monotonic() - at < limit
        assert wait_until(lambda: terminal.text.endswith(LEAVE), PATIENCE), terminal.text[-200:]
        assert termios.tcgetattr(terminal.program)[3] & termios.ICANON


def test_without_a_terminal_it_prints_one_frame(file: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", RUN, "top", "--config", str(file)],
        cwd=ROOT,
        env={**os.environ, "SECRET": "test"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "\x1b" not in run.stdout
    assert "region b" in run.stdout
    assert "60 behind" in run.stdout
    assert "quit" not in run.stdout
