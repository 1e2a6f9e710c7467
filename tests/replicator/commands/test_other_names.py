"""Names given to `gaps accept` and `adopt` that are not in the archive of this configuration."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from formats.control.fork import LogFork
from formats.control.gap import RecordedGap
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.archive.control import ControlStore
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator import main
from replicator.services.clients import Clients
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker

Run = Callable[..., tuple[int | str | None, str, str]]

CONFIG = """
region = "{region}"
[kafka]
"bootstrap.servers" = "localhost:9092"
[s3]
bucket = "b"
conditional_writes = "assume"
[sqs]
queue = "q"
[[ingress.sources]]
region = "{other}"
topic = "orders"
"""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryObjectStore:
    """The archive of region a: orders, partitions 0 and 1, without offsets 10 to 14."""
    store = MemoryObjectStore()
    for partition in (0, 1):
        for offsets in (OffsetRange(0, 9), OffsetRange(15, 19)):
            key = format_key("data", Segment(SourcePartition("a", "orders", partition), 0, offsets))
            store.put_new(key, io.BytesIO(b"x"), 1)
    monkeypatch.setattr(Clients, "objects", store)
    monkeypatch.setattr(Clients, "admin", FakeAdmin(FakeBroker()))
    return store


@pytest.fixture
def run(store: MemoryObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    for region, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{region}.toml").write_text(CONFIG.format(region=region, other=other))

    def call(region: str, *arguments: str) -> tuple[int | str | None, str, str]:
        with pytest.raises(SystemExit) as caught:
            main.main([*arguments, "--config", str(tmp_path / f"{region}.toml")])
        out, err = capsys.readouterr()
        return caught.value.code, out, err

    return call


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a/nope/0", "there is no topic nope in the archive of region a"),
        ("a/orders/7", "the archive of region a has no partition 7 of orders: the last one is 1"),
        ("a/orders/0", "neither contested by a fork nor a gap of the archive; what can be accepted is 10-14"),
    ],
)
def test_names_that_are_not_in_the_archive(run: Run, name: str, why: str) -> None:
    code, out, err = run("a", "gaps", "accept", name, "894-991", "--reason", "x")
    assert (code, out, why in err) == (1, "", True), err


def test_accepted_only_when_it_is_written(run: Run, store: MemoryObjectStore) -> None:
    accept = ("gaps", "accept", "a/orders/0", "10-14", "--reason", "x")
    before = list(store.list(""))
    code, out, _ = run("a", *accept)
    assert (code or 0, out.splitlines()[0]) == (0, "a/orders/0 [10,14]: 5 offsets would be accepted as missing")
    assert out.splitlines()[-1] == "nothing was written; to write it, add --yes"
    assert list(store.list("")) == before
    code, out, _ = run("a", *accept, "--yes")
    assert (code or 0, out.splitlines()[0]) == (0, "a/orders/0 [10,14]: 5 offsets accepted as missing")


def test_a_fork_that_contests_exactly_a_recorded_gap_can_be_accepted(run: Run, store: MemoryObjectStore) -> None:
    """The command that `/readyz` names was refused for ever: the offsets were recorded for another reason."""
    control, source, contested = ControlStore(store, "data"), SourcePartition("a", "orders", 0), OffsetRange(10, 14)
    at = datetime(2026, 3, 5, tzinfo=UTC)
    control.gaps.record(RecordedGap(source=source, offsets=contested, reason="lost", low=15, high=20, recorded_at=at))
    control.forks.record(LogFork(source=source, next_offset=15, leader_epoch=0, end_offset=10, found_at=at))
    accept = ("gaps", "accept", "a/orders/0", "10-14", "--reason", "x")
    code, out, _ = run("a", *accept)
    [name] = [line.split()[-1].strip(":") for line in out.splitlines() if line.startswith("would be written to")]
    code, out, err = run("a", *accept, "--yes")
    assert (code or 0, out.splitlines()[0]) == (0, "a/orders/0 [10,14]: 5 offsets accepted as missing"), err
    with store.open(name.removeprefix("s3://b/")) as written:  # the run without --yes named it
        assert json.load(written)["is_accepted"]
    assert [(gap.offsets, gap.reason, gap.is_accepted) for gap in control.gaps.of(source)] == [(contested, "x", True)]
    code, out, _ = run("a", *accept, "--yes")
    assert (code or 0, out) == (0, "a/orders/0 [10,14] is accepted already\n")


@pytest.mark.parametrize("fork", [[], ["--fork"]])
def test_adopt_with_the_file_of_another_region(run: Run, fork: list[str]) -> None:
    code, _, err = run("b", "adopt", *fork, "orders")
    assert (code, "archived by region a, and this file is of b: run it with the file of that region" in err) == (
        1,
        True,
    )
    code, _, err = run("b", "adopt", *fork, "nope")
    assert (code, "adopt nope: there is no such topic in this cluster" in err) == (1, True)
