"""How long `status` takes, of running services on brokers of the same machine: an operator calls it again and again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.processes.flow import Flow

if TYPE_CHECKING:
    from tests.processes.harness import Site, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.cpu]

PARTITIONS = 50
MOST_SECONDS = 1.5
TIMES = 5
REFRESH = "1m"  # as operators have it: services that refresh each second share the cores


def test_status_answers_within_1_5_seconds(site: Site) -> None:
    with Flow(site, partitions=PARTITIONS) as flow:
        egress = site.egress("egress", {flow.topic: {}}, lag_interval="15s", topic_refresh_interval=REFRESH).start()
        ingress = site.ingress(
            "ingress", {"topic": flow.topic}, relist_interval="10m", topic_refresh_interval=REFRESH
        ).start()
        flow.wait_for(flow.produce([]))
        site.wait("nothing to complain of", lambda: all(each.run("status")[0] == 0 for each in (egress, ingress)))
        for worker in (egress, ingress):
            took = [seconds(worker) for _ in range(TIMES)]
            print(f"status of {worker.name}: {', '.join(f'{one:.2f}' for one in sorted(took))} s")
            assert min(took) < MOST_SECONDS
        for worker in (egress, ingress):
            worker.stop()


def seconds(worker: Worker) -> float:
    began = time.monotonic()
    code, text = worker.run("status")
    assert code == 0, text
    return time.monotonic() - began
