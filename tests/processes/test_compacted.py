"""A compacted topic has holes before and behind the egress: no false gap, and every record that was left arrives."""

from __future__ import annotations

from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.processes.flow import RUN, Flow
from tests.processes.harness import ASK_SECONDS, A
from tests.processes.judge import Content, compacted, judge_target
from tests.processes.traffic import COMPACTED, EPOCH_MS, Draft, produce_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.processes.harness import Site

pytestmark = pytest.mark.integration

SEED = 19
BROKER = "1"  # the only one


def test_a_compacted_topic(site: Site) -> None:
    with quick_cleaner(site.bootstrap(A)), Flow(site, partitions=2, config=COMPACTED) as flow:
        before = drafts(Random(SEED), 0, 3000)
        for first in range(0, len(before), 250):  # a batch each: a file of the log is never closed within one
            produce_all(site.bootstrap(A), flow.topic, before[first : first + 250])
        site.wait("holes", lambda: records(flow) < len(before) // 2)
        egress = site.egress("egress", {flow.topic: {"max_segment_messages": 200}}).start()
        ingress = site.ingress("ingress", {"topic": flow.topic}).start()
        flow.wait_for_more()
        after = drafts(Random(SEED), len(before), 2000)
        words = flow.produce(after)
        flow.wait_for(words)
        flow.wait_for_archive()
        shown = ingress.metrics()
        site.stop(egress, ingress)
        source, target = flow.source(), flow.read_target()
        for p in range(flow.partitions):
            written = [content(each) for each in (*before, *after, *words) if each.partition == p]
            gone = compacted(written, source[p].records)
            judge_target(written, target[p].records, rewinds=0, run=RUN, gone=gone)
        flow.judge_archive()
        assert flow.overlaps() == {}
    assert shown.value("lost_segments") == 0


def drafts(random: Random, first: int, count: int) -> list[Draft]:
    """No two alike, of few keys; the stamps make the broker roll its files, and only closed ones are compacted."""
    return [
        Draft(
            number % 2,
            b"key-%d" % random.randrange(100),
            None if random.random() < 0.1 else b"value-%d" % number,
            (),
            EPOCH_MS + 20 * number,
        )
        for number in range(first, first + count)
    ]


def content(each: Draft) -> Content:
    return Content(each.key, each.value, tuple(each.headers), (1, each.timestamp_ms))


def records(flow: Flow) -> int:
    return sum(len(log.records) for log in flow.source().values())


@contextmanager
def quick_cleaner(bootstrap: str) -> Iterator[None]:
    """The broker looks for something to compact all the time, not every 15 seconds."""
    _configure(bootstrap, ConfigEntry("log.cleaner.backoff.ms", "200", incremental_operation=AlterConfigOpType.SET))
    try:
        yield
    finally:
        _configure(bootstrap, ConfigEntry("log.cleaner.backoff.ms", "", incremental_operation=AlterConfigOpType.DELETE))


def _configure(bootstrap: str, *entries: ConfigEntry) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    resource = ConfigResource(ResourceType.BROKER, BROKER, incremental_configs=list(entries))
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(ASK_SECONDS)
