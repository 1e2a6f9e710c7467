"""The file of a running egress and ingress changes: a new topic flows, an excluded one stops, the others go on."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.processes.flow import Flow
from tests.processes.harness import OnSpark
from tests.processes.test_found_later import drafts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tests.processes.harness import Site, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

APPLIED_WITHIN = timedelta(seconds=30)
STARTS_WITHIN = timedelta(seconds=180)  # Spark, too
HERE_AND_ON_SPARK = pytest.mark.parametrize("spark", [None, OnSpark(tasks=1)], ids=["here", "on spark"])


def archiving(egress: Worker, *flows: Flow) -> Mapping[str, Any]:
    """The configuration of `egress` for these topics."""
    quick = next(iter(egress.tables["egress"]["topics"].values()))
    return {**egress.tables, "egress": {**egress.tables["egress"], "topics": {one.topic: quick for one in flows}}}


def excluding(ingress: Worker, *flows: Flow) -> Mapping[str, Any]:
    """The configuration of `ingress` without these topics."""
    [source] = ingress.tables["ingress"]["sources"]
    sources = [{**source, "exclude": [one.topic for one in flows]}]
    return {**ingress.tables, "ingress": {**ingress.tables["ingress"], "sources": sources}}


def produce(*flows: Flow, within: timedelta = APPLIED_WITHIN) -> None:
    """To each of them, and wait for it in the target."""
    words = [one.produce(drafts(100, [0, 1])) for one in flows]
    for one, last in zip(flows, words, strict=True):
        one.wait_for(last, within)


def problem(worker: Worker) -> str:
    return str(worker.readiness().get("problems", {}).get("configuration", ""))


def begun(egress: Worker, flow: Flow) -> int:
    return sum(event["topic"] == flow.topic for event in egress.logged("partition_begins"))


@HERE_AND_ON_SPARK
def test_m08_topics_come_and_go_while_the_others_go_on(site: Site, spark: OnSpark | None) -> None:
    with Flow(site, "old", 2) as old, Flow(site, "new", 2) as new, Flow(site, "kept", 2) as kept:
        slowly: Mapping[str, Any] = {"topic_refresh_interval": "10m", "spark": spark}
        egress = site.egress("egress", {old.topic: {}, kept.topic: {}}, **slowly).start()
        ingress = site.ingress("ingress", {"topic": f"^{site.name}[.].*"}, **slowly)
        ingress.write(excluding(ingress, new))
        for one in (old, kept):
            one.produce(drafts(50, [0, 1]))
            one.wait_for_archive(STARTS_WITHIN)
        ingress.start()  # which searches for topics once, so that what follows is because of the file
        produce(old, kept, within=STARTS_WITHIN)
        words = new.produce(drafts(50, [0, 1]))
        ends = old.ends()

        egress.write(archiving(egress, new, kept))  # which is seen by itself
        new.wait_for_archive(APPLIED_WITHIN)
        assert not new.has_arrived(words), "ingress does not deliver it yet"
        ingress.write(excluding(ingress, old))
        ingress.signal(signal.SIGHUP)
        new.wait_for(words, APPLIED_WITHIN)

        before = old.delivered()
        last = old.produce(drafts(100, [0, 1]))
        produce(new, kept)
        assert site.archived(old.topic, ends)
        assert not any(site.archived(old.topic, {number: end + 1}) for number, end in ends.items())
        assert (old.delivered(), old.has_arrived(last)) == (before, False)
        assert begun(egress, kept) == 2, "its partitions are read as before"
        assert egress.logged("config_reloaded")
        assert ingress.logged("config_reloaded")
        assert [problem(one) for one in (egress, ingress)] == ["", ""]

        egress.write(archiving(egress, old, new, kept))
        ingress.write(excluding(ingress))
        old.wait_for(last, APPLIED_WITHIN)
        site.stop(egress, ingress)
        for one in (old, new, kept):
            one.judge_target(rewinds=0)
            one.judge_archive()


@HERE_AND_ON_SPARK
def test_a_bad_file_changes_nothing_and_is_named(site: Site, spark: OnSpark | None) -> None:
    with Flow(site, "t", 2) as flow:
        egress = site.egress("egress", {flow.topic: {}}, spark=spark).start()
        ingress = site.ingress("ingress", {"topic": flow.topic}, spark=spark).start()
        produce(flow, within=STARTS_WITHIN)
        both: Collection[Worker] = (egress, ingress)
        good = [one.tables for one in both]
        for one in both:
            one.write_text("[egress")
        site.wait("the file named as bad", lambda: all("is not TOML" in problem(one) for one in both), APPLIED_WITHIN)
        for one, tables in zip(both, good, strict=True):
            one.write({**tables, "kafka": {**tables["kafka"], "bootstrap.servers": "nowhere:1"}})
            one.signal(signal.SIGHUP)
        wanted = 'needs a restart: kafka."bootstrap.servers"'
        site.wait("the restart named", lambda: all(problem(one) == wanted for one in both), APPLIED_WITHIN)
        produce(flow)
        for one, tables in zip(both, good, strict=True):
            one.write(tables)
        site.wait("no problem any more", lambda: not any(problem(one) for one in both), APPLIED_WITHIN)
        assert [len(one.logged("config_not_applied")) for one in both] == [2, 2]
        site.stop(*both)
        flow.judge_target(rewinds=0)
