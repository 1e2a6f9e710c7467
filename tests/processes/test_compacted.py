"""A compacted topic has holes before and behind the egress: no false gap, and every record that was left arrives."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.processes.flow import Flow
from tests.processes.harness import A
from tests.processes.log_cleaner import quick_cleaner
from tests.processes.traffic import COMPACTED, EPOCH_MS, Draft, produce_all

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = pytest.mark.integration

SEED = 19


@pytest.mark.long
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
        flow.judge_compacted([*before, *after, *words], rewinds=0)
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


def records(flow: Flow) -> int:
    return sum(len(log.records) for log in flow.source().values())
