"""Ctrl-C in commands that end by themselves: one sentence, code 130, at once, whatever they wait for."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from tests.integration.bucket import Bucket
from tests.integration.on_spark import PATIENCE
from tests.processes.below import marked
from tests.processes.s3_proxy import ANY, Hang, S3Proxy, proxied

pytestmark = pytest.mark.integration

SOON = 1.0  # seconds, where nothing else works; and of a machine's own slowness:
STARTS = 20  # times of an empty Python, which takes 20 ms there


@pytest.fixture
def bucket(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Bucket]:
    made = Bucket(stack, unique, tmp_path)
    yield made
    made.client.close()


@pytest.fixture
def proxy(bucket: Bucket) -> Iterator[S3Proxy]:
    with proxied(bucket.endpoint_url) as running:
        yield running


class SilentBroker:
    """Takes connections and says nothing."""

    def __init__(self, server: socket.socket) -> None:
        self._server, self._kept = server, list[socket.socket]()
        self.port: int = server.getsockname()[1]
        self.was_met = threading.Event()
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        while True:
            try:
                self._kept.append(self._server.accept()[0])
            except OSError:
                return
            self.was_met.set()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for one in (*self._kept, self._server):
            one.close()


@pytest.fixture
def broker() -> Iterator[SilentBroker]:
    with closing(SilentBroker(socket.create_server(("127.0.0.1", 0)))) as silent:
        yield silent


def everything(bucket: Bucket, endpoint_url: str) -> dict[str, Any]:
    """A file with a section for each of these commands."""
    tables = bucket.tables()
    tables["s3"]["endpoint_url"] = endpoint_url
    destination = {**tables["s3"], "prefix": "there", "secret_access_key": "${SECRET}"}
    return tables | {"sync": {"destination": destination}, "retention": {"topics": {"^.*": {"max_age": "1d"}}}}


def interrupted(process: subprocess.Popen[str], there: Callable[[], bool], *, to_all: bool = False) -> str:
    """What it wrote to stderr, after Ctrl-C once it was `there`."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", ""], check=True)
    limit = SOON + STARTS * (time.monotonic() - began)
    try:
        assert wait_until(lambda: there() or process.poll() is not None, PATIENCE)
        assert process.poll() is None, process.communicate()
        at = time.monotonic()
        (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT)
        process.wait(60)
        took = time.monotonic() - at
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        _, err = process.communicate()
    assert process.returncode == 130, err
    assert took < limit, f"{took:.1f} s, of {limit:.1f}"
    return err


STAYS = {
    "status": "nothing was changed",
    "gaps": "nothing was changed",
    "verify": "nothing was changed",
    "drill": "nothing was measured",
    "gc": "the next run plans the rest anew",
    "compact --once": "the next run plans the rest anew",
    "sync --once": "the next run copies the rest",
}
LIKE_ANOTHER = {"gaps", "verify", "gc"}  # with a sentence that `make test` sees of another command


@pytest.mark.parametrize(
    ("command", "stays"),
    [
        pytest.param(line, stays, marks=pytest.mark.long if line in LIKE_ANOTHER else (), id=line)
        for line, stays in STAYS.items()
    ],
)
def test_while_the_store_hangs(bucket: Bucket, proxy: S3Proxy, command: str, stays: str) -> None:
    proxy.break_(ANY, Hang())
    tables = everything(bucket, proxy.endpoint_url)
    name, *options = command.split()
    process = bucket.command(*options, tables=tables, command=name, own_group=True)
    output = interrupted(process, lambda: proxy.met(Hang()) > 0)
    assert [line for line in output.splitlines() if "replicator: " in line] == output.splitlines()[-1:]
    assert output.splitlines()[-1].startswith("replicator: interrupted; ")
    assert stays in output.splitlines()[-1]
    assert "Traceback" not in output


def test_while_no_broker_answers(bucket: Bucket, broker: SilentBroker) -> None:
    """The client waits in C, where no signal reaches Python."""
    tables = bucket.tables()
    del tables["compaction"]
    tables |= {
        "kafka": {"bootstrap.servers": f"127.0.0.1:{broker.port}"},
        "egress": {"topics": {"^.*": {}}},
    }
    output = interrupted(bucket.command(tables=tables, command="status", own_group=True), broker.was_met.is_set)
    assert output == "replicator: interrupted; nothing was changed\n"


@pytest.mark.parametrize(
    ("at_work", "to_all"),
    [
        pytest.param(True, False, marks=pytest.mark.long, id="at-work"),
        pytest.param(False, True, id="as-spark-starts, to its group"),
        pytest.param(True, True, marks=pytest.mark.long, id="at-work, to its group"),
        pytest.param(False, False, marks=pytest.mark.long, id="as-spark-starts"),
    ],
)
def test_on_spark(bucket: Bucket, proxy: S3Proxy, at_work: bool, to_all: bool) -> None:
    bucket.fill("orders", partitions=2, segments=3, rows=20)
    tables = bucket.tables()
    tables["s3"]["endpoint_url"] = proxy.endpoint_url
    if at_work:
        proxy.break_("GetObject", Hang())

    def there() -> bool:
        if at_work:
            return proxy.met(Hang()) > 0
        return any("java" in one.command for one in marked(str(bucket.scratch)))

    output = interrupted(bucket.command("--once", tables=tables, own_group=True), there, to_all=to_all)
    assert output.splitlines()[-1].startswith("replicator: interrupted; what was merged stays"), output
    assert "Traceback" not in output
    assert "py4j" not in output
    proxy.heal()
    gone = timedelta(seconds=20)  # a worker of Spark ends once it is back from its request
    assert wait_until(lambda: not marked(str(bucket.scratch)), gone), marked(str(bucket.scratch))
    assert list(bucket.scratch.iterdir()) == []


def test_while_the_scratch_cluster_of_a_drill_starts(bucket: Bucket) -> None:
    bucket.fill("orders", partitions=1, segments=1, rows=20)
    process = bucket.command(command="drill", own_group=True)
    output = interrupted(process, lambda: any("java" in one.command for one in marked(str(bucket.scratch))))
    assert output.splitlines()[-1] == "replicator: interrupted; nothing was measured"
    assert wait_until(lambda: not marked(str(bucket.scratch)), PATIENCE), marked(str(bucket.scratch))
    assert list(bucket.scratch.iterdir()) == []


def test_a_command_whose_parent_ignores_it_goes_on(bucket: Bucket) -> None:
    """As `nohup` and the background of a script want it."""
    ignored = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from replicator.__main__ import run; "
    script = f"{ignored}import os; os.kill(os.getpid(), signal.SIGINT); run()"
    command = [sys.executable, "-c", script, "config", "schema"]
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
