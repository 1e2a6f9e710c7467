"""A source topic gets partitions that the target does not have, and ingress may not add them: how soon that is named,
by what, and how soon delivery begins once the target has grown, too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.processes.flow import Flow
from tests.processes.harness import A, B
from tests.processes.traffic import EPOCH_MS, Draft

if TYPE_CHECKING:
    from tests.processes.harness import Site, Worker

pytestmark = pytest.mark.integration

INTERVAL = timedelta(seconds=4)
SLACK = timedelta(seconds=3)  # to seal, store and notify; to join the group


def drafts(count: int, partitions: int) -> list[Draft]:
    return [Draft(n % partitions, b"k", b"%d" % n, (), EPOCH_MS + n) for n in range(count)]


@pytest.mark.long
def test_growth_is_named_and_delivered_within_the_refresh_interval(site: Site) -> None:
    refresh = f"{INTERVAL.total_seconds():.0f}s"
    with Flow(site, "t", partitions=1) as flow:
        egress = site.egress("egress", {flow.topic: {}}, topic_refresh_interval=refresh).start()
        workers = [
            site.ingress(name, {"topic": flow.topic}, topic_refresh_interval=refresh, add_partitions=False).start()
            for name in ("one", "two")
        ]
        flow.wait_for(flow.produce(drafts(100, 1)))

        source, grown = f"{A}/{flow.topic}", grow(site, A, flow.topic, 3)
        flow.partitions = 3
        words = flow.produce(drafts(300, 3))
        wanted = {f"{source}/1", f"{source}/2"}
        site.wait("both partitions in /readyz", lambda: all(stopped(worker) >= wanted for worker in workers))
        assert datetime.now(UTC) - grown < 2 * INTERVAL + SLACK
        for worker in workers:
            site.wait("their lag", lambda w=worker: shown(w).keys() == wanted)  # type: ignore[misc]
            site.wait("the same in status", lambda w=worker: shown(w) == shown_by_status(w))  # type: ignore[misc]
            assert stopped(worker) == wanted
            assert worker.metrics().value("stopped_partitions", held="false") == 2
            assert worker.metrics().value("stopped_partitions", held="true") == 0
        assert workers[0].run("status")[0] == 3
        site.wait("partition 0", lambda: flow.delivered() >= 202)

        grown = grow(site, B, flow.target, 3)

        def begun() -> dict[int, datetime]:
            return {
                line["partition"]: datetime.fromisoformat(line["time"])
                for worker in workers
                for line in worker.logged("partition_begins")
            }

        site.wait("both partitions begun", lambda: begun().keys() >= {1, 2})
        assert max(begun()[p] for p in (1, 2)) - grown < INTERVAL + SLACK
        flow.reread()
        flow.wait_for(words)
        for worker in workers:
            site.wait("nothing is stopped", lambda w=worker: bool(w.readiness()["ready"]))  # type: ignore[misc]
            # the partitions that no process has are counted every few seconds
            site.wait("none is counted", lambda w=worker: w.metrics().value("stopped_partitions") == 0)  # type: ignore[misc]
        site.wait("a status without a problem", lambda: workers[0].run("status")[0] == 0)
        site.stop(egress, *workers)
        flow.judge_target(rewinds=0)


def grow(site: Site, region: str, topic: str, partitions: int) -> datetime:
    admin = AdminClient({"bootstrap.servers": site.bootstrap(region)})
    for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result(10)
    site.wait(f"{topic} has grown", lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3)
    return datetime.now(UTC)


def stopped(worker: Worker) -> set[str]:
    return set(worker.readiness().get("stopped", ()))


def shown(worker: Worker) -> Mapping[str, float]:
    """Lag by partition, where there is one."""
    metrics = worker.metrics()
    topic = str(worker.tables["ingress"]["sources"][0]["topic"])
    lags = {f"{A}/{topic}/{p}": metrics.value("ingress_lag_records", topic=topic, partition=str(p)) for p in range(3)}
    return {partition: lag for partition, lag in lags.items() if lag}


def shown_by_status(worker: Worker) -> Mapping[str, float]:
    _, text = worker.run("status", "--json")
    rows: list[dict[str, Any]] = json.loads(text[text.index("{") : text.rindex("}") + 1])["ingress"]["partitions"]
    return {row["source"]: row["lag"] for row in rows if row["lag"]}
