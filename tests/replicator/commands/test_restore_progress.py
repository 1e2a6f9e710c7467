from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from infra.runtime.lifecycle import Stop
from replicator import main
from replicator.commands import restore_progress
from replicator.commands.restore import exit_code
from replicator.commands.restore_progress import RestoreStatus, progress
from replicator.restore.plan import RestorePlan
from replicator.restore.progress import RestoreOutcome
from replicator.restore.request import Ready
from replicator.restore.restore import RestoreStopped
from replicator.restore.worker import RestoreProgress
from replicator.terminal.output import stop_on_signals
from tests.replicator.restore.restoring import Restoring, restorable


def running() -> tuple[Restoring, RestorePlan]:
    world = restorable()
    world.put(0, 39)
    world.put(0, 39, partition=1)
    restoring = Restoring(world, records=10)
    return restoring, restoring.plan


def test_progress_of_a_running_restore() -> None:
    restoring, plan = running()
    sizes = {partition.key: 100 for partition in plan.partitions}
    seen: list[str] = []
    standing = RestoreStatus(sizes, False, lambda now: seen.append(now.text()))
    standing.update(list(restoring.partitions.values()))
    restoring.turn(3)
    standing.update(list(restoring.partitions.values()))
    restoring.finish()
    standing.update(list(restoring.partitions.values()))
    assert seen[0] == "0 records, 0 B restored, 0 %, 0 of 2 partitions are over"
    assert seen[1].startswith("40 records, ")
    assert seen[1].endswith("50 %, 0 of 2 partitions are over")
    assert seen[2].startswith("80 records, ")
    assert seen[2].endswith("100 %, 2 of 2 partitions are over")


def outcome(name: str, records: int, **more: Any) -> RestoreOutcome:
    return RestoreOutcome(
        source=name, target=name, records=records, size_bytes=1, next_offset=0, **{"is_done": False, **more}
    )


def test_records_delivered_after_the_last_turn_count() -> None:
    restoring, plan = running()
    standing = RestoreStatus({partition.key: 100 for partition in plan.partitions}, False, lambda _: None)
    restoring.turn(3)
    standing.update(list(restoring.partitions.values()))
    text = standing.stopped([outcome("a/t/0", 30_000), outcome("a/t/1", 10_000)])
    assert text == (
        "stopped with 40,000 records, 2 B restored, 0 of 2 partitions over; run the same command again to resume it"
    )


class Interrupted:
    """Replaces `Restore`; a signal ends it while it runs, and more is delivered afterwards."""

    number = signal.SIGINT
    on_spark = False

    def __init__(self, *_: object, stop: Stop) -> None:
        self._restoring, self._plan = running()
        self._stop = stop

    def __enter__(self) -> Interrupted:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def prepare(self, **_: object) -> Ready:
        return Ready(self._plan)

    def run(self, _plan: RestorePlan, on_progress: RestoreProgress, _on_spark_progress: object) -> list[RestoreOutcome]:
        self._restoring.turn(3)
        on_progress(list(self._restoring.partitions.values()))
        signal.raise_signal(self.number)
        assert self._stop.is_set()
        if self.on_spark:
            raise RestoreStopped("stopped before the end")
        return [outcome("a/t/0", 30_000), outcome("a/t/1", 10_000)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("on_spark", [False, True])
def test_the_command_ended_by_a_signal(
    number: signal.Signals,
    on_spark: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Interrupted, "number", number)
    monkeypatch.setattr(Interrupted, "on_spark", on_spark)
    monkeypatch.setattr("replicator.restore.restore.Restore", Interrupted)
    monkeypatch.setattr("replicator.commands.restore.set_up_work", lambda _: None)  # of the whole process
    file = tmp_path / "my.toml"
    file.write_text('region = "a"\n[kafka]\n"bootstrap.servers" = "localhost:9092"\n[s3]\nbucket = "b"\n')
    with pytest.raises(SystemExit) as caught:
        main.main(["restore", "t", "--config", str(file)])
    out, err = capfd.readouterr()
    assert caught.value.code == (130 if number == signal.SIGINT else 1), err
    assert "stopping; what is in flight is delivered first" in err
    if not on_spark:
        assert "\n40,000 records, 2 B in " in out
        assert "stopped with 40,000 records, 2 B restored, 0 of 2 partitions over; " in err


STOPPED, DONE, BROKEN = outcome("a", 1), outcome("b", 1, is_done=True), outcome("c", 1, failed="corrupt")


@pytest.mark.parametrize(
    ("outcomes", "signals", "follow", "code"),
    [
        ([DONE], [], False, 0),
        ([DONE, STOPPED], [signal.SIGINT], False, 130),
        ([BROKEN, STOPPED], [signal.SIGINT], False, 130),
        ([DONE], [signal.SIGINT], False, 0),
        ([BROKEN, DONE], [signal.SIGINT], False, 3),
        ([DONE, STOPPED], [signal.SIGTERM], False, 1),
        ([BROKEN, STOPPED], [signal.SIGTERM], False, 3),
        ([STOPPED], [signal.SIGINT], True, 130),
        ([STOPPED], [signal.SIGTERM], True, 0),
        ([BROKEN, DONE], [], False, 3),
    ],
)
def test_the_exit_code(outcomes: list[RestoreOutcome], signals: list[int], follow: bool, code: int) -> None:
    assert exit_code(outcomes, signals, follow=follow) == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_answered_at_once_and_remembered(number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    stop, before = Stop(), signal.getsignal(number)
    with stop_on_signals(stop, "the rest follows") as signals:
        signal.raise_signal(number)
        assert stop.is_set()
        assert capfd.readouterr().err == "\nreplicator: stopping; the rest follows\n"
    assert (list(signals), signal.getsignal(number)) == ([number], before)


def test_on_spark_only_whole_partitions_are_known() -> None:
    _, plan = running()
    sizes = {partition.key: 100 for partition in plan.partitions}
    standing = RestoreStatus(sizes, False, lambda _: None)
    standing.update_on_spark(1, 2)
    assert standing.text() == "1 of 2 partitions are over"


@pytest.mark.parametrize("follow", [False, True])
def test_lines_without_a_terminal(
    follow: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_progress, "LINE_EVERY", 0)
    restoring, plan = running()
    with progress(plan, follow=follow, quiet=False) as shown:
        for _ in range(3):
            shown.update(list(restoring.partitions.values()))
        restoring.turn(3)
        shown.update(list(restoring.partitions.values()))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2, "one for each piece of news"
    assert lines[1].startswith("40 records")
    assert ("following 2 partitions" in lines[1]) == follow
    with progress(plan, follow=follow, quiet=True) as shown:
        shown.update(list(restoring.partitions.values()))
    assert capsys.readouterr().err == ""
