"""A thousand partitions of which nothing is archived yet: how long it takes until all of them are read."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from replicator.services.egress import build_egress
from tests.integration.test_incarnations_and_gaps import Source

pytestmark = [pytest.mark.integration, pytest.mark.long]

PARTITIONS = 1000
PATIENCE = timedelta(seconds=120)
WIDTH = 8  # requests of an egress at a time
MOST = 2.0  # times what it takes to put one small object for each partition, which has to be done


class Many(Source):
    def create(self) -> str:
        admin = AdminClient({**self.servers})
        [created] = admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)]).values()
        created.result()
        assert wait_until(lambda: self.topic_id() not in self.known, PATIENCE)
        return self.topic_id()


def test_a_thousand_empty_partitions(
    stack: LocalStack, unique: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """The time is compared with that of the puts alone, made here and now: the machine may be busy."""
    caplog.set_level(logging.INFO)
    source = Many(stack, unique)
    for life in ("first", "again"):
        caplog.clear()
        service = build_egress(source.config())
        service.start()
        try:
            assert wait_until(lambda: len(begins(caplog)) == PARTITIONS, PATIENCE), len(begins(caplog))
        finally:
            service.stop()
            service.join(timedelta(seconds=60))
        (selected,) = [r.created for r in caplog.records if r.getMessage() == "topics_selected"][:1]
        took = max(begins(caplog)) - selected
        alone = puts(source, life)
        print(f"{life}: {took:.1f} s from the subscription to the last partition; puts alone {alone:.1f} s")
        assert took < MOST * alone + 1, "joining the group takes no second"


def begins(caplog: pytest.LogCaptureFixture) -> list[float]:
    return [r.created for r in caplog.records if r.getMessage() == "partition_begins"]


def puts(source: Source, word: str) -> float:
    objects, began_at = source.store.objects, time.monotonic()
    with ThreadPoolExecutor(WIDTH) as pool:
        list(pool.map(lambda n: objects.put_new(f"puts/{word}/{n}", io.BytesIO(b"x" * 100), 100), range(PARTITIONS)))
    return time.monotonic() - began_at
