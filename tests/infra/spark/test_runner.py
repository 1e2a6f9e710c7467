"""Plans on Spark: in one local Java process, and on a real cluster on this machine."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import replicator
from formats.errors import PlanFailed, SparkUnavailable
from infra.local.identity import ProcessIdentity, identify
from infra.local.ports import HOST, free_ports
from infra.local.spark import DRIVER_PROPERTIES, SparkCluster, spark_cluster
from infra.local.waiting import wait_until
from infra.runtime.java import JavaMissing
from infra.runtime.progress import Progress, no_progress
from infra.spark import packages
from infra.spark.driver import SparkSettings
from infra.spark.runner import SparkRunner, run_tasks

ROOT = Path(__file__).parents[3]
PATIENCE = timedelta(seconds=120)
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # half the time to start
QUICK = {"spark.driver.extraJavaOptions": QUICK_JAVA, "spark.executor.extraJavaOptions": QUICK_JAVA}

# A worker cannot import this file; our packages are installed there, or are sent to it.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # it has no types


def local(master: str = "local[2,4]") -> SparkRunner:
    return SparkRunner(SparkSettings(master=master, properties=QUICK))


def shout(row: str) -> str:
    return f"{row}!"


@dataclass(frozen=True)
class Marking:
    """Work that marks its start and its end, and waits for permission to end."""

    folder: Path
    waits: bool = False

    def __call__(self, row: str) -> str:
        self._mark(f"begin {row}")
        if self.waits:
            assert wait_until((self.folder / f"leave-{row}").exists, PATIENCE)
        self._mark(f"end {row}")
        return shout(row)

    def _mark(self, what: str) -> None:
        with (self.folder / "marks").open("a") as marks:
            marks.write(f"{what}\n")

    def marks(self) -> list[str]:
        return marks.read_text().splitlines() if (marks := self.folder / "marks").exists() else []

    def begun(self) -> list[str]:
        """The rows of all attempts."""
        return [mark.removeprefix("begin ") for mark in self.marks() if mark.startswith("begin ")]

    def leave(self, *rows: str) -> None:
        for row in rows:
            (self.folder / f"leave-{row}").touch()


@dataclass(frozen=True)
class Failing:
    """Work that fails `times` times for the row "bad", and then succeeds."""

    marking: Marking
    fail: Callable[[], object]
    times: int = 1_000

    def __call__(self, row: str) -> str:
        answer = self.marking(row)
        if row == "bad" and self.marking.begun().count(row) <= self.times:
            self.fail()
        return answer


def refuse() -> None:
    raise ValueError("no such key:\n  a/b")


def die() -> None:
    os._exit(3)


# ---------- without Spark


@pytest.mark.parametrize(
    ("master", "is_local"),
    [("local", True), ("local[*,4]", True), ("localhost", False), ("spark://local:1", False), ("yarn", False)],
)
def test_local_masters_are_recognised(master: str, is_local: bool) -> None:
    assert SparkSettings(master=master).is_local is is_local


def test_nothing_to_run_needs_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with SparkRunner() as runner:
        assert runner.run([], shout) == []


class InProcess(SparkRunner):
    """Does the work in this process, and records the limit."""

    def run(
        self,
        rows: Sequence[str],
        work: Callable[[str], str],
        *,
        parallelism: int | None = None,
        progress: Progress = no_progress,
    ) -> list[str | PlanFailed]:
        progress(0, len(rows))
        return [
            PlanFailed(index, "its executor died") if row == "13" else f"{parallelism} {work(row)}"
            for index, row in enumerate(rows)
        ]


@dataclass(frozen=True)
class Doubling:
    sign: str

    def row(self, item: int) -> str:
        return str(item)

    def __call__(self, row: str) -> str:
        return f"{self.sign}{2 * int(row)}"

    def outcome(self, answer: str) -> tuple[str, int]:
        limit, _, number = answer.partition(" ")
        return limit, int(number)

    def failed(self, item: int, reason: str) -> tuple[str, int]:
        return reason, item


def test_a_task_turns_items_into_rows_and_answers_into_outcomes() -> None:
    seen: list[tuple[int, int]] = []
    found = run_tasks(InProcess(), Doubling("-"), (3, 1, 2), parallelism=4, progress=lambda *now: seen.append(now))
    assert found == [("4", -6), ("4", -2), ("4", -4)]
    assert seen == [(0, 3)]


def test_a_plan_that_failed_has_an_outcome_of_its_own() -> None:
    found = run_tasks(InProcess(), Doubling("-"), iter((3, 13, 2)))
    why = "its Spark task failed each time it was tried: its executor died"
    assert found == [("None", -6), (why, 13), ("None", -4)]


def test_without_java_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with SparkRunner() as runner, pytest.raises(JavaMissing, match="apt-get install openjdk"):
        runner.run(["a"], shout)


def test_the_packages_are_imported_from_the_zip(tmp_path: Path) -> None:
    packed = packages.pack(tmp_path / "ours.zip")
    source = (
        f"import sys; sys.path.insert(0, {str(packed)!r})\n"
        "from importlib.metadata import entry_points; import formats.errors\n"
        "print(formats.errors.__file__, *entry_points(group='replicator.formats').names)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"{packed}/formats/errors.py", "parquet"]


# ---------- in one Java of this machine


@pytest.fixture(scope="class")
def runner() -> Iterator[SparkRunner]:
    with local() as runner:
        yield runner


@pytest.mark.integration
class TestLocal:
    def test_answers_come_in_the_order_of_the_rows(self, runner: SparkRunner) -> None:
        rows = [json.dumps({"plan": number, "of": "ü\n"}) for number in range(9)]
        assert runner.run(rows, shout) == [f"{row}!" for row in rows]
        assert runner.run(rows, shout, parallelism=3) == [f"{row}!" for row in rows]

    def test_a_plan_that_failed_is_tried_again(self, runner: SparkRunner, tmp_path: Path) -> None:
        work = Failing(Marking(tmp_path), refuse, times=1)
        seen = []
        assert runner.run(["a", "bad", "c"], work, progress=lambda *now: seen.append(now)) == ["a!", "bad!", "c!"]
        assert sorted(work.marking.begun()) == ["a", "bad", "bad", "c"]
        assert seen[-1] == (3, 3), "a failed attempt does not count"

    @pytest.mark.parametrize("parallelism", [None, 2])
    def test_a_plan_that_always_fails_takes_no_answer_with_it(
        self, runner: SparkRunner, tmp_path: Path, parallelism: int | None
    ) -> None:
        work = Failing(Marking(tmp_path), refuse)
        seen = []
        *answers, failed = runner.run(
            ["a", "b", "bad"], work, parallelism=parallelism, progress=lambda *now: seen.append(now)
        )
        assert answers == ["a!", "b!"]
        assert isinstance(failed, PlanFailed)
        assert (failed.index, failed.reason) == (2, "ValueError: no such key:\n  a/b")
        assert work.marking.begun().count("bad") == 4
        assert {row: work.marking.begun().count(row) for row in "ab"} == {"a": 1, "b": 1}, "their answers were kept"
        assert seen[-1] == (3, 3)

    @pytest.mark.long
    def test_what_was_at_work_beside_a_plan_that_failed_begins_anew(self, runner: SparkRunner, tmp_path: Path) -> None:
        """Spark ends all of a job with one of its plans."""
        work = Failing(Marking(tmp_path, waits=True), refuse)

        def progress(done: int, total: int) -> None:
            begun = work.marking.begun()
            work.marking.leave(
                *(["bad"] if "slow" in begun else []), *(["slow", "last"] if begun.count("slow") == 2 else [])
            )

        slow, failed, last = runner.run(["slow", "bad", "last"], work, progress=progress)
        assert (slow, last) == ("slow!", "last!")
        assert isinstance(failed, PlanFailed)

    def test_plans_that_all_fail_end_the_run(self, runner: SparkRunner, tmp_path: Path) -> None:
        work = Failing(Marking(tmp_path), refuse)
        with pytest.raises(PlanFailed, match="no such key") as raised:
            runner.run(["bad"] * 9, work)
        assert raised.value.__cause__ is None, "else Java's stack is printed with it"
        assert work.marking.begun().count("bad") < 9 * 4
        (failed,) = runner.run(["bad"], work)
        assert isinstance(failed, PlanFailed), "of a few, each is an outcome"

    def test_a_failed_plan_is_named_in_a_process_with_a_session_too(self, runner: SparkRunner, tmp_path: Path) -> None:
        """After a SparkSession was created, Java's errors are raised as other exceptions in the whole process."""
        assert runner.run(["a"], shout) == ["a!"]
        assert runner._driver is not None
        SparkSession(runner._driver.context)
        (failed,) = runner.run(["bad"], Failing(Marking(tmp_path), refuse))
        assert "no such key" in str(failed)

    def test_a_plan_that_kills_its_python_is_named(self, runner: SparkRunner, tmp_path: Path) -> None:
        answer, failed = runner.run(["a", "bad"], Failing(Marking(tmp_path), die))
        assert answer == "a!"
        assert isinstance(failed, PlanFailed)
        assert (failed.index, "Python worker exited unexpectedly" in failed.reason) == (1, True)

    def test_progress_is_reported_during_the_run(self, runner: SparkRunner, tmp_path: Path) -> None:
        work = Marking(tmp_path, waits=True)
        seen = []

        def progress(done: int, total: int) -> None:
            seen.append((done, total))
            work.leave(str(done))  # plan n may end once n others have

        assert runner.run(["0", "1", "2"], work, progress=progress) == ["0!", "1!", "2!"]
        assert list(dict.fromkeys(seen)) == [(0, 3), (1, 3), (2, 3), (3, 3)]

    def test_parallelism_limits_concurrent_plans(self, runner: SparkRunner, tmp_path: Path) -> None:
        work = Marking(tmp_path, waits=True)

        def progress(done: int, total: int) -> None:
            work.leave(*work.begun())

        assert runner.run(["a", "b", "c"], work, parallelism=1, progress=progress) == ["a!", "b!", "c!"]
        assert work.marks() == ["begin a", "end a", "begin b", "end b", "begin c", "end c"], (
            "though there are two cores"
        )

    def test_an_exception_of_progress_ends_the_run(self, runner: SparkRunner, tmp_path: Path) -> None:
        work = Marking(tmp_path, waits=True)

        def progress(done: int, total: int) -> None:
            if work.begun():
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            runner.run(["a", "b", "c"], work, parallelism=2, progress=progress)
        assert "c" not in work.begun()
        assert runner.run(["d"], shout) == ["d!"]


