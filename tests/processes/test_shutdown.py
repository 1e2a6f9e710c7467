"""SIGTERM: everything in flight is stored, delivered and committed; a second one leaves at once."""

from __future__ import annotations

import signal
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.fakes.slow_clients import SlowClients
from tests.processes.flow import Flow
from tests.processes.harness import A
from tests.processes.judge import archive_end
from tests.processes.s3_proxy import ANY, Hang, proxied

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = pytest.mark.integration

SEED = 11
DEADLINE = timedelta(seconds=10)  # the sites' shutdown_timeout


@pytest.mark.long
def test_sigterm_finishes_what_is_in_flight(site: Site) -> None:
    """Segments stay open for a minute here, so the archive gets nothing but what a shutdown stores."""
    with Flow(site) as flow:
        open_long = {"max_segment_age": "1m", "max_segment_messages": 100_000, "max_segment_size": "64MiB"}
        egress = site.egress("egress", {flow.topic: open_long})
        ingress = site.ingress("ingress", {"topic": flow.topic})
        with flow.traffic(seed=SEED) as traffic:
            for _ in range(2):  # the second life goes on where the first one ended
                egress.start()
                site.wait("records in memory", lambda: egress.metrics().value("egress_memory_bytes") > 0)
                egress.stop(DEADLINE)
                ends = {p: archive_end(each) for p, each in site.ranges(flow.topic).items()}
                assert ends
                committed = site.committed(A, site.egress_group, flow.topic, flow.partitions)
                assert {p: offset for p, offset in committed.items() if offset > 0} == ends
            ingress.start()
            flow.wait_for_more()
            ingress.stop(DEADLINE)
            words = traffic.finish()
        last = site.egress("egress-at-last", {flow.topic: {}}).start()
        ingress.start()
        flow.wait_for(words)
        flow.wait_for_archive()
        last.stop(DEADLINE)
        ingress.stop(DEADLINE)
        flow.judge_target(rewinds=0)
        flow.judge_archive()
        assert flow.overlaps() == {}, "something was stored again"


@pytest.mark.long
def test_a_second_sigterm_leaves_at_once_while_the_store_hangs(site: Site) -> None:
    with proxied(site.stack.moto.endpoint_url) as proxy, Flow(site) as flow:
        egress = site.egress(
            "egress", {flow.topic: {}}, endpoint_url=proxy.endpoint_url, shutdown_timeout="30s"
        ).start()
        site.wait("egress reads", lambda: bool(egress.logged("partition_begins")))  # its start puts objects, too
        with flow.traffic(seed=SEED) as traffic:
            flow.wait_for_archive()
            hang = Hang()
            proxy.break_("PutObject", hang)
            site.wait("an upload that hangs", lambda: proxy.met(hang) > 0)
            traffic.finish()
        egress.signal(signal.SIGTERM)
        site.wait("the first one taken", lambda: bool(egress.logged("stopping")))
        began = time.monotonic()
        egress.signal(signal.SIGTERM)
        assert egress.wait(timedelta(seconds=5)) == 128 + signal.SIGTERM, egress.explain("did not leave at once")
        assert time.monotonic() - began < 2


def test_one_sigterm_ends_within_the_deadline_while_the_store_hangs(site: Site) -> None:
    """No thread waits for an answer that never comes; what was not stored is not committed, and read again."""
    with proxied(site.stack.moto.endpoint_url) as proxy, Flow(site) as flow:
        egress = site.egress("egress", {flow.topic: {}}, endpoint_url=proxy.endpoint_url, shutdown_timeout="2s").start()
        with flow.traffic(seed=SEED) as traffic:
            hang = Hang()
            proxy.break_(ANY, hang)
            site.wait("a request that hangs", lambda: proxy.met(hang) > 0)
            traffic.finish()
        egress.signal(signal.SIGTERM)
        code = egress.wait(timedelta(seconds=8))
        assert code is not None, egress.explain("still runs six seconds after its deadline")
        proxy.heal()
        egress.start()
        flow.wait_for_archive()
        egress.stop()
        flow.judge_archive()


@pytest.mark.long
def test_slow_clients_of_the_metrics_port_hold_up_neither_a_scraper_nor_a_shutdown(site: Site) -> None:
    with Flow(site) as flow:
        egress = site.egress("egress", {flow.topic: {}}, shutdown_timeout="2s").start()
        ingress = site.ingress("ingress", {"topic": flow.topic}, shutdown_timeout="2s").start()
        with flow.traffic(seed=SEED) as traffic:
            flow.wait_for_more()
            traffic.finish()
        for worker in (egress, ingress):
            with SlowClients(worker.address, 200, reconnect=True):
                for _ in range(5):
                    assert worker.metrics().moved(), "no answer to an honest scraper"
                worker.tell_to_stop()
                worker.stopped(timedelta(seconds=6))  # shutdown_timeout, and what closing clients may take
