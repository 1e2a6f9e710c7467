"""Many consumer groups of many partitions: all of them are at their places in this cluster within half a minute."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from infra.contracts.cluster import Committed, TopicPartition
from infra.kafka.cluster.group_commits import KafkaGroupCommits
from infra.kafka.cluster.groups import KafkaGroups
from tests.processes.flow import Flow
from tests.processes.harness import A, B
from tests.processes.test_group_commits import newest
from tests.processes.traffic import EPOCH_MS, Draft

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = [pytest.mark.integration, pytest.mark.long]

GROUPS, PARTITIONS, RECORDS = 500, 100, 500
WITHIN = timedelta(seconds=30)
THREADS = 4


def test_all_are_committed_within_half_a_minute(site: Site) -> None:
    at = {f"{site.name}.g{n}": [(n + p) % RECORDS for p in range(PARTITIONS)] for n in range(GROUPS)}
    with Flow(site, partitions=PARTITIONS) as flow, ThreadPoolExecutor(THREADS) as pool:
        flow.target = f"{A}.{flow.topic}"
        commits = KafkaGroupCommits({"bootstrap.servers": site.bootstrap(A), "log_level": "0"})

        def commit(group: str) -> None:
            offsets = {TopicPartition(flow.topic, p): Committed(at[group][p], "") for p in range(PARTITIONS)}
            commits.commit(group, offsets)

        words = flow.produce(
            [
                Draft(partition=p, key=None, value=b"%d" % n, headers=(), timestamp_ms=EPOCH_MS)
                for n in range(RECORDS)
                for p in range(PARTITIONS)
            ]
        )
        list(pool.map(commit, at))
        egress = site.egress(
            "egress", {flow.topic: {}}, groups=[f"^{site.name}[.]g.*"], group_interval="1s", heartbeat_interval="1s"
        ).start()
        ingress = site.ingress("ingress", {"topic": flow.topic, "replication_policy": "default"})
        ingress.write({**ingress.tables, "groups": {"emit_checkpoints": False}})
        ingress.start()
        flow.wait_for(words)
        site.wait("the snapshot", lambda: (found := newest(site)) is not None and len(found.groups) == GROUPS)
        site.stop(ingress)

        ingress.write({**ingress.tables, "groups": {"sync": True, "interval": "1s", "adopt": True}})
        began = time.monotonic()
        ingress.start()
        wanted = GROUPS * PARTITIONS
        site.wait(
            "all of them", lambda: ingress.metrics().value("group_offsets", outcome="write") == wanted, 8 * WITHIN
        )
        took = time.monotonic() - began
        print(f"{GROUPS} groups of {PARTITIONS} partitions: {took:.1f} s")

        properties = {"bootstrap.servers": site.bootstrap(B), "log_level": "0"}
        here = KafkaGroups(properties, properties)
        partitions = [TopicPartition(flow.target, p) for p in range(PARTITIONS)]
        found = dict(zip(at, pool.map(lambda group: here.committed(group, partitions), at), strict=True))
        assert {group: [found[group][one].next_offset for one in partitions] for group in at} == at
        site.stop(egress, ingress)
        assert took < WITHIN.total_seconds()
