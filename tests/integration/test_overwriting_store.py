"""Every command that writes refuses a bucket that would let objects be overwritten, before it writes anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from formats.control.keys import probe_key
from formats.errors import ConfigError
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.local.aws import s3_client
from infra.local.stack import LocalStack
from replicator import main
from replicator.config import Config, load
from replicator.failover.failback import Handover, HandoverPlan
from replicator.services.clients import Clients
from tests.fakes.kafka_ledger import FakeLedger
from tests.infra.faulty_s3 import FaultyS3, faulty
from tests.processes.harness import to_toml

pytestmark = pytest.mark.integration

COMMANDS = [["egress"], ["sync", "--once"], ["compact", "--once"], ["gc"], ["gc", "--covered"]]
USAGE = 2


class Site:
    """Two buckets behind a server that drops If-None-Match, and a file for every command."""

    def __init__(self, stack: LocalStack, server: FaultyS3, name: str, file: Path) -> None:
        self.client = s3_client(stack.moto.endpoint_url)
        self.buckets = [f"{name}-here", f"{name}-there"]
        for bucket in self.buckets:
            self.client.create_bucket(Bucket=bucket)
        self.bootstrap, self.endpoint_url, self.file = stack.brokers["a"].bootstrap, server.endpoint_url, file

    def run(self, command: Sequence[str], **s3: Any) -> int:
        self.file.write_text(to_toml(self._tables(s3)), encoding="utf-8")
        with pytest.raises(SystemExit) as caught:
            main.main([*command, "--config", str(self.file)])
        assert isinstance(caught.value.code, int | None)
        return caught.value.code or 0

    def config(self) -> Config:
        self.file.write_text(to_toml(self._tables({})), encoding="utf-8")
        return load(self.file)

    def put_segments(self, *offsets: OffsetRange) -> set[str]:
        """Of region a's topic orders, partition 0; the keys."""
        keys = {format_key("data", Segment(SourcePartition("a", "orders", 0), 0, each)) for each in offsets}
        for key in keys:
            self.client.put_object(Bucket=self.buckets[0], Key=key, Body=b"x")
        return keys

    def stored(self) -> set[str]:
        answers = [self.client.list_objects_v2(Bucket=bucket) for bucket in self.buckets]
        return {item["Key"] for answer in answers for item in answer.get("Contents", ())}

    def _tables(self, s3: dict[str, Any]) -> dict[str, Any]:
        here, there = (
            {
                "bucket": bucket,
                "endpoint_url": self.endpoint_url,
                "region_name": "us-east-1",
                "access_key_id": "test",
                "secret_access_key": "${SECRET}",
                **s3,
            }
            for bucket in self.buckets
        )
        return {
            "region": "a",
            "kafka": {"bootstrap.servers": self.bootstrap},
            "metrics": {"listen": "127.0.0.1:0"},
            "s3": here,
            "egress": {"topics": {"orders": {}}},
            "sync": {"destination": there},
            "compaction": {"jobs": [{"name": "all"}]},
            "retention": {"topics": {"orders": {"max_age": "1d"}}},
        }


@pytest.fixture
def server(stack: LocalStack) -> Iterator[FaultyS3]:
    with faulty(stack.moto.endpoint_url) as server:
        yield server


@pytest.fixture
def site(
    stack: LocalStack,
    server: FaultyS3,
    unique: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Site]:
    monkeypatch.setenv("SECRET", "test")
    made = Site(stack, server, unique("bucket"), tmp_path / "replicator.toml")
    with closing(made.client):
        yield made


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_bucket_that_ignores_the_condition_is_refused(
    site: Site, server: FaultyS3, command: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    server.unconditional = {"PutObject"}
    assert site.run(command) == USAGE
    errors = capsys.readouterr().err
    assert "ignores If-None-Match in PutObject" in errors
    assert site.buckets[command[0] == "sync"] in errors
    assert "conditional_writes = 'assume'" in errors
    assert site.stored() == {probe_key("data", "a")}


@pytest.mark.parametrize(
    "command",
    [
        ["adopt", "orders"],
        ["adopt", "--fork", "orders"],
        ["gaps", "accept", "a/orders/0", "10-14", "--reason", "lost", "--yes"],
    ],
    ids=" ".join,
)
def test_an_operators_decision_is_not_stored_there(
    site: Site, server: FaultyS3, command: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A claim that overwrites another process's would give one archive path to two topics."""
    segments = site.put_segments(OffsetRange(0, 9), OffsetRange(15, 19))
    server.unconditional = {"PutObject"}
    assert site.run(command) == USAGE
    assert "ignores If-None-Match in PutObject" in capsys.readouterr().err
    assert site.stored() == {probe_key("data", "a"), *segments}


def test_a_handover_is_not_stored_there(site: Site, server: FaultyS3) -> None:
    """Nor is the failover ended, whose groups it says."""
    server.unconditional = {"PutObject"}
    ledger = FakeLedger()
    with Clients(site.config(), with_logs=False) as clients, pytest.raises(ConfigError, match="ignores If-None-Match"):
        Handover(clients=clients, to="b", ledger=ledger).execute(
            HandoverPlan(to="b", here="a", now=datetime.now(UTC), state=None)
        )
    assert site.stored() == {probe_key("data", "a")}
    assert ledger.read() == FakeLedger().read()


@pytest.mark.parametrize("command", COMMANDS[2:], ids=" ".join)
def test_it_can_be_assumed(site: Site, server: FaultyS3, command: Sequence[str]) -> None:
    server.unconditional = {"PutObject"}
    assert site.run(command, conditional_writes="assume") == 0
    assert probe_key("data", "a") not in site.stored()


@pytest.mark.parametrize("command", [["gc", "--dry-run"], ["compact", "--once", "--dry-run"]], ids=" ".join)
def test_a_dry_run_leaves_no_object(site: Site, command: Sequence[str]) -> None:
    assert site.run(command) == 0
    assert site.stored() == set()


def test_a_gap_that_is_not_written_leaves_no_object(site: Site, server: FaultyS3) -> None:
    segments = site.put_segments(OffsetRange(0, 9), OffsetRange(15, 19))
    server.unconditional = {"PutObject"}
    assert site.run(["gaps", "accept", "a/orders/0", "10-14", "--reason", "lost"]) == 0
    assert site.stored() == segments
