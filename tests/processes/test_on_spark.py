"""Egress and ingress as tasks on Spark, against real brokers: nothing is lost, nothing comes twice.

region a ──egress: 2 tasks──> bucket ──> queue ──ingress: 2 tasks──> region b      on one machine, or on a cluster
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from infra.local.aws import CREDENTIALS
from infra.local.ports import free_ports
from infra.local.spark import DRIVER_PROPERTIES, SparkCluster, spark_cluster
from infra.local.waiting import wait_until
from infra.runtime.lifecycle import Deadline
from tests.processes import judge
from tests.processes.flow import Flow
from tests.processes.harness import B, OnSpark, Site, Worker
from tests.processes.test_reloaded_file import archiving

if TYPE_CHECKING:
    from tests.processes.harness import Tables

pytestmark = [pytest.mark.integration]

TASKS = 2
GONE_WITHIN = timedelta(seconds=30)  # after the driver's death
PATIENCE = timedelta(seconds=240)  # two Sparks start beside two other tests, on a machine at half its speed
HOSTS = ("127.0.0.1", "127.0.0.2")  # Spark speculates on another host only
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.task.duration.threshold": "2s",
    "spark.executor.cores": "2",  # the threshold counts only where one executor has a core for each task
    "spark.cores.max": "4",  # room for the copies
}


def tasks_of(worker: Worker) -> Mapping[int, int]:
    """The process id of each task that was begun last."""
    return {int(line["task"]): int(line["pid"]) for line in worker.logged("task_runs")}


def tasks_below(worker: Worker, pid: int) -> set[int]:
    """The tasks whose last attempt descends from a process."""

    def descends(one: int) -> bool:
        return one > 1 and (one == pid or descends(parent_of(one)))

    return {task for task, of_task in tasks_of(worker).items() if descends(of_task)}


def wait_until_ready(site: Site, *workers: Worker) -> None:
    site.wait("ready", lambda: all(worker.readiness().get("ready") for worker in workers), PATIENCE)


def is_gone(pid: int) -> bool:
    """Or a zombie that nothing has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def java_of(worker: Worker) -> int:
    """The process id of the driver's Java: the only one that its process has begun and that still runs."""
    (driver,) = {one for one in (parent_of(pid) for pid in java_pids()) if one and is_command(one, worker)}
    (java,) = [pid for pid in java_pids() if parent_of(pid) == driver]
    return java


def java_pids() -> list[int]:
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if "java" in command_of(pid)[:1]]


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        return 0


def command_of(pid: int) -> list[str]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [words[0].rpartition("/")[2], *words[1:]]


def is_command(pid: int, worker: Worker) -> bool:
    return any(word.endswith(f"/{worker.name}.toml") for word in command_of(pid))


@pytest.mark.long
def test_in_this_process_and_drained_by_a_signal(site: Site) -> None:
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")
    with Flow(site, partitions=4) as flow:
        egress = site.egress("egress", {flow.topic: {}}, spark=OnSpark(tasks=TASKS))
        ingress = site.ingress("ingress", {"topic": flow.topic}, spark=OnSpark(tasks=TASKS))
        for worker in (egress, ingress):
            worker.start()
        with flow.traffic(seed=seed, most=60) as traffic:
            flow.wait_for_more(100, PATIENCE)
            wait_until_ready(site, egress, ingress)
            for worker in (egress, ingress):
                os.kill(tasks_of(worker)[1], signal.SIGKILL)  # a Python worker
            flow.wait_for_more(100, PATIENCE)
            site.wait(
                "another attempt", lambda: all(len(w.logged("task_runs")) == TASKS + 1 for w in site.workers), PATIENCE
            )
            wait_until_ready(site, egress, ingress)
            site.stop(egress)  # in the middle of the flow: every task drains
            assert {line["task"] for line in egress.logged("task_drained")} == {0, 1}
            egress.start()
            flow.wait_for_more(50, PATIENCE)
            words = traffic.finish()
        flow.wait_for(words, PATIENCE)
        flow.wait_for_archive(PATIENCE)
        wait_until_ready(site, egress, ingress)
        with Flow(site, "later", partitions=2) as later:
            later.produce([])
            egress.write(archiving(egress, flow, later))
            egress.signal(signal.SIGHUP)  # whose settings reach every task
            later.wait_for_archive(PATIENCE)
            reloaded = {line.get("task") for line in egress.logged("config_reloaded")}
            assert reloaded == {None, 0, 1}
        metrics = ingress.metrics()
        assert metrics.value("spark_running_tasks") == TASKS
        assert metrics.value("assigned_partitions", task="0") > 0
        assert metrics.value("assigned_partitions", task="1") > 0
        site.stop(*site.workers)
        flow.judge_target(rewinds=0)
        flow.judge_archive()