# ---------- how it ends


def descendants(pid: int) -> list[int]:
    """Child processes, parents first, without the process that lists them."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,comm="], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 2) for line in listed.splitlines()]
    parents = {int(child): int(parent) for child, parent, name in lines if name != "ps"}

    def below(parent: int) -> list[int]:
        children = [child for child in parents if parents[child] == parent]
        return children + [one for child in children for one in below(child)]

    return below(pid)


@pytest.mark.integration
@pytest.mark.long
def test_no_process_is_left_even_if_java_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path, handler, before = list(sys.path), signal.getsignal(signal.SIGINT), descendants(os.getpid())

    def started() -> list[int]:
        return [pid for pid in descendants(os.getpid()) if pid not in before]

    work = Marking(tmp_path, waits=True)
    seen: set[ProcessIdentity] = set()
    with local("local[1,4]") as runner:

        def kill_java(done: int, total: int) -> None:
            if work.begun():
                seen.update(filter(None, map(identify, started())))
                for java in started()[:1]:
                    os.kill(java, signal.SIGKILL)

        with pytest.raises(SparkUnavailable, match=r"local\[1,4\]: its Java ended with -9"):
            runner.run(["a"], work, progress=kill_java)
        assert runner.run(["b"], shout) == ["b!"], "with another Java"
        assert signal.getsignal(signal.SIGINT) is handler, "who handles signals is not for Spark to decide"
        seen.update(filter(None, map(identify, started())))
        assert len(seen) >= 4, "twice Java and its Python"
    assert wait_until(lambda: not any(one.alive() for one in seen), PATIENCE)
    assert started() == []
    assert sys.path == path
    assert {found.name for found in tmp_path.iterdir()} <= {"marks"}
    assert wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("spark")], PATIENCE)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:unclosed file <_io.BufferedWriter:ResourceWarning")  # of pyspark, to a dead Java
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (SparkSettings(master="nonsense"), "(?s)wrote last:.*must either be yarn or start with spark"),
        (SparkSettings(master="local[1]", properties={"spark.driver.memory": "nonsense"}), "(?s)wrote last:.*nonsense"),
    ],
    ids=["master", "memory"],
)
def test_a_spark_that_cannot_start_has_the_reason(settings: SparkSettings, message: str) -> None:
    with SparkRunner(settings) as runner, pytest.raises(SparkUnavailable, match=message):
        runner.run(["a"], shout)
    gc.collect()  # here, where it is expected


# ---------- on a cluster


def below(folder: Path) -> list[str]:
    """The processes with `folder` as working folder or in their arguments."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, cwd = (process / "cmdline").read_text(), (process / "cwd").readlink()
        except OSError:  # the process has ended
            continue
        if str(folder) in command or cwd.is_relative_to(folder):
            found.append(command.replace("\0", " "))
    return found


