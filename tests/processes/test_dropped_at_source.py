"""The source drops what was not archived, and a producer leaves a transaction open: written down, waited for, shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.processes.flow import Flow
from tests.processes.harness import A
from tests.processes.traffic import EPOCH_MS, Draft

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = pytest.mark.integration


def drafts(first: int, count: int) -> list[Draft]:
    return [Draft(0, b"k", b"%d" % n, (), EPOCH_MS + n) for n in range(first, first + count)]


@pytest.mark.long
def test_a_recorded_gap_and_a_stuck_transaction(site: Site) -> None:
    with Flow(site, partitions=1) as flow:
        topics = {flow.topic: {"on_gap": "record"}}
        flow.produce(drafts(0, 100))
        egress = site.egress("egress", topics).start()
        flow.wait_for_archive()
        egress.stop()
        flow.produce(drafts(100, 100))
        admin = AdminClient({"bootstrap.servers": site.bootstrap(A)})
        for future in admin.delete_records([TopicPartition(flow.topic, 0, 150)]).values():
            future.result(10)
        egress = site.egress("egress-2", topics, stuck_transaction_after="2s").start()
        site.wait("the gap", lambda: egress.metrics().value("egress_recorded_gaps") == 1)
        assert egress.metrics().value("egress_recorded_gap_offsets") == 49  # behind the last word of the first hundred
        producer = Producer({"bootstrap.servers": site.bootstrap(A), "transactional.id": site.name})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(flow.topic, b"open", partition=0)
        producer.flush(10)
        site.wait("the warning", lambda: len(egress.logged("transaction_stuck")) == 1)
        assert egress.metrics().value("stuck_transaction_seconds") >= 2
        producer.abort_transaction(30)
        flow.wait_for_archive()
        site.wait("no more", lambda: egress.metrics().value("stuck_transaction_seconds") == 0)
        egress.stop()
