"""One group for each checkpoint topic: a group renamed while both run, a take-over, and two that start at once."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from tests.processes.flow import Flow
from tests.processes.harness import A, B
from tests.processes.judge import ends, read_topic
from tests.processes.traffic import EPOCH_MS, Draft, create_topic, produce_all

if TYPE_CHECKING:
    from tests.processes.harness import Site, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

PARTITIONS = 2


def drafts(first: int, count: int) -> list[Draft]:
    return [Draft(n % PARTITIONS, b"k", b"%d" % n, (), EPOCH_MS + n) for n in range(first, first + count)]


def refused(site: Site, worker: Worker, *names: str) -> None:
    """It ends by itself with exit code 1, and its last words name the groups."""
    site.wait(f"{worker.name} is refused", lambda: worker.exit_code is not None)
    assert worker.exit_code == 1, worker.explain("was not refused")
    reason = str(worker.logged("service_failed")[-1]["error"])
    assert all(name in reason for name in names), reason
    worker.end()


def test_a_group_renamed_while_both_run(site: Site) -> None:
    """Another deployment with the same checkpoint topic is another group for it: no record comes twice."""
    old, new = site.ingress_group, f"{site.name}.renamed"
    with Flow(site, partitions=PARTITIONS) as flow:
        egress = site.egress("egress", {flow.topic: {}}).start()
        first = site.ingress("ingress-1", {"topic": flow.topic}).start()
        flow.wait_for(flow.produce(drafts(0, 100)))
        second = site.ingress("ingress-2", {"topic": flow.topic}, group_id=new)
        second.doomed = True
        second.start(environment={})
        refused(site, second, old, new, "--take-over")
        impatient = site.ingress("ingress-3", {"topic": flow.topic}, group_id=new, command=["--take-over", old])
        impatient.start(environment={})
        refused(site, impatient, old, "1 member(s)")
        flow.wait_for(flow.produce(drafts(100, 100)))

        first.stop()
        words = flow.produce(drafts(200, 100))
        taker = site.ingress("ingress-5", {"topic": flow.topic}, group_id=new, command=["--take-over", old]).start()
        flow.wait_for(words)
        plain = site.ingress("ingress-6", {"topic": flow.topic}, group_id=new).start()
        site.wait("both share the work", lambda: site.holds(B, new, members=2, partitions=PARTITIONS))
        first.start(environment={})
        refused(site, first, old, new)
        flow.wait_for(flow.produce(drafts(300, 100)))
        site.stop(egress, taker, plain)
        flow.judge_target(rewinds=0)


def test_a_process_that_was_frozen_while_its_group_was_replaced(site: Site) -> None:
    new = f"{site.name}.renamed"
    with Flow(site, partitions=PARTITIONS) as flow:
        egress = site.egress("egress", {flow.topic: {}}).start()
        old = site.ingress("ingress-1", {"topic": flow.topic}).start()
        flow.wait_for(flow.produce(drafts(0, 100)))
        old.doomed = True
        old.signal(signal.SIGSTOP)
        words = flow.produce(drafts(100, 100))
        site.wait("its session is over", lambda: not site.members(B, site.ingress_group))
        taker = site.ingress(
            "ingress-2", {"topic": flow.topic}, group_id=new, command=["--take-over", site.ingress_group]
        )
        taker.doomed = True  # the broker may still name the member: it is started until it is gone

        def taken() -> bool:
            if taker.expected and taker.exit_code is not None:
                taker.end()
            if not taker.expected:
                taker.start(environment={})
            return flow.has_arrived(words)

        site.wait("the other group goes on", taken)
        old.signal(signal.SIGCONT)
        refused(site, old, new)
        flow.wait_for(flow.produce(drafts(200, 100)))
        site.stop(egress, taker)
        flow.judge_target(rewinds=0)


def test_two_groups_that_start_at_once(site: Site) -> None:
    with Flow(site, partitions=PARTITIONS) as flow:
        egress = site.egress("egress", {flow.topic: {}}).start()
        words = flow.produce(drafts(0, 100))
        workers = [
            site.ingress(f"ingress-{n}", {"topic": flow.topic}, group_id=f"{site.name}.group-{n}") for n in range(3)
        ]
        for worker in workers:
            worker.start(environment={})
        site.wait("two are refused", lambda: sum(worker.exit_code is not None for worker in workers) == 2)
        flow.wait_for(words)
        (winner,) = [worker for worker in workers if worker.exit_code is None]
        for worker in set(workers) - {winner}:
            refused(site, worker, f"{site.name}.group-{winner.name[-1]}")
        flow.wait_for(flow.produce(drafts(100, 100)))
        site.stop(egress, winner)
        flow.judge_target(rewinds=0)


def test_a_checkpoint_topic_that_was_copied_to_another_cluster(site: Site) -> None:
    """Its positions are about topics of the cluster that it came from: nothing is delivered by them."""
    with Flow(site, partitions=PARTITIONS) as flow:
        egress = site.egress("egress", {flow.topic: {}}).start()
        first = site.ingress("ingress-1", {"topic": flow.topic}).start()
        flow.wait_for(flow.produce(drafts(0, 100)))
        first.stop()
        copy_topic(site, f"{site.name}.checkpoints")
        there = {"bootstrap.servers": site.bootstrap(A)}
        second = site.ingress("ingress-2", {"topic": flow.topic}, kafka=there).start(environment={})
        refused(site, second, cluster_id(site, A), cluster_id(site, B), "--take-over")
        code, text = second.run("status")
        assert (code, "the topic was copied here" in text) == (3, True), text

        command = ["--take-over", site.ingress_group]
        taker = site.ingress("ingress-3", {"topic": flow.topic}, command=command, kafka=there).start()
        site.wait("both partitions stopped", lambda: len(taker.readiness().get("stopped", ())) == PARTITIONS)
        assert all("was created again" in reason for reason in taker.readiness()["stopped"].values())
        assert ends(site.bootstrap(A), flow.target, PARTITIONS) == {0: 0, 1: 0}
        site.stop(egress, taker)


def cluster_id(site: Site, region: str) -> str:
    found = AdminClient({"bootstrap.servers": site.bootstrap(region)}).list_topics(timeout=10)
    return str(found.cluster_id)


def copy_topic(site: Site, topic: str) -> None:
    """From region b's cluster to region a's, as a copy of the cluster would have it."""
    create_topic(site.bootstrap(A), topic, 1, {"cleanup.policy": "compact"})
    (log,) = read_topic(site.bootstrap(B), topic, 1).values()
    produce_all(site.bootstrap(A), topic, [Draft(0, r.key, r.value, (), EPOCH_MS) for r in log.records])
