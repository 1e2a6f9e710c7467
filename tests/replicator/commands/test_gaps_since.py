"""`gaps --since TIME`: what was recorded before is known."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from formats.control.gap import RecordedGap
from formats.messages.delivery_checkpoint import CheckpointKey, Skipped
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.archive.control import ControlStore
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator import main
from replicator.services.clients import Clients

Run = Callable[..., tuple[int, str, str]]
MORNING, NOON = datetime(2026, 11, 25, 8, tzinfo=UTC), datetime(2026, 11, 25, 12, tzinfo=UTC)
SOURCE = SourcePartition("a", "orders", 0)
CONFIG = """
region = "b"
[kafka]
"bootstrap.servers" = "localhost:9092"
[s3]
bucket = "b"
[sqs]
queue = "q"
[[ingress.sources]]
region = "a"
topic = "orders"
"""


class Checkpoints:
    """One record was skipped at noon."""

    def read(self) -> None:
        pass

    def skipped(self) -> Sequence[Skipped]:
        return [Skipped(key=CheckpointKey(SOURCE, "copies"), offsets=OffsetRange(7, 7), reason="too large", at=NOON)]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    store = MemoryObjectStore()
    ControlStore(store, "data").gaps.record(
        RecordedGap(source=SOURCE, offsets=OffsetRange(0, 4), reason="retention", low=5, high=9, recorded_at=MORNING)
    )
    monkeypatch.setattr(Clients, "objects", store)
    monkeypatch.setattr(Clients, "checkpoints", Checkpoints())
    file = tmp_path / "b.toml"
    file.write_text(CONFIG)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main.main(["gaps", *arguments, "--config", str(file)])
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return call


@pytest.mark.parametrize(
    ("since", "code", "listed"),
    [
        (None, 3, ["a/orders/0 [0,4]", "a/orders/0 [7,7]"]),
        (MORNING, 3, ["a/orders/0 [0,4]", "a/orders/0 [7,7]"]),
        (MORNING + timedelta(seconds=1), 3, ["a/orders/0 [7,7]"]),
        (NOON, 3, ["a/orders/0 [7,7]"]),
        (NOON + timedelta(seconds=1), 0, ["no gaps are recorded since 2026-11-25T12"]),
    ],
)
def test_what_is_listed(run: Run, since: datetime | None, code: int, listed: Sequence[str]) -> None:
    found, out, _ = run(*([] if since is None else ["--since", since.isoformat()]))
    assert (found, [line.partition(":")[0] for line in out.splitlines()]) == (code, listed)


def test_a_loss_that_was_archived_after_all_is_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoints, "skipped", lambda _: [])
    assert run()[0] == 3
    for offsets in (OffsetRange(0, 2), OffsetRange(3, 4)):
        key = format_key("data", Segment(SOURCE, 0, offsets))
        Clients.objects.put_new(key, io.BytesIO(b"x"), 1)  # type: ignore[attr-defined]  # that of the fixture
    code, out, _ = run()
    assert (code, out.rstrip().endswith("when the log held 5 to 9, and archived since")) == (0, True)


def test_a_time_without_a_zone_is_refused(run: Run) -> None:
    code, _, err = run("--since", "2026-11-25T08:00:00")
    assert code == 2
    assert "has no time zone: write 2026-11-25T08:00:00Z for UTC" in " ".join(err.replace("│", "").split())