@pytest.mark.long
def test_another_number_of_tasks(site: Site) -> None:
    """Fewer, then more: each is a restart. Partitions of those that are gone wait for the end of their session."""
    with Flow(site, partitions=4) as flow:
        ingress = site.ingress("ingress", {"topic": flow.topic}).start()
        with flow.traffic(seed=5, most=20) as traffic:
            for tasks in (2, 1, 3):
                spark = OnSpark(tasks=tasks, master=f"local[{tasks}]")
                egress = site.egress(f"egress-{tasks}", {flow.topic: {}}, spark=spark).start()
                flow.wait_for_more(100, PATIENCE)
                wait_until_ready(site, egress)
                if tasks != 3:
                    egress.stop()
            words = traffic.finish()
        flow.wait_for(words, PATIENCE)
        flow.wait_for_archive(PATIENCE)
        metrics = egress.metrics()
        owned = [metrics.value("assigned_partitions", task=str(task)) for task in range(3)]
        assert (sum(owned), min(owned)) == (4, 1)
        site.stop(ingress, egress)
        flow.judge_target(rewinds=0)
        flow.judge_archive()


@pytest.mark.long
def test_a_bucket_that_the_executors_cannot_reach(site: Site) -> None:
    """Each service names it, and what to do; with a way to it nothing was lost."""
    (closed_port,) = free_ports(1)
    away, spark = f"http://127.0.0.1:{closed_port}", OnSpark(tasks=1)
    with Flow(site, partitions=2) as flow:
        cut_off = (
            site.egress("egress", {flow.topic: {}}, spark=spark, endpoint_url=away),
            site.ingress("ingress", {"topic": flow.topic}, spark=spark, endpoint_url=away),
        )
        for worker in cut_off:
            worker.start()
        words = flow.produce([])

        def named(worker: Worker) -> bool:
            problems = worker.readiness().get("problems", {})
            return any(
                subject.startswith(f"task 0: s3://{site.bucket}") and "needs a way to the bucket's endpoint" in reason
                for subject, reason in problems.items()
            )

        site.wait("the bucket and what to do about it", lambda: all(map(named, cut_off)), PATIENCE)
        site.stop(*cut_off)
        egress, ingress = site.egress("egress-2", {flow.topic: {}}), site.ingress("ingress-2", {"topic": flow.topic})
        for worker in (egress, ingress):
            worker.start()
        flow.wait_for(words, PATIENCE)
        site.stop(egress, ingress)
        flow.judge_target(rewinds=0)
        flow.judge_archive()


# ---------- on a cluster of two workers


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with pytest.MonkeyPatch.context() as machines:
        machines.setenv("AWS_ACCESS_KEY_ID", CREDENTIALS["aws_access_key_id"])
        machines.setenv("AWS_SECRET_ACCESS_KEY", CREDENTIALS["aws_secret_access_key"])
        with spark_cluster(workers=2, cores=4, memory="4g", hosts=HOSTS) as running:
            yield running


class Pair:
    """Egress and ingress on a cluster, under load."""

    def __init__(self, site: Site, flow: Flow, cluster: SparkCluster, properties: Tables) -> None:
        self.site, self.flow, self.cluster = site, flow, cluster
        spark = OnSpark(
            tasks=TASKS,
            master=cluster.master,
            properties={**DRIVER_PROPERTIES, "spark.executor.memory": "512m", **properties},
        )
        self.egress = site.egress("egress", {flow.topic: {}}, spark=spark)
        self.ingress = site.ingress("ingress", {"topic": flow.topic}, spark=spark)
        self.workers = (self.egress, self.ingress)

    def ready(self) -> None:
        wait_until_ready(self.site, *self.workers)

    def written(self) -> int:
        """Offsets of the target, from any thread."""
        return sum(judge.ends(self.site.bootstrap(B), self.flow.target, self.flow.partitions).values())


