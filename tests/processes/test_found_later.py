"""Topics and partitions that appear while the egress runs are read from their beginning, whatever the start policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.processes.flow import Flow
from tests.processes.harness import A
from tests.processes.traffic import EPOCH_MS, Draft, produce_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.processes.harness import Site

pytestmark = [pytest.mark.integration, pytest.mark.long]


def drafts(count: int, partitions: Sequence[int]) -> list[Draft]:
    return [Draft(partitions[n % len(partitions)], b"k", b"%d" % n, (), EPOCH_MS + n) for n in range(count)]


def test_a_topic_and_partitions_found_later(site: Site) -> None:
    with Flow(site, "old", partitions=2) as old:
        old.produce(drafts(100, [0, 1]))  # before us: "latest" leaves these out
        starts = old.ends()
        egress = site.egress("egress", {f"^{site.name}[.].*": {"start": "latest"}}).start()
        ingress = site.ingress("ingress", {"topic": f"^{site.name}[.].*"}).start()
        site.wait("both begun", lambda: len(egress.logged("partition_begins")) == 2)
        with Flow(site, "new", partitions=2) as new:
            words = new.produce(drafts(100, [0, 1]))
            admin = AdminClient({"bootstrap.servers": site.bootstrap(A)})
            for future in admin.create_partitions([NewPartitions(old.topic, 3)]).values():
                future.result(10)
            old.partitions = 3
            site.wait("three partitions", lambda: shown_partitions(admin, old.topic) == 3)
            produce_all(site.bootstrap(A), old.topic, drafts(100, [0, 1, 2]))
            new.wait_for(words)
            new.wait_for_archive()
            old.wait_for_archive()
            site.stop(egress, ingress)
            new.judge_target(rewinds=0)
            new.judge_archive()
            old.judge_archive(starts=starts)


def shown_partitions(admin: AdminClient, topic: str) -> int:
    return len(admin.list_topics(topic, timeout=10).topics[topic].partitions)
