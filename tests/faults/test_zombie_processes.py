"""A process frozen past its session and thawed when another has taken over: nothing that the other wrote changes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.faults.hand import hand, member
from tests.faults.rig import Rig, stop
from tests.faults.schedule import SESSION_SECONDS, TRANSACTION, Membership
from tests.processes.harness import A, B
from tests.processes.s3_proxy import Slow, proxied

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = [pytest.mark.integration, pytest.mark.long]

PROTOCOLS = ("classic", "consumer")


def lasts(seconds: float) -> None:
    threading.Event().wait(seconds)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_egress_frozen_in_mid_upload(site: Site, protocol: str) -> None:
    """The request is on its way when the process stops: the store has it before, or after, the other one's."""
    kafka = {"consumer": member(Membership(protocol=protocol, static=False), "")}
    with proxied(site.stack.moto.endpoint_url) as slow, Rig(site, seed=3) as rig:
        frozen = hand(site, site.egress("frozen", {rig.flow.topic: {}}, endpoint_url=slow.endpoint_url, kafka=kafka))
        other = hand(site, site.egress("other", {rig.flow.topic: {}}, kafka=kafka))
        ingress = hand(
            site, site.ingress("ingress", {"topic": rig.flow.topic}, kafka=kafka, transaction_timeout=TRANSACTION)
        )
        frozen.start()
        ingress.start()
        rig.traffic()
        rig.flow.wait_for_more()
        uploading = Slow(SESSION_SECONDS)
        slow.break_("PutObject", uploading)
        site.wait("an upload", lambda: slow.met(uploading) > 0)
        frozen.freeze()
        other.start()
        site.wait("another owner", lambda: len(other.worker.logged("segment_stored")) >= rig.flow.partitions)
        before = site.keys()
        slow.heal()
        frozen.thaw()
        site.wait("two owners", lambda: site.holds(A, site.egress_group, members=2, partitions=rig.flow.partitions))
        lasts(SESSION_SECONDS)
        after = site.keys()
        assert {key: after.get(key) for key in before} == before
        rig.drain()
        stop([ingress, frozen, other])
        rig.judge()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_ingress_frozen_while_it_delivers(site: Site, protocol: str) -> None:
    kafka = {"consumer": member(Membership(protocol=protocol, static=False), "")}
    with Rig(site, seed=4) as rig:
        egress = hand(site, site.egress("egress", {rig.flow.topic: {}}, kafka=kafka))
        frozen = hand(
            site, site.ingress("frozen", {"topic": rig.flow.topic}, kafka=kafka, transaction_timeout=TRANSACTION)
        )
        other = hand(
            site, site.ingress("other", {"topic": rig.flow.topic}, kafka=kafka, transaction_timeout=TRANSACTION)
        )
        egress.start()
        frozen.start()
        rig.traffic()
        rig.flow.wait_for_more()
        for _ in range(3):
            rig.flow.wait_for_more()
            frozen.freeze()
            other.start()
            rig.flow.wait_for_more()
            lasts(SESSION_SECONDS)
            frozen.thaw()
            site.wait(
                "two owners", lambda: site.holds(B, site.ingress_group, members=2, partitions=rig.flow.partitions)
            )
        rig.drain()
        stop([egress, frozen, other])
        rig.judge()
