"""A trickle of records over many partitions, in segments of a second: all arrive, and soon, at little cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.processes.flow import Flow
from tests.processes.harness import A
from tests.processes.usage import Usage

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = pytest.mark.integration

MOST_QUEUED = 50_000  # records in the client, which takes twice as many
VALUE = b"x" * 500
SECOND = {"max_segment_age": "1s", "max_segment_messages": 1_000_000, "max_segment_size": "100MiB"}
HUNDRED = {"max_segment_age": "1h", "max_segment_messages": 100, "max_segment_size": "100MiB"}
SETTLES_WITHIN = timedelta(minutes=5)  # what it costs is judged in CPU-seconds


def produce(site: Site, flow: Flow, count: int, per_second: int | None = None) -> Iterator[int]:
    """Records by turns to each partition; answers how many, now and then. `per_second`: at that pace."""
    producer = Producer({"bootstrap.servers": site.bootstrap(A), "linger.ms": 5})
    began = time.monotonic()
    for number in range(count):
        while len(producer) >= MOST_QUEUED:  # a busy machine sends slower than it produces
            producer.poll(0.1)
        producer.produce(flow.topic, VALUE, partition=number % flow.partitions)
        if per_second is not None and number % max(per_second // 100, 1) == 0:
            producer.poll(0)
            yield number
            time.sleep(max(number / per_second - (time.monotonic() - began), 0))  # the pace
    assert producer.flush(60) == 0
    yield count


@pytest.mark.long
@pytest.mark.parametrize("seconds", [8, 60])
def test_five_thousand_a_second_over_fifty_partitions(site: Site, seconds: int) -> None:
    """Compared with a backlog of as many records, which the same process cuts into as small segments."""
    count = 5_000 * seconds
    with Flow(site, "trickle", 50) as flow, Flow(site, "backlog", 50) as backlog:
        egress = site.egress(
            "egress", {flow.topic: SECOND, backlog.topic: HUNDRED}, memory_budget="256MiB", session_ms=10_000
        ).start()
        site.wait(
            "every partition", lambda: site.holds(A, site.egress_group, members=1, partitions=100), SETTLES_WITHIN
        )

        def used_by(work: Callable[[], None]) -> float:
            """CPU seconds until all is archived."""
            before = Usage.of(egress.pid).cpu_seconds
            work()
            flow.wait_for_archive(SETTLES_WITHIN)
            backlog.wait_for_archive(SETTLES_WITHIN)
            return Usage.of(egress.pid).cpu_seconds - before

        memory: list[float] = []

        def trickle() -> None:
            stored_at_half = 0.0
            for number in produce(site, flow, count, per_second=5_000):
                memory.append(Usage.of(egress.pid).rss_mib)
                if number >= count // 2 and not stored_at_half:
                    stored_at_half = egress.metrics().value("egress_records")
            assert stored_at_half > 0, "nothing was stored while it was produced"

        def whole() -> None:
            assert list(produce(site, backlog, count)) == [count]

        of_trickle, of_backlog = used_by(trickle), used_by(whole)
        site.wait("every record counted", lambda: egress.metrics().value("egress_records") >= 2 * count)
        assert egress.metrics().value("egress_records") == 2 * count
        assert egress.metrics().value("egress_rewinds") == 0
        quarter = len(memory) // 4
        print(
            f"CPU-seconds per million: {of_trickle / count * 1e6:.0f}, of a backlog {of_backlog / count * 1e6:.0f}; "
            f"memory {memory[quarter]:.0f} MiB, then {memory[-1]:.0f} MiB"
        )
        assert of_trickle < 3 * of_backlog
        assert memory[-1] < memory[quarter] + 64, "memory grows"
        egress.stop()
        for one in (flow, backlog):
            one.judge_archive()
            assert one.overlaps() == {}


@pytest.mark.long
def test_twenty_a_second_over_two_thousand_partitions(site: Site) -> None:
    """Each partition has a record now and then, and each segment one record."""
    partitions, count = 2_000, 600
    with Flow(site, "sparse", partitions) as flow:
        egress = site.egress("egress", {flow.topic: SECOND}, memory_budget="256MiB", session_ms=30_000).start()
        site.wait(
            "every partition",
            lambda: site.holds(A, site.egress_group, members=1, partitions=partitions),
            SETTLES_WITHIN,
        )
        site.wait(
            "every position", lambda: len(egress.logged("partition_begins")) >= partitions, timedelta(seconds=180)
        )
        before, began, behind, memory = Usage.of(egress.pid), time.monotonic(), 0.0, []
        for number in produce(site, flow, count, per_second=20):
            if number % 20 == 0:
                behind = max(behind, number - egress.metrics().value("egress_records"))
                memory.append(Usage.of(egress.pid).rss_mib)
        flow.wait_for_archive(SETTLES_WITHIN)
        after, seconds = Usage.of(egress.pid), time.monotonic() - began
        print(
            f"{(after.cpu_seconds - before.cpu_seconds) / seconds:.2f} of a core; at most {behind:.0f} records behind; "
            f"memory {memory[0]:.0f} MiB, then {memory[-1]:.0f} MiB"
        )
        assert behind < 20 * 10, "more than ten seconds behind"
        assert memory[-1] < memory[len(memory) // 4] + 64, "memory grows"
        egress.stop()
        flow.judge_archive()
