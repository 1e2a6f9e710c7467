"""An exception in each callback of the Kafka client, in the real processes: they go on, or say why they end and are
started again; nothing is lost or doubled, and no process stands still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.local.waiting import wait_until
from tests.faults.callbacks import Callback, Hooks, Planned, Raise, consumer, producer
from tests.faults.crash_points import Side
from tests.faults.hand import Hand, hand, member
from tests.faults.rig import PATIENCE, Rig, stop
from tests.faults.schedule import CALLBACKS, TRANSACTION, Membership
from tests.faults.victim import Executioner, Orders
from tests.faults.wire import Severed
from tests.processes.harness import A, B
from tests.processes.traffic import create_topic

if TYPE_CHECKING:
    from tests.faults.place import Place
    from tests.processes.harness import Site

FEW = ("classic", "before")  # of each callback, what `make test-faults` has time for
ANSWER_SECONDS = 10.0


def points() -> list[object]:
    named = [
        (side, protocol, Raise(callback=callback, when=when))
        for callback in Callback
        for side in CALLBACKS[callback]
        for when in callback.whens
        for protocol in (("classic", "consumer") if callback.of_group else ("classic",))
    ]
    return [
        pytest.param(
            side,
            protocol,
            point,
            id=f"{side.value}-{protocol}-{point.name.replace(' ', '-')}",
            marks=(pytest.mark.long,) if (protocol, point.when) == FEW else (pytest.mark.long, pytest.mark.longest),
        )
        for side, protocol, point in named
    ]


@pytest.mark.integration
@pytest.mark.parametrize(("side", "protocol", "point"), points())
def test_raised_in(site: Site, fault_place: Place, side: Side, protocol: str, point: Raise) -> None:
    with Rig(site, seed=sum(map(ord, point.name))) as rig:
        hands = crew_of_three(site, fault_place, rig, side, protocol)
        victim, other = hands["victim"], hands["other"]
        rig.traffic()
        hands["opposite"].start()
        victim.start(point if point.callback is Callback.ON_ASSIGN else None)
        if point.callback is not Callback.ON_ASSIGN:
            rig.flow.wait_for_more()
            victim.order(point)
            provoke(site, fault_place, rig, side, point.callback, victim=victim, other=other)
        site.wait(f"{victim.name}: {point.name}", lambda: rig.crashed(victim) or bool(rig.tally.total))
        before = rig.flow.delivered()
        site.wait("it goes on", lambda: not rig.crashed(victim) and rig.flow.delivered() > before)
        rig.drain(hands=hands.values())
        stop(list(hands.values()))
        rig.judge()
        assert rig.tally.faults == Counter({f"exception {point.name}": 1})
    print(f"{rig.tally.faults}, ended {victim.gave_up}")


def provoke(site: Site, place: Place, rig: Rig, side: Side, callback: Callback, *, victim: Hand, other: Hand) -> None:
    """Has the client call back."""
    region = A if side is Side.EGRESS else B
    group = site.egress_group if side is Side.EGRESS else site.ingress_group
    match callback:
        case Callback.ON_REVOKE:
            other.start()
        case Callback.ON_LOST:
            victim.freeze()
            other.start()
            site.wait(
                "another owner",
                lambda: (
                    site.holds(region, group, members=1, partitions=rig.flow.partitions)
                    and bool(other.worker.readiness().get("started"))
                ),
            )
            victim.thaw()
        case Callback.ERROR_CB | Callback.LOGGER:
            wire = place.wires[region]
            wire.break_(Severed())
            site.wait("the exception", lambda: not victim.ordered)
            wire.heal()
        case _:
            pass


def crew_of_three(site: Site, place: Place, rig: Rig, side: Side, protocol: str) -> Mapping[str, Hand]:
    """The victim, another of its side, and one of the other side. Not started."""
    consumers = {"consumer": member(Membership(protocol=protocol, static=False), "")}

    def one(name: str, side: Side) -> Hand:
        kafka = {**place.bootstrap(A if side is Side.EGRESS else B), **consumers}
        if side is Side.EGRESS:
            return hand(site, site.egress(name, {rig.flow.topic: {}}, kafka=kafka))
        worker = site.ingress(name, {"topic": rig.flow.topic}, kafka=kafka, transaction_timeout=TRANSACTION)
        return hand(site, worker, every_report=name == "victim")

    opposite = Side.INGRESS if side is Side.EGRESS else Side.EGRESS
    return {"victim": one("victim", side), "other": one("other", side), "opposite": one("opposite", opposite)}


# --- whether an exception really was raised --------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.long
def test_each_order_raises_once(fault_place: Place, tmp_path: Path, topic_name: str) -> None:
    """In the classes themselves, on a broker: what the caller of the client sees, and how often."""
    orders, bootstrap = Orders(tmp_path / "orders"), fault_place.stack.brokers["b"].bootstrap
    hooks = Hooks(Executioner(str(orders.path)).raises)
    create_topic(bootstrap, topic_name, 1)
    seen: list[object] = []
    sender = producer(hooks, every_report=True)({"bootstrap.servers": bootstrap})
    orders.give(second := Raise(callback=Callback.DELIVERY_REPORT, when="after", occurrence=2))
    for number in range(4):
        sender.produce(topic_name, b"%d" % number, on_delivery=lambda _, message: seen.append(message.value()))
    raised = 0
    while len(sender):
        try:
            sender.flush(ANSWER_SECONDS)
        except Planned:
            raised += 1
    assert (raised, seen, orders.carried_out(Raise)) == (1, [b"0", b"1", b"2", b"3"], second)
    sender.close()

    reader = consumer(hooks)({"bootstrap.servers": bootstrap, "group.id": topic_name})
    orders.give(first := Raise(callback=Callback.ON_ASSIGN, when="before"))
    assigned: list[object] = []
    reader.subscribe([topic_name], on_assign=lambda _, partitions: assigned.extend(partitions))
    raised = 0

    def polled() -> bool:
        nonlocal raised
        try:
            return reader.poll(0.1) is not None
        except Planned:
            raised += 1
            return True

    assert wait_until(polled, PATIENCE)
    assert (raised, assigned, orders.carried_out(Raise)) == (1, [], first)
    reader.close()


@pytest.mark.parametrize("callback", Callback)
def test_an_order_survives_its_text(callback: Callback) -> None:
    for when in callback.whens:
        point = Raise(callback=callback, when=when, occurrence=3)
        assert Raise.parse(str(point)) == point
