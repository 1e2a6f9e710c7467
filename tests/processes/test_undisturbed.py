"""What a new topic, and a member that comes or goes, cost the topics and partitions that they do not concern."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING

import pytest

from tests.processes.flow import Flow
from tests.processes.harness import A, B
from tests.processes.steady_load import Arrival, Arrivals, SteadyLoad, p99
from tests.processes.traffic import EPOCH_MS, Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tests.processes.harness import Site, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

PARTITIONS = 6
PER_SECOND = 300  # far below what a busy machine of two cores delivers, so that no lag from before is measured
WINDOW = 10 * PER_SECOND  # records: some 10 s, many segments of each partition
PATIENCE = timedelta(minutes=2)  # for one window, and until everything produced before has arrived
SETTLED = 3.0  # seconds until a record arrives, of which one is a segment's age
SESSION_MS = 30_000  # a machine that is busy ends no membership
DIP = 0.10  # of a window's throughput
LATER = 1.0  # seconds that the p99 of a partition that stays may grow by: what one segment waits to be full


def pass_window(site: Site, load: SteadyLoad) -> None:
    until = load.sent + WINDOW
    site.wait("a window", lambda: load.sent >= until, PATIENCE)


def settle(site: Site, arrivals: Arrivals) -> None:
    """Until every partition arrives as soon as it is produced."""

    def latest() -> Mapping[int, float]:
        return {one.partition: one.seconds for one in arrivals.seen[-WINDOW // 10 :]}

    def is_settled() -> bool:
        return len(latest()) == PARTITIONS and max(latest().values()) < SETTLED

    site.wait("records that arrive at once", is_settled, PATIENCE)


def throughput(site: Site, load: SteadyLoad, arrivals: Arrivals) -> float:
    """Of one window: records that arrived for each one that was produced."""
    sent, seen = load.sent, len(arrivals.seen)
    pass_window(site, load)
    return (len(arrivals.seen) - seen) / (load.sent - sent)


def test_a_new_topic_does_not_slow_the_others(site: Site) -> None:
    """Twice in one run, and the smaller of the two dips counts: a cause of ours shows each time, the machine's does
    not."""
    every = f"^{re.escape(site.name)}[.].*"
    with Flow(site, "old", partitions=PARTITIONS) as old:
        egress = site.egress("egress", {every: {}}, session_ms=SESSION_MS).start()
        ingress = site.ingress("ingress", {"topic": every}, session_ms=SESSION_MS).start()
        dips = []
        with (
            SteadyLoad(site.bootstrap(A), old.topic, PARTITIONS, PER_SECOND) as load,
            Arrivals(site.bootstrap(B), old.target, PARTITIONS) as arrivals,
        ):
            for word in ("first", "second"):
                settle(site, arrivals)
                before = median(throughput(site, load, arrivals) for _ in range(4))
                with Flow(site, word, partitions=PARTITIONS) as new:
                    words = new.produce([Draft(n % PARTITIONS, b"k", b"%d" % n, (), EPOCH_MS + n) for n in range(600)])
                    meanwhile = [throughput(site, load, arrivals) for _ in range(2)]  # found, created, delivered
                    new.wait_for(words)
                dips.append(1 - min(meanwhile) / before)
        site.stop(egress, ingress)
    print("dips of the throughput:", ", ".join(f"{dip:.1%}" for dip in dips))
    assert min(dips) < DIP


def begins(workers: Collection[Worker]) -> Mapping[tuple[str, int], int]:
    """How often each partition was begun, by any of them."""
    return Counter(
        (str(line["topic"]), int(line["partition"])) for worker in workers for line in worker.logged("partition_begins")
    )


def until_stored(load: SteadyLoad, workers: Collection[Worker]) -> list[Arrival]:
    """Of each record, until its segment was stored."""
    return [
        Arrival(partition, sent_at, datetime.fromisoformat(line["time"]).timestamp() - sent_at)
        for worker in workers
        for line in worker.logged("segment_stored")
        if line["topic"] == load.topic
        for partition in [int(line["partition"])]
        for sent_at in (load.sent_at_of(partition, offset) for offset in range(line["start"], line["end"] + 1))
    ]


def test_only_what_moves_pauses(site: Site) -> None:
    """A member of egress comes, goes, and a topic comes: records of partitions that stay are stored as soon as before.
    Without an ingress, which would add its own time."""
    every = f"^{re.escape(site.name)}[.].*"
    with Flow(site, "old", partitions=PARTITIONS) as old:
        members = [site.egress(name, {every: {}}, session_ms=SESSION_MS).start() for name in ("one", "two")]
        third = site.egress("three", {every: {}}, session_ms=SESSION_MS)
        workers = [*members, third]
        phases: dict[str, tuple[float, float, Collection[int]]] = {}
        with SteadyLoad(site.bootstrap(A), old.topic, PARTITIONS, PER_SECOND) as load:

            def phase(what: str, disturb: Callable[[], object] = lambda: None) -> None:
                """Two windows from the disturbance on, and the partitions that stay in them."""
                known, begun = begins(workers), load.sent_at[-1]
                disturb()
                pass_window(site, load)
                pass_window(site, load)
                now = begins(workers)
                stay = [p for p in range(PARTITIONS) if now[old.topic, p] == known[old.topic, p]]
                phases[what] = begun, load.sent_at[-1], stay

            def join() -> None:
                third.start()
                site.wait("three members", lambda: bool(third.logged("partition_begins")))

            def stored() -> set[int]:
                return {one.partition for one in until_stored(load, workers)}

            site.wait("all partitions", lambda: stored() == {*range(PARTITIONS)})
            pass_window(site, load)  # until both members have theirs
            phase("before")
            phase("a member comes", join)
            phase("a member goes", third.stop)
            with Flow(site, "new", partitions=PARTITIONS) as new:
                drafts = [Draft(n % PARTITIONS, b"k", b"%d" % n, (), EPOCH_MS + n) for n in range(300)]
                phase("a topic comes", lambda: new.produce(drafts))
                new.wait_for_archive()
            old.wait_for_archive()
        site.stop(*members)
        arrivals = until_stored(load, workers)
    found: dict[str, tuple[int, float]] = {}
    for what, (begin, end, stay) in phases.items():
        seconds = [one.seconds for one in arrivals if begin <= one.produced_at <= end and one.partition in stay]
        found[what] = len(stay), p99(seconds)
        print(f"{what}: {len(stay)} of {PARTITIONS} partitions stay, p99 {p99(seconds):.2f} s, {len(seconds)} records")
    _, before = found.pop("before")
    # a topic moves others, since members find it at different moments and the first one gets all of it
    assert [found[what][0] for what in ("a member comes", "a member goes")] == [4, 4]
    for what, (_, later) in found.items():
        assert later < before + LATER, what