def workers_are_killed(pair: Pair, random: Random) -> None:
    never = threading.Event()
    for _ in range(3):
        number = random.choice((1, 2))
        pair.cluster.kill_worker(number)
        pair.flow.wait_for_more(50, PATIENCE)  # on the other one
        pair.cluster.start_worker(number)
        never.wait(random.uniform(10, 20))
    pair.ready()


def a_worker_is_decommissioned(pair: Pair, _random: Random) -> None:
    """Its tasks are drained before it ends, so nothing is lost with it."""
    leaving = pair.cluster.worker_pid(1)
    before = {worker.name: tasks_below(worker, leaving) for worker in pair.workers}
    assert any(before.values()), "no task works there"
    pair.cluster.decommission_worker(1)

    def have_moved() -> bool:
        moved = {worker.name: {line["task"] for line in worker.logged("task_drained")} for worker in pair.workers}
        return moved == before and not any(tasks_below(worker, leaving) for worker in pair.workers)

    pair.site.wait("tasks that drain and begin on the other worker", have_moved, PATIENCE)
    pair.ready()
    pair.flow.wait_for_more(50, PATIENCE)  # on the other one
    pair.cluster.end_worker(1)
    pair.flow.wait_for_more(50, PATIENCE)
    pair.cluster.start_worker(1)
    pair.ready()
    for worker in pair.workers:
        assert worker.metrics().value("spark_lost_attempts") == 0
        assert not worker.logged("task_lost")


def pythons_are_killed(pair: Pair, random: Random) -> None:
    for _ in range(4):
        for worker in pair.workers:
            os.kill(tasks_of(worker)[random.randrange(TASKS)], signal.SIGKILL)
        pair.flow.wait_for_more(50, PATIENCE)
        pair.ready()


def drivers_are_killed(pair: Pair, random: Random) -> None:
    for worker in random.sample(pair.workers, 2):
        pids = tasks_of(worker).values()
        worker.kill()
        assert wait_until(lambda pids=pids: all(map(is_gone, pids)), GONE_WITHIN)  # type: ignore[misc]
        worker.start()
        pair.ready()
        pair.flow.wait_for_more(50, PATIENCE)


def javas_are_killed(pair: Pair, _random: Random) -> None:
    for worker in pair.workers:
        os.kill(java_of(worker), signal.SIGKILL)
        pair.site.wait("another job", lambda worker=worker: len(worker.logged("spark_job_begins")) == 2, PATIENCE)  # type: ignore[misc]
        pair.ready()
        assert worker.metrics().value("spark_failed_jobs") == 1
        pair.flow.wait_for_more(50, PATIENCE)


def services_are_stopped(pair: Pair, _random: Random) -> None:
    for worker in pair.workers:
        worker.stop()
        assert {line["task"] for line in worker.logged("task_drained")} == {0, 1}
        worker.start()
        pair.flow.wait_for_more(50, PATIENCE)
    pair.ready()


def copies_take_over(pair: Pair, _random: Random) -> None:
    for worker in pair.workers:
        pair.site.wait("copies", lambda worker=worker: worker.logged("task_waits"), PATIENCE)  # type: ignore[misc]
        copied = {int(line["task"]) for line in worker.logged("task_waits")}
        os.kill(tasks_of(worker)[min(copied)], signal.SIGKILL)
        pair.flow.wait_for_more(50, PATIENCE)
    pair.ready()


KILL_EVERY = timedelta(seconds=20)
DOWN = timedelta(seconds=6)  # then the killed worker is started again
ROUNDS = 2
STOPS_WITHIN = timedelta(seconds=60)  # a task whose worker was killed just now is not waited for
UNDER_FIRE = timedelta(minutes=5)  # for what takes seconds on a machine that does nothing else


