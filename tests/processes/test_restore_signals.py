"""`replicator restore` in a shell: on a signal it prints its progress and ends, and the same command resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.contracts.cluster import TopicPartition
from infra.local.aws import s3_client
from infra.local.waiting import wait_until
from infra.storage.s3 import S3ObjectStore
from tests.fakes.kafka_target import target_records
from tests.infra.cluster import Cluster
from tests.processes.harness import A, B, to_toml
from tests.replicator.restore.large import ROWS, fill, rows

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = pytest.mark.integration

PATIENCE = timedelta(seconds=60)
ROOT = Path(__file__).resolve().parent.parent.parent
SEGMENTS = 4


class Command:
    """A restore of the site's archive into region b."""

    def __init__(self, site: Site, name: str) -> None:
        self._site, self.name = site, name
        self.cluster = Cluster(site.stack.brokers[B])
        self._config = site.folder / "restore.toml"
        kafka = {"bootstrap.servers": site.bootstrap(B)}
        self._config.write_text(to_toml({"region": A, "kafka": kafka, "s3": site.s3()}), encoding="utf-8")
        self.err_file = site.folder / "restore.err"

    @contextmanager
    def running(self, *more: str) -> Iterator[subprocess.Popen[bytes]]:
        arguments = ["restore", "orders", "--rename", f"orders={self.name}", "--config", str(self._config), *more]
        with self.err_file.open("wb") as err, (self._site.folder / "restore.out").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "replicator", *arguments],
                cwd=ROOT,
                env=self._site.environment,
                stdout=out,
                stderr=err,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait(PATIENCE.total_seconds())

    def records(self) -> int:
        return len(self.cluster.records(TopicPartition(self.name, 0))) if self.name in self.cluster.topics() else 0

    def err(self) -> str:
        return self.err_file.read_text(encoding="utf-8", errors="replace")


@pytest.fixture
def command(site: Site) -> Command:
    with closing(s3_client(site.stack.moto.endpoint_url)) as s3:
        fill(S3ObjectStore(s3, site.bucket), "orders", 1, SEGMENTS)
    return Command(site, f"{site.name}.restored")


@pytest.mark.long
def test_a_follower_ends_when_it_is_asked_to(command: Command) -> None:
    for _ in range(3):  # the first has work to do, the others wait for some
        with command.running("--follow", "--every", "200ms") as process:
            assert wait_until(lambda: "restored so far" in err_while_running(process, command), PATIENCE)
            process.terminate()
            assert process.wait(PATIENCE.total_seconds()) == 0, command.err()
        assert "stopping; " in command.err()
        assert "following 1 partitions" in command.err()
        assert "Traceback" not in command.err()
    assert command.records() <= SEGMENTS * ROWS


def err_while_running(process: subprocess.Popen[bytes], command: Command) -> str:
    assert process.poll() is None, command.err()
    return command.err()


@pytest.mark.long
def test_ctrl_c_says_where_it_stands_and_the_same_command_goes_on(command: Command) -> None:
    answered: list[float] = []
    for _ in range(2):
        before = command.records()
        with command.running("--max-rate", "100KiB") as process:
            assert wait_until(lambda: "partitions are over" in err_while_running(process, command), PATIENCE)
            assert wait_until(lambda before=before: command.records() > before, PATIENCE), command.err()  # type: ignore[misc]
            began = time.monotonic()
            os.kill(process.pid, signal.SIGINT)
            assert wait_until(lambda: "stopping; " in command.err(), PATIENCE, interval=timedelta(milliseconds=10))
            answered.append(time.monotonic() - began)
            assert process.wait(PATIENCE.total_seconds()) == 130, command.err()
        assert "run the same command again to resume it" in command.err()
        assert "Traceback" not in command.err()
    assert min(answered) < 1, answered  # the machine has others to serve
    with command.running() as process:
        assert process.wait(PATIENCE.total_seconds()) == 0, command.err()
    assert command.cluster.records(TopicPartition(command.name, 0)) == target_records(rows(0, SEGMENTS))


@pytest.mark.long
def test_a_second_signal_ends_it_at_once(command: Command) -> None:
    with command.running("--max-rate", "100KiB") as process:
        assert wait_until(lambda: "partitions are over" in err_while_running(process, command), PATIENCE)
        assert wait_until(lambda: command.records() > 0, PATIENCE), command.err()
        with command.cluster.frozen():  # it cannot finish what is in flight
            process.terminate()
            assert wait_until(lambda: "stopping; " in command.err(), PATIENCE)
            process.terminate()
            assert process.wait(PATIENCE.total_seconds()) == 128 + signal.SIGTERM
