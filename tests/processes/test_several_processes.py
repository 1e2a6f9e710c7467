"""Egress and ingress as several processes under one parent, against real brokers: nothing is lost, nothing twice."""

from __future__ import annotations

import os
import secrets
import signal
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.processes.flow import Flow
from tests.processes.harness import Site, Worker
from tests.processes.test_found_later import drafts
from tests.processes.test_on_spark import is_gone, tasks_of
from tests.processes.test_reloaded_file import archiving, excluding

if TYPE_CHECKING:
    from tests.processes.harness import Tables

pytestmark = [pytest.mark.integration, pytest.mark.long]

PATIENCE = timedelta(seconds=120)
GONE_WITHIN = timedelta(seconds=30)


def wait_until_ready(site: Site, *workers: Worker) -> None:
    site.wait("ready", lambda: all(worker.readiness().get("ready") for worker in workers), PATIENCE)


def with_processes(worker: Worker, count: int) -> Tables:
    section = "egress" if "egress" in worker.tables else "ingress"
    return {**worker.tables, section: {**worker.tables[section], "processes": count}}


def times_read(worker: Worker) -> int:
    """By the parent."""
    return sum("task" not in line for line in worker.logged("config_reloaded"))


def has_read(worker: Worker, times: int) -> bool:
    return times_read(worker) == times


def test_killed_and_restarted_with_another_number(site: Site) -> None:
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")
    with Flow(site, partitions=6) as flow:
        egress = site.egress("egress", {flow.topic: {}}, processes=2)
        ingress = site.ingress("ingress", {"topic": flow.topic}, processes=2)
        for worker in (egress, ingress):
            worker.start()
        with flow.traffic(seed=seed, most=60) as traffic:
            flow.wait_for_more(100)
            wait_until_ready(site, egress, ingress)
            for worker in (egress, ingress):
                os.kill(tasks_of(worker)[1], signal.SIGKILL)
            flow.wait_for_more(100)
            wait_until_ready(site, egress, ingress)
            assert all(len(worker.logged("process_started")) == 3 for worker in site.workers)
            for worker in (egress, ingress):  # one after the other, in the middle of the flow
                site.stop(worker)
                assert {line["task"] for line in worker.logged("task_drained")} == {0, 1}
                worker.tables = with_processes(worker, 3)
                worker.start()
                flow.wait_for_more(50)
            wait_until_ready(site, egress, ingress)
            children = list(tasks_of(egress).values())
            egress.kill()  # the parent alone
            site.wait("children without a parent", lambda: all(map(is_gone, children)), GONE_WITHIN)
            egress.start()
            flow.wait_for_more(50)
            words = traffic.finish()
        flow.wait_for(words)
        flow.wait_for_archive()
        wait_until_ready(site, egress, ingress)
        metrics = ingress.metrics()
        assert metrics.value("running_worker_processes") == 3
        assert sum(metrics.value("assigned_partitions", task=str(task)) for task in range(3)) == 6
        site.stop(*site.workers)
        flow.judge_target(rewinds=0)
        flow.judge_archive()


def test_a_file_that_changed_reaches_every_process(site: Site) -> None:
    """SIGHUP goes to the parent alone, as systemd sends it: both children take the settings over, and neither begins
    again."""
    with Flow(site, "old", 2) as old, Flow(site, "new", 4) as new:
        egress = site.egress("egress", {old.topic: {}}, processes=2).start()
        ingress = site.ingress("ingress", {"topic": f"^{site.name}[.].*"}, processes=2)
        ingress.write(excluding(ingress, new))
        ingress.start()
        old.wait_for(old.produce(drafts(50, [0, 1])), PATIENCE)
        wait_until_ready(site, egress, ingress)
        children = {worker: tasks_of(worker) for worker in (egress, ingress)}
        words = new.produce(drafts(100, range(4)))

        egress.write(archiving(egress, old, new))
        egress.signal(signal.SIGHUP)
        new.wait_for_archive(PATIENCE)
        assert not new.has_arrived(words), "ingress does not deliver it yet"
        ingress.write(excluding(ingress))
        ingress.signal(signal.SIGHUP)
        new.wait_for(words, PATIENCE)

        for worker in (egress, ingress):  # a file that is as before is read again, too
            read = times_read(worker)
            worker.signal(signal.SIGHUP)
            site.wait("read again", partial(has_read, worker, read + 1), PATIENCE)
        for worker, pids in children.items():
            assert {line["task"] for line in worker.logged("config_reloaded") if "task" in line} == {0, 1}
            assert tasks_of(worker) == pids
        wait_until_ready(site, egress, ingress)
        metrics = egress.metrics()
        assert all(metrics.value("assigned_partitions", task=str(task)) > 0 for task in range(2))
        site.stop(egress, ingress)
        for flow in (old, new):
            flow.judge_target(rewinds=0)
            flow.judge_archive()
