"""Makes a schedule happen to the processes of a site."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.faults.crash_points import Side
from tests.faults.schedule import (
    BrokerFrozen,
    BrokerKilled,
    CallbackRaises,
    CheckpointTopicGrows,
    Crash,
    Fault,
    Freeze,
    Kill,
    Leave,
    Network,
    OtherGroup,
    Schedule,
    Slot,
    SlowClients,
    Store,
    family,
)
from tests.processes.harness import B

if TYPE_CHECKING:
    from tests.faults.hand import Hand
    from tests.faults.place import Place
    from tests.faults.rig import Rig
    from tests.processes.harness import Worker
    from tests.processes.s3_proxy import S3Proxy

TURN_SECONDS = 0.05
CLIENTS = 50
ASK_SECONDS = 2.0

Moment = tuple[float, int, bool, Fault]  # seconds, number of the fault, whether it begins


@dataclass(slots=True)
class Player:
    """`play` returns when everything is as it was: healed, thawed, started."""

    rig: Rig
    hands: Mapping[Slot, Hand]
    place: Place
    proxy: S3Proxy
    _met: dict[Fault, tuple[bool, int]] = field(default_factory=dict)  # in flight when it began, and how many met it
    _clients: list[socket.socket] = field(default_factory=list)
    _others: list[Worker] = field(default_factory=list)  # of another group; they end by themselves

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
            case SlowClients(slot=slot):
                if self.hands[slot].up and self._connect(self.hands[slot].worker):
                    self.rig.count(family(fault))
            case OtherGroup():
                self.rig.count(family(fault))
                self._start_other()
            case CheckpointTopicGrows():
                in_flight = self.rig.pending() > 0
                if self._grow_checkpoints():
                    self.rig.tally.count(family(fault), in_flight=in_flight)
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
            case SlowClients():
                self._disconnect()
            case OtherGroup() | CheckpointTopicGrows():
                pass  # what follows of them is seen in the end
            case _:
                assert_never(fault)

    def _over(self, fault: Fault, met: int) -> None:
        """A fault that no request met does not count."""
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

    # --- what is not done to a process, a store or a network ---

    def _connect(self, worker: Worker) -> bool:
        with suppress(OSError, IndexError):  # it may just end, or not listen yet
            for _ in range(CLIENTS):
                client = socket.create_connection(worker.address, timeout=ASK_SECONDS)
                self._clients.append(client)
                client.sendall(b"GET /met")
            return True
        return False

    def _disconnect(self) -> None:
        while self._clients:
            self._clients.pop().close()

    def _start_other(self) -> None:
        site = self.rig.site
        name = f"other-{self.rig.seed}-{len(self._others)}"
        sources = {"topic": f"^{site.name}[.]t[0-9]*"}
        other = site.ingress(name, sources, group_id=f"{site.name}.{name}", kafka=self.place.bootstrap(B))
        self._others.append(other.start(environment={}))

    def _grow_checkpoints(self) -> bool:
        topic = f"{self.rig.site.name}.checkpoints"
        admin = AdminClient({"bootstrap.servers": self.rig.site.bootstrap(B), "log_level": 0})
        try:
            count = len(admin.list_topics(topic, timeout=ASK_SECONDS).topics[topic].partitions)
            [asked] = admin.create_partitions([NewPartitions(topic, count + 1)], request_timeout=ASK_SECONDS).values()
            asked.result()
        except KafkaException:  # the broker is away just now
            return False
        return True

    def _see_refused(self) -> None:
        """Raises AssertionError for a process of another group that goes on, or ends for another reason."""
        while self._others:
            other = self._others.pop()
            self.rig.site.wait("the other group is refused", lambda each=other: each.exit_code is not None)  # type: ignore[misc]
            assert other.exit_code, other.explain("was not refused")
            assert "belongs to group" in other.log.read_text(encoding="utf-8"), other.explain("does not say why")
            other.end()

    def _restore(self) -> None:
        self._disconnect()
        self.proxy.heal()
        for hand in self.hands.values():
            hand.withdraw()
            hand.thaw()
        self.place.restore()
        for hand in self.hands.values():
            hand.left()
            self.rig.crashed(hand)
            hand.start()
        self._see_refused()