@dataclass(slots=True)
class WorkerKiller:
    """Kills the workers in turn from a thread of its own, one every KILL_EVERY; each comes back. A machine so slow that
    nothing has arrived since then gets longer, or nothing ever would. A context manager."""

    pair: Pair
    kills: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _failed: list[BaseException] = field(default_factory=list)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="worker-killer")

    def __enter__(self) -> WorkerKiller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Every worker runs. Raises what went wrong."""
        self._over.set()
        self._thread.join()
        if self._failed:
            raise self._failed[0]

    def _run(self) -> None:
        try:
            for number in cycle((1, 2)):
                due = Deadline(KILL_EVERY)
                self.pair.cluster.kill_worker(number)
                self.kills += 1
                self._over.wait(DOWN.total_seconds())
                self.pair.cluster.start_worker(number)
                before = self.pair.written()
                self._over.wait(due.left.total_seconds())
                wait_until(lambda before=before: self.pair.written() > before, UNDER_FIRE, stop=self._over)  # type: ignore[misc]
                if self._over.is_set():
                    return
        except BaseException as error:
            self._failed.append(error)


def a_python_is_killed(pair: Pair, worker: Worker, random: Random) -> None:
    """Of a task that runs: one whose worker was killed just now has none."""
    killed: list[int] = []

    def kill_one() -> bool:
        one = random.choice(list(tasks_of(worker).values()))
        if any("pyspark" in word for word in command_of(one)):
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
                killed.append(one)
        return bool(killed)

    pair.site.wait(f"a task of {worker.name} that runs", kill_one, UNDER_FIRE)


def a_driver_is_killed(pair: Pair, worker: Worker, _random: Random) -> None:
    pids = tasks_of(worker).values()
    worker.kill()
    begin_again(pair, worker)
    assert wait_until(lambda: all(map(is_gone, pids)), GONE_WITHIN)


def a_service_is_stopped(pair: Pair, worker: Worker, _random: Random) -> None:
    worker.stop(STOPS_WITHIN)
    begin_again(pair, worker)


def begin_again(pair: Pair, worker: Worker) -> None:
    jobs = len(worker.logged("spark_job_begins"))
    worker.start()
    pair.site.wait("a job", lambda: len(worker.logged("spark_job_begins")) > jobs, UNDER_FIRE)


def everything_at_once(pair: Pair, random: Random) -> None:
    """Under all this records go on to arrive, again and again."""
    steps = [
        (step, worker)
        for step in (a_python_is_killed, a_driver_is_killed, a_service_is_stopped)
        for worker in pair.workers
    ] * ROUNDS
    random.shuffle(steps)
    with WorkerKiller(pair) as killer:
        for step, worker in steps:
            print(f"{step.__name__} {worker.name}")
            step(pair, worker, random)
            pair.flow.wait_for_more(50, UNDER_FIRE)
    assert killer.kills > ROUNDS
    pair.ready()


@pytest.mark.long
@pytest.mark.parametrize(
    ("disturb", "properties"),
    [
        pytest.param(workers_are_killed, {}, id="workers"),
        pytest.param(a_worker_is_decommissioned, {"spark.decommission.enabled": "true"}, id="decommissioned"),
        pytest.param(pythons_are_killed, {}, id="python"),
        pytest.param(drivers_are_killed, {}, id="drivers"),
        pytest.param(javas_are_killed, {}, id="java"),
        pytest.param(services_are_stopped, {}, id="stopped"),
        pytest.param(copies_take_over, SPECULATION, id="speculation"),
        pytest.param(everything_at_once, SPECULATION, id="everything"),
    ],
)
def test_on_a_cluster(
    site: Site, cluster: SparkCluster, disturb: Callable[[Pair, Random], None], properties: Tables
) -> None:
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")
    with Flow(site, partitions=4) as flow:
        pair = Pair(site, flow, cluster, properties)
        for worker in pair.workers:
            worker.start()
        with flow.traffic(seed=seed, most=60) as traffic:
            flow.wait_for_more(100, PATIENCE)
            pair.ready()
            disturb(pair, Random(seed))
            words = traffic.finish()
        flow.wait_for(words, PATIENCE)
        flow.wait_for_archive(PATIENCE)
        site.stop(*site.workers)
        print(flow.judge_target(rewinds=0))
        flow.judge_archive()
