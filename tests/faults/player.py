"""Makes a schedule happen to the processes of a site."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from tests.faults.crash_points import Side
from tests.faults.schedule import (
    BrokerFrozen,
    BrokerKilled,
    CallbackRaises,
    Crash,
    Fault,
    Freeze,
    Kill,
    Leave,
    Network,
    Schedule,
    Slot,
    Store,
    family,
)

if TYPE_CHECKING:
    from tests.faults.hand import Hand
    from tests.faults.place import Place
    from tests.faults.rig import Rig
    from tests.processes.s3_proxy import S3Proxy

TURN_SECONDS = 0.05

Moment = tuple[float, int, bool, Fault]  # seconds, number of the fault, whether it begins


@dataclass(slots=True)
class Player:
    """`play` returns when everything is as it was: healed, thawed, started."""

    rig: Rig
    hands: Mapping[Slot, Hand]
    place: Place
    proxy: S3Proxy
    _met: dict[Fault, tuple[bool, int]] = field(default_factory=dict)  # in flight when it began, and how many met it

    def play(self, schedule: Schedule) -> None:
        begin = time.monotonic()
        todo: list[Moment] = []
        for number, timed in enumerate(schedule.faults):
            todo.append((timed.at, number, True, timed.fault))
            todo.append((timed.at + timed.fault.seconds, number, False, timed.fault))
        todo.sort(key=lambda one: one[:2])
        never = threading.Event()
        try:
            for number, (at, _, begins, fault) in enumerate(todo):
                if self._nothing_but_orders(todo[number:]) and not any(h.ordered for h in self.hands.values()):
                    break
                while (left := begin + at - time.monotonic()) > 0:
                    never.wait(min(left, TURN_SECONDS))
                    self._bury()
                (self._begin if begins else self._end)(fault)
        finally:
            self._restore()

    def _nothing_but_orders(self, left: Sequence[Moment]) -> bool:
        return all(not begins and isinstance(fault, Crash | CallbackRaises) for _, _, begins, fault in left)

    def _begin(self, fault: Fault) -> None:
        """What is down or frozen already is left alone, and not counted."""
        match fault:
            case Kill(slot=slot):
                if self.hands[slot].up:
                    self.rig.count(family(fault))
                    self.hands[slot].kill()
            case Crash(side=side, point=point) | CallbackRaises(side=side, point=point):
                for hand in self._of(side):
                    hand.order(point)  # counted when it happens
            case Freeze(slot=slot):
                if self.hands[slot].up:
                    self.rig.count(family(fault))
                    self.hands[slot].freeze()
            case Leave(slot=slot):
                if self.hands[slot].up:
                    self.rig.count(family(fault))
                    self.hands[slot].leave()
            case Store(operation=operation, fault=cause):
                self._met[fault] = (self.rig.pending() > 0, self.proxy.met(cause))
                self.proxy.break_(operation, cause)
            case BrokerFrozen(region=region):
                self.rig.count(family(fault))
                self.place.stack.brokers[region].freeze()
            case BrokerKilled(region=region):
                self.rig.count(family(fault))
                self.place.stack.brokers[region].kill()
            case Network(region=region, fault=lost):
                self._met[fault] = (self.rig.pending() > 0, self.place.wires[region].met)
                self.place.wires[region].break_(lost)
            case _:
                assert_never(fault)

    def _end(self, fault: Fault) -> None:
        match fault:
            case Kill(slot=slot):
                self.hands[slot].start()
            case Crash(side=side) | CallbackRaises(side=side):
                for hand in self._of(side):
                    hand.withdraw()
            case Freeze(slot=slot):
                self.hands[slot].thaw()
            case Leave(slot=slot):
                self.hands[slot].left()
                self.hands[slot].start()
            case Store(operation=operation, fault=cause):
                self.proxy.mend(operation)
                self._over(fault, self.proxy.met(cause))
            case BrokerFrozen(region=region):
                self.place.stack.brokers[region].thaw()
            case BrokerKilled(region=region):
                self.place.stack.brokers[region].start()
            case Network(region=region):
                self.place.wires[region].heal()
                self._over(fault, self.place.wires[region].met)
            case _:
                assert_never(fault)

    def _over(self, fault: Fault, met: int) -> None:
        """A fault that nobody ran into was none."""
        in_flight, before = self._met.pop(fault, (False, met))
        if met > before:
            self.rig.tally.count(family(fault), in_flight=in_flight)

    def _bury(self) -> None:
        """Who killed himself is started again."""
        for slot, hand in self.hands.items():
            before = self.rig.tally.total
            if self.rig.crashed(hand):
                hand.start()
            if self.rig.tally.total > before:  # the first to get there is enough
                for other in self._of(slot.side):
                    other.withdraw()

    def _of(self, side: Side) -> Sequence[Hand]:
        return [hand for slot, hand in self.hands.items() if slot.side is side]

    def _restore(self) -> None:
        self.proxy.heal()
        for hand in self.hands.values():
            hand.withdraw()
            hand.thaw()
        self.place.restore()
        for hand in self.hands.values():
            hand.left()
            self.rig.crashed(hand)
            hand.start()