@pytest.mark.long
@pytest.mark.integration
def test_a_master_that_lost_its_port_uses_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as taken:
        lost = taken.getsockname()[1]
        given = iter([(lost, *free_ports(1)), free_ports(2)])
        monkeypatch.setattr("infra.local.server.free_ports", lambda count: next(given))
        with spark_cluster(tmp_path, workers=0) as cluster:
            assert cluster.master != f"spark://{HOST}:{lost}"
            assert cluster.alive_workers() == 0


def where_ours_is(row: str) -> str:
    """Where this worker's packages were imported from."""
    return f"{row} {replicator.__file__}"


@pytest.fixture(scope="class")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    folder = tmp_path_factory.mktemp("spark")
    with spark_cluster(folder, workers=2, cores=1, memory="1g") as running:
        yield running
    assert wait_until(lambda: not below(folder), PATIENCE), below(folder)


def settings(cluster: SparkCluster, **properties: str) -> SparkSettings:
    own = {"spark.executor.memory": "600m"}
    return SparkSettings(master=cluster.master, properties={**DRIVER_PROPERTIES, **QUICK, **own, **properties})


@pytest.mark.integration
class TestCluster:
    @pytest.mark.long  # a cluster that compacts loses a worker in every run (tests/integration/test_compaction.py)
    def test_every_worker_runs_plans_and_may_die(self, cluster: SparkCluster, tmp_path: Path) -> None:
        """The workers import the packages that they are sent. One of two workers is killed while it runs a plan."""
        rows = ["a", "b", "c"]
        work = Marking(tmp_path, waits=True)
        pages = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.ui.liveUpdate.period": "0"}
        both = {"spark.scheduler.minRegisteredResourcesRatio": "1"}  # else the first executor may run all plans
        with SparkRunner(replace(settings(cluster, **pages, **both), ship_packages=True)) as runner:
            for answer in runner.run(rows, where_ours_is):
                assert "/replicator-packages.zip/replicator/" in str(answer)

            def both_then_one(done: int, total: int) -> None:
                if cluster.alive_workers() == 2 and len(work.begun()) == 2 and busy_executors(runner) == 2:
                    cluster.kill_worker(2)
                    work.leave(*rows)

            assert runner.run(rows, work, progress=both_then_one) == ["a!", "b!", "c!"]
            assert len(work.begun()) == 4, "the plan of the dead worker was started again"
            assert cluster.alive_workers() == 1

    @pytest.mark.long
    def test_a_packed_environment_is_used(self, cluster: SparkCluster, tmp_path: Path) -> None:
        """An interpreter and our packages in an archive, like one that venv-pack makes of a whole environment."""
        archive = tmp_path / "environment.tar.gz"
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH="$PWD/environment/lib:$PYTHONPATH" exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(python, "bin/python")
            for package in packages.PACKAGES:
                packed.add(ROOT / package, f"lib/{package}")
        sent = {
            "spark.archives": f"{archive}#environment",
            "spark.pyspark.python": "./environment/bin/python",
        }
        with SparkRunner(settings(cluster, **sent)) as runner:
            (answer,) = runner.run(["a"], where_ours_is)
        assert "/environment/lib/replicator/" in str(answer)


def busy_executors(runner: SparkRunner) -> int:
    """Number of executors that run a plan and have finished one before, according to Spark's REST API; 0 while that is
    too busy to answer."""
    address = f"{runner.ui_url}/api/v1/applications/{runner.application_id}/executors"
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            executors = json.load(answer)
    except TimeoutError:
        return 0
    return sum(one["activeTasks"] == 1 and one["completedTasks"] >= 1 for one in executors)
