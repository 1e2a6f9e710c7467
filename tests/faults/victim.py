"""The product's own command line, in a process that kills itself at a named moment.

    FAULT_AT="put-segment before 2" FAULT_NOTE=FILE python -m tests.faults.victim egress --config FILE

SIGKILL before, or after, the second time that the step is made. The note is one line, appended the moment before: who
reads it knows that the process was there, and did not die of anything else. Without FAULT_AT nothing is watched.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, field

from replicator.durable import AFTER, BEFORE, Step, observe

AT, NOTE = "FAULT_AT", "FAULT_NOTE"
WHENS = (BEFORE, AFTER)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CrashPoint:
    step: Step
    when: str
    occurrence: int = 1  # of this step, in this life of the process

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


@dataclass(slots=True)
class Executioner:
    """An observer. Steps are made on several threads."""

    point: CrashPoint
    note: str
    _seen: int = 0
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, step: Step, when: str) -> None:
        if step is not self.point.step or when != self.point.when:
            return
        with self._mutex:
            self._seen += 1
            if self._seen == self.point.occurrence:
                with open(self.note, "a", encoding="utf-8") as file:
                    file.write(f"{self.point}\n")
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    if text := os.environ.get(AT):
        observe(Executioner(CrashPoint.parse(text), os.environ[NOTE]))
    from replicator.cli import main as command_line  # noqa: PLC0415 -- the observer comes first

    command_line()


if __name__ == "__main__":
    main()
