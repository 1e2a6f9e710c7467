"""The product's own command line, in a process that kills itself at a named moment when it is ordered to.

    echo "put-segment before 2" > FILE; FAULT_ORDERS=FILE python -m tests.faults.victim egress --config FILE

SIGKILL before, or after, the second time that the step is made from then on. An order may be given at any time. It is
renamed to FILE.done the moment before: who finds that knows that the process got there, and did not die of anything
else; and the next life is not under that order any more.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path

from replicator.durable import AFTER, BEFORE, Step, observe

ORDERS = "FAULT_ORDERS"
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


@dataclass(frozen=True, slots=True)
class Orders:
    """The other side: who gives an order and sees whether it was carried out."""

    path: Path

    @property
    def environment(self) -> dict[str, str]:
        return {ORDERS: str(self.path)}

    @property
    def everywhere(self) -> dict[str, str]:
        """The same for whatever Python that process starts, which counts for itself: one of them is killed."""
        return {**self.environment, "PYTHONPATH": os.pathsep.join(map(str, (INSIDE, ROOT)))}

    @property
    def _done(self) -> Path:
        return self.path.with_name(f"{self.path.name}.done")

    def give(self, point: CrashPoint) -> None:
        """Appears whole."""
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(str(point), encoding="ascii")
        new.rename(self.path)

    @property
    def standing(self) -> bool:
        return self.path.exists()

    def withdraw(self) -> None:
        self.path.unlink(missing_ok=True)

    def carried_out(self) -> CrashPoint | None:
        """Tells it once."""
        if not self._done.exists():
            return None
        point = CrashPoint.parse(self._done.read_text(encoding="ascii"))
        self._done.unlink()
        return point


@dataclass(slots=True)
class Executioner:
    """An observer. Steps are made on several threads."""

    path: str
    _given: int = 0  # when the order that is being counted was written
    _seen: int = 0
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, step: Step, when: str) -> None:
        try:
            given = os.stat(self.path).st_mtime_ns
            with open(self.path, encoding="ascii") as file:
                point = CrashPoint.parse(file.read())
        except FileNotFoundError:
            return
        if step is not point.step or when != point.when:
            return
        with self._mutex:
            if given != self._given:
                self._given, self._seen = given, 0
            self._seen += 1
            if self._seen == point.occurrence:
                try:
                    os.rename(self.path, f"{self.path}.done")
                except FileNotFoundError:  # another process got there first
                    return
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    observe(Executioner(os.environ[ORDERS]))
    from replicator.cli import main as command_line  # noqa: PLC0415 -- the observer comes first

    command_line()


if __name__ == "__main__":
    main()
