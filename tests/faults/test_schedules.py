"""Random schedules of faults over real processes. A seed that failed is played again by `make soak SEEDS=n-n`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.crash_points import WAYS, Side, made
from tests.faults.hand import crew
from tests.faults.player import Player
from tests.faults.rig import Rig, Tally, stop
from tests.faults.schedule import (
    BrokerFrozen,
    CheckpointTopicGrows,
    Freeze,
    Kill,
    Membership,
    OtherGroup,
    Schedule,
    Slot,
    SlowClients,
    Store,
    Timed,
    family,
    membership,
    schedule,
)
from tests.faults.soak import Soak
from tests.processes.harness import Site
from tests.processes.notices import Twice
from tests.processes.s3_proxy import proxied

if TYPE_CHECKING:
    from infra.local.process import Supervisor
    from tests.faults.place import Place

SAMPLE = range(1)
MORE = range(5, 35)


def test_a_seed_says_everything() -> None:
    steps = list(WAYS)
    assert schedule(7, steps) == schedule(7, steps)
    assert schedule(7, steps) != schedule(8, steps)
    assert membership(5) == membership(9)


IDLE = Schedule(
    seed=0,
    membership=Membership(protocol="classic", static=True),
    faults=(
        Timed(at=0.1, fault=Kill(slot=Slot(side=Side.EGRESS, number=0), seconds=0.0)),
        Timed(at=0.2, fault=Freeze(slot=Slot(side=Side.INGRESS, number=1), seconds=0.3)),
        Timed(at=0.3, fault=Store(operation="ReceiveMessage", fault=Twice(), seconds=3.0)),  # asked for all the time
        Timed(at=0.4, fault=BrokerFrozen(region="b", seconds=0.3)),
    ),
)


@pytest.mark.integration
@pytest.mark.long
def test_faults_when_nothing_is_on_its_way_are_not_honest(fault_place: Place, supervisor: Supervisor) -> None:
    """The same schedule with traffic, then without."""
    with (
        proxied(fault_place.stack.moto.endpoint_url) as proxy,
        Site(fault_place.stack, supervisor, set(), "idle") as site,
        Rig(site, seed=IDLE.seed) as rig,
    ):
        hands = crew(site, fault_place, IDLE.membership, endpoint_url=proxy.endpoint_url)
        for each in hands.values():
            each.start()
        player = Player(rig, hands, fault_place, proxy)
        rig.traffic()
        rig.flow.wait_for_more()
        player.play(IDLE)
        assert rig.tally.honest, rig.tally
        rig.drain(hands=list(hands.values()))
        rig.tally = Tally()
        player.play(IDLE)
        assert (rig.tally.total, rig.tally.in_flight) == (len(IDLE.faults), 0), rig.tally
        assert not rig.tally.honest
        stop(list(hands.values()))
        rig.judge()


BELIEFS = Schedule(
    seed=1,
    membership=Membership(protocol="consumer", static=False),
    faults=(
        Timed(at=0.3, fault=OtherGroup()),
        Timed(at=0.5, fault=SlowClients(slot=Slot(side=Side.INGRESS, number=0), seconds=3.0)),
        Timed(at=0.7, fault=CheckpointTopicGrows()),
        Timed(at=0.9, fault=Kill(slot=Slot(side=Side.INGRESS, number=1), seconds=0.0)),
        Timed(at=1.1, fault=SlowClients(slot=Slot(side=Side.EGRESS, number=1), seconds=1.0)),
        Timed(at=1.3, fault=CheckpointTopicGrows()),
    ),
)


@pytest.mark.integration
@pytest.mark.long
def test_what_processes_believe_is_shaken(fault_place: Place, supervisor: Supervisor) -> None:
    """None of it is a crash, and none of it changes what arrives."""
    with (
        proxied(fault_place.stack.moto.endpoint_url) as proxy,
        Site(fault_place.stack, supervisor, set(), "beliefs") as site,
        Rig(site, seed=BELIEFS.seed) as rig,
    ):
        hands = crew(site, fault_place, BELIEFS.membership, endpoint_url=proxy.endpoint_url)
        for each in hands.values():
            each.start()
        site.wait("all ready", lambda: all(each.worker.readiness().get("started") for each in hands.values()))
        rig.traffic()
        rig.flow.wait_for_more()
        Player(rig, hands, fault_place, proxy).play(BELIEFS)
        assert set(rig.tally.faults) == {family(timed.fault) for timed in BELIEFS.faults}
        rig.drain(hands=list(hands.values()))
        stop(list(hands.values()))
        rig.judge()


@pytest.mark.integration
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(SAMPLE, id="sample"),
        pytest.param(MORE, id="thirty", marks=pytest.mark.long),
    ],
)
def test_schedules(fault_place: Place, supervisor: Supervisor, seeds: range) -> None:
    soak = Soak(fault_place, supervisor, steps=sorted(made()))
    soak.run(seeds)
    print(soak.outcome)
    assert soak.outcome.failures == {}
    assert soak.outcome.tally.honest, f"most faults met nothing: {soak.outcome.tally}"
