"""A process of the product that may be ordered to kill itself or to fail, and how it is a member of its group."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.callbacks import Raise
from tests.faults.crash_points import Side
from tests.faults.schedule import SESSION_SECONDS, SLOTS, TRANSACTION, Membership, Slot
from tests.faults.victim import WHERE, CrashPoint, Order, Orders
from tests.processes.harness import A, B

if TYPE_CHECKING:
    from tests.faults.place import Place
    from tests.processes.harness import Site, Worker

LEAVE = timedelta(seconds=30)
CLIENT_UNUSABLE = "This client is unusable; restart the process"
PLANNED = "planned"  # as `Planned` says it


class Hand:
    """One slot, through all its lives."""

    def __init__(self, worker: Worker, orders: Orders) -> None:
        self.worker, self._orders = worker, orders
        self._frozen = False
        self._leaving = False
        self._young = False
        self._shaken = False  # a callback raised in this life, as ordered
        self.failed_at = 0.0  # when its last order was carried out; seconds since the epoch
        self.gave_up = 0  # lives that ended because the client library cannot go on, or by an exception

    @property
    def name(self) -> str:
        return self.worker.name

    @property
    def up(self) -> bool:
        """It runs, and nothing is being done to it."""
        return self.worker.expected and not self._frozen and not self._leaving and self.worker.exit_code is None

    def start(self, point: Order | None = None) -> None:
        """No error if it runs."""
        if self.worker.expected:
            return
        self._frozen = self._leaving = self._shaken = False
        if point is not None:
            self._orders.give(point)
        self.worker.start(module="tests.faults.victim", environment=self._orders.environment)

    def order(self, point: Order) -> None:
        self._orders.give(point)

    @property
    def ordered(self) -> bool:
        return self._orders.standing

    def withdraw(self) -> None:
        self._orders.withdraw()

    def raised(self) -> Raise | None:
        """Which of its callbacks raised, as ordered, since this was asked last; it may run or not."""
        self.failed_at = self._orders.carried_out_at or self.failed_at
        point = self._orders.carried_out(Raise)
        self._shaken |= point is not None
        return point

    def crashed(self) -> CrashPoint | None:
        """Where it killed itself since it was asked last; it is down then. Raises AssertionError if it ended of
        anything else. To be asked after `raised`."""
        if not self.worker.expected or self._leaving or (code := self.worker.exit_code) is None:
            return None
        if code == 1 and self._says_why():
            # what cannot be mended inside ends the process, and its supervisor starts it again
            self.gave_up += 1
            self.worker.end()
            self.start()
            return None
        self.failed_at = self._orders.carried_out_at or self.failed_at
        point = self._orders.carried_out(CrashPoint)
        if code != -signal.SIGKILL or point is None:
            raise AssertionError(self.worker.explain(f"died: exit code {code}"))
        self.worker.end()
        return point

    def _says_why(self) -> bool:
        """Whether its last words are that the client library cannot go on, or name the exception that was ordered."""
        last = "".join(str(line.get("error")) for line in self.worker.logged("service_failed")[-1:])
        return CLIENT_UNUSABLE in last or (self._was_shaken and PLANNED in last)

    @property
    def _was_shaken(self) -> bool:
        """Whether a callback of this process raised, as ordered; perhaps just before SIGTERM, so that `raised` has not
        been called since."""
        return self._shaken or self._orders.carried_out_at is not None

    def kill(self) -> None:
        self.worker.kill()

    def freeze(self) -> None:
        self.worker.signal(signal.SIGSTOP)
        self._frozen = True

    def thaw(self) -> None:
        if self._frozen and self.worker.expected:
            self.worker.signal(signal.SIGCONT)
        self._frozen = False

    def leave(self) -> None:
        """SIGTERM; `left` waits for its end."""
        self._orders.withdraw()
        self._young = not self.worker.readiness().get("started")
        self.worker.signal(signal.SIGTERM)
        self._leaving = True

    def left(self) -> None:
        """Raises AssertionError if it did not end as it should."""
        if not self._leaving:
            return
        self._leaving = False
        code = self.worker.wait(LEAVE)
        if code == -signal.SIGKILL and self._orders.carried_out(CrashPoint) is not None:
            return  # by its own hand, the moment before it was asked to leave
        if code == 1 and self._was_shaken and self._says_why():
            return
        early = code == -signal.SIGTERM and self._young  # signalled before it handled signals
        assert code == 0 or early, self.worker.explain(f"ended with {code} after SIGTERM, not with 0")

    def tell_where(self) -> None:
        """Its threads write into the log where they are."""
        if self.up:
            self.worker.signal(WHERE)

    def peak_bytes(self) -> int:
        """The most memory that this life ever held; 0 when there is none."""
        try:
            status = Path(f"/proc/{self.worker.pid}/status").read_text(encoding="utf-8", errors="replace")
        except (OSError, AssertionError):
            return 0
        return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:")), 0)


def hand(site: Site, worker: Worker, *, every_report: bool = False) -> Hand:
    return Hand(worker, Orders(site.folder / f"{worker.name}.orders", every_report))


def crew(
    site: Site, place: Place, membership: Membership, *, endpoint_url: str, slots: int = SLOTS
) -> Mapping[Slot, Hand]:
    """Not started. They serve every topic whose name begins with the site's."""
    topics = f"^{site.name}[.]t.*"
    found: dict[Slot, Hand] = {}
    for number in range(slots):
        for side in Side:
            slot = Slot(side=side, number=number)
            kafka = {**place.bootstrap(A if side is Side.EGRESS else B), "consumer": member(membership, str(slot))}
            if side is Side.EGRESS:
                worker = site.egress(str(slot), {topics: {}}, endpoint_url=endpoint_url, kafka=kafka)
            else:
                worker = site.ingress(
                    str(slot),
                    {"topic": f"^{site.name}[.]t[0-9]*"},
                    endpoint_url=endpoint_url,
                    queue_endpoint_url=endpoint_url,
                    kafka=kafka,
                    transaction_timeout=TRANSACTION,
                )
            # half of them report as the product wants it, the other half so that there is something to raise in
            found[slot] = hand(site, worker, every_report=number % 2 == 1)
    return found


def member(membership: Membership, name: str) -> Mapping[str, Any]:
    """Properties of a consumer. Under the consumer protocol the session is the broker's affair (place.py)."""
    session_ms = round(SESSION_SECONDS * 1000)
    found: dict[str, Any] = (
        {"group.protocol": "consumer"}
        if membership.protocol == "consumer"
        else {"session.timeout.ms": str(session_ms), "heartbeat.interval.ms": str(session_ms // 5)}
    )
    return {**found, **({"group.instance.id": name} if membership.static else {})}
