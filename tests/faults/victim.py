"""The product's own command line, in a process that fails at a named moment when it is ordered to.

    echo "put-segment before 2" > FILE; FAULT_ORDERS=FILE python -m tests.faults.victim egress --config FILE

SIGKILL by its own hand before, or after, the second time that the step is made from then on; or an exception in a
callback of the Kafka client (`raise on-assign before 1`). An order may be given at any time. It is renamed to FILE.done
the moment before: who finds that knows that the process got there, and did not fail of anything else; and it, or its
next life, is not under that order any more.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from infra.runtime.crash_points import AFTER, BEFORE, Step, observe
from tests.faults.callbacks import WORD, Callback, Raise, install

ORDERS = "FAULT_ORDERS"
REPORTS = "FAULT_EVERY_REPORT"  # set: delivery reports of successes are called, too
WHERE = signal.SIGUSR2  # writes where every thread is into the log
WHENS = (BEFORE, AFTER)
ROOT = Path(__file__).resolve().parent.parent.parent
INSIDE = Path(__file__).resolve().parent / "inside"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CrashPoint:
    step: Step
    when: str
    occurrence: int = 1  # of this step, from the order on

    def __post_init__(self) -> None:
        if self.when not in WHENS or self.occurrence < 1:
            raise ValueError(f"want before or after, and an occurrence from 1 on: {self!r}")

    def __str__(self) -> str:
        return f"{self.step.value} {self.when} {self.occurrence}"

    @property
    def name(self) -> str:
        """Without the occurrence."""
        return f"{self.when} {self.step.value}"

    @staticmethod
    def parse(text: str) -> CrashPoint:
        step, when, occurrence = text.split()
        return CrashPoint(step=Step(step), when=when, occurrence=int(occurrence))


Order = CrashPoint | Raise
Wanted = TypeVar("Wanted", CrashPoint, Raise)


def parse(text: str) -> Order:
    return Raise.parse(text) if text.startswith(WORD) else CrashPoint.parse(text)


@dataclass(frozen=True, slots=True)
class Orders:
    """The other side: who gives an order and sees whether it was carried out."""

    path: Path
    every_report: bool = False

    @property
    def environment(self) -> dict[str, str]:
        return {ORDERS: str(self.path), **({REPORTS: "1"} if self.every_report else {})}

    @property
    def everywhere(self) -> dict[str, str]:
        """The same for whatever Python that process starts, which counts for itself: one of them is killed."""
        return {**self.environment, "PYTHONPATH": os.pathsep.join(map(str, (INSIDE, ROOT)))}

    @property
    def _done(self) -> Path:
        return self.path.with_name(f"{self.path.name}.done")

    def give(self, point: Order) -> None:
        """Appears whole."""
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(str(point), encoding="ascii")
        new.rename(self.path)

    @property
    def standing(self) -> bool:
        return self.path.exists()

    def withdraw(self) -> None:
        self.path.unlink(missing_ok=True)

    @property
    def carried_out_at(self) -> float | None:
        """The moment before a process did it, in seconds since the epoch; None when no process did."""
        try:
            return self._done.stat().st_ctime  # of its renaming
        except FileNotFoundError:
            return None

    def carried_out(self, kind: type[Wanted]) -> Wanted | None:
        """An order of this kind; tells it once."""
        try:
            point = parse(self._done.read_text(encoding="ascii"))
        except FileNotFoundError:
            return None
        if not isinstance(point, kind):
            return None
        self._done.unlink()
        return point


@dataclass(slots=True)
class Executioner:
    """Asked on several threads."""

    path: str
    _given: int = 0  # when the order that is being counted was written
    _seen: int = 0
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def made(self, step: Step, when: str) -> None:
        """An observer of durable steps."""
        if self._due(lambda order: isinstance(order, CrashPoint) and (order.step, order.when) == (step, when)):
            os.kill(os.getpid(), signal.SIGKILL)

    def raises(self, callback: Callback, when: str) -> bool:
        """Whether this call of a callback has to raise."""
        return self._due(lambda order: isinstance(order, Raise) and (order.callback, order.when) == (callback, when))

    def _due(self, concerns: Callable[[Order], bool]) -> bool:
        """Whether this is the time that was ordered; true once for each order."""
        try:
            given = os.stat(self.path).st_mtime_ns
            with open(self.path, encoding="ascii") as file:
                order = parse(file.read())
        except FileNotFoundError:
            return False
        if not concerns(order):
            return False
        with self._mutex:
            if given != self._given:
                self._given, self._seen = given, 0
            self._seen += 1
            if self._seen != order.occurrence:
                return False
            try:
                os.rename(self.path, f"{self.path}.done")
            except FileNotFoundError:
                return False  # withdrawn just now, or another process got there first
            return True


def main() -> None:
    faulthandler.register(WHERE, all_threads=True)
    executioner = Executioner(os.environ[ORDERS])
    observe(executioner.made)
    install(executioner.raises, every_report=REPORTS in os.environ)
    from replicator.main import main as command_line  # noqa: PLC0415 -- observer and callbacks come first

    command_line()


if __name__ == "__main__":
    main()
