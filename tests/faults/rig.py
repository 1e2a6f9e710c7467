"""One topic between two regions with faults in between, and what every case ends with: drained, stopped, judged.

traffic ──> source ──> egresses ──> bucket, queue ──> ingresses ──> target
                          ⤷ any of them may be a victim (victim.py)
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from signal import SIGKILL
from typing import TYPE_CHECKING

from replicator.config import IngressSettings
from tests.faults import victim
from tests.faults.victim import CrashPoint
from tests.processes.flow import Flow

if TYPE_CHECKING:
    from tests.processes.harness import Site, Worker
    from tests.processes.judge import Verdict
    from tests.processes.traffic import Traffic

EXACTLY_ONCE = next(f.default for f in fields(IngressSettings) if f.name == "delivery") == "exactly-once"
ISOLATION = "read_committed" if EXACTLY_ONCE else "read_uncommitted"
AS_OFTEN_AS_IT_LIKES = 1_000_000  # rewinds, of any length: at least once, and in order otherwise
PATIENCE = timedelta(seconds=60)
LARGEST_RSS = 700 << 20  # bytes: 64 MiB of budget or less, Python, Arrow and the clients' own threads


@dataclass(slots=True)
class Tally:
    """What was done to the processes, by name; and whether anything was on its way at that moment."""

    faults: Counter[str] = field(default_factory=Counter)
    in_flight: int = 0

    @property
    def total(self) -> int:
        return self.faults.total()

    def count(self, name: str, *, in_flight: bool) -> None:
        self.faults[name] += 1
        self.in_flight += in_flight

    def add(self, other: Tally) -> None:
        self.faults += other.faults
        self.in_flight += other.in_flight

    @property
    def honest(self) -> bool:
        """At least half of what was done hit something."""
        return 2 * self.in_flight >= self.total


class Rig:
    """A context manager: nothing runs after it."""

    def __init__(self, site: Site, *, seed: int, partitions: int = 3) -> None:
        self.site, self.seed = site, seed
        self.tally = Tally()
        self.flow = Flow(site, partitions=partitions, isolation=ISOLATION)
        self._note = site.folder / "note"
        self._traffic: Traffic | None = None
        self._never = threading.Event()
        self._largest = 0

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *error: object) -> None:
        if self._traffic is not None:
            self._traffic.__exit__(*error)
        self.flow.__exit__()

    # --- processes

    def start(self, worker: Worker, point: CrashPoint | None = None) -> Worker:
        """`point`: where this life ends by its own hand, if it gets there."""
        if point is None:
            return worker.start()
        doom = {victim.AT: str(point), victim.NOTE: str(self._note)}
        return worker.start(module="tests.faults.victim", environment=doom)

    def killed_itself(self, worker: Worker) -> CrashPoint | None:
        """Where, if it is dead; counted. Raises AssertionError if it died of anything else."""
        if not worker.expected or not worker.doomed or (code := worker.exit_code) is None:
            return None
        in_flight = self.pending() > 0
        notes = self._note.read_text(encoding="utf-8").splitlines() if self._note.exists() else []
        assert code == -SIGKILL and notes, worker.explain(f"died: exit code {code}")
        point = CrashPoint.parse(notes[-1])
        self._note.unlink()
        worker.end()
        self.tally.count(f"kill {point.name}", in_flight=in_flight)
        return point

    def pending(self) -> int:
        """Records that the source took and that the target does not show yet."""
        taken = self._traffic.taken if self._traffic is not None else 0
        return taken - self.flow.delivered()

    def lasts(self, seconds: float) -> None:
        """Time that belongs to the fault."""
        self._never.wait(seconds)

    # --- a case

    def traffic(self) -> Traffic:
        """Flows from now on, until `finish`."""
        self._traffic = self.flow.traffic(seed=self.seed, most=120)
        self._traffic.start()
        return self._traffic

    def finish(self, timeout: timedelta = PATIENCE) -> Mapping[int, Verdict]:
        """No more faults: everything arrives, every process ends when it is told to, and the judge looks at it.
        Raises AssertionError, of which judge.Guilty is one."""
        assert self._traffic is not None, "nothing was produced"
        words = self._traffic.finish()
        self.flow.wait_for(words, timeout)
        self.flow.wait_for_archive(timeout)
        running = [worker for worker in self.site.workers if worker.expected]
        for worker in running:
            self._measure(worker)
        for worker in reversed(running):
            worker.stop()
        verdicts = self.judge()
        assert self._largest <= LARGEST_RSS, f"a process grew to {self._largest >> 20} MiB"
        return verdicts

    def judge(self) -> Mapping[int, Verdict]:
        source = self.flow.source()
        longest = max((len(log.records) for log in source.values()), default=0)
        rewinds, run = (0, 1) if EXACTLY_ONCE else (AS_OFTEN_AS_IT_LIKES, longest)
        verdicts = self.flow.judge_target(rewinds=rewinds, run=run)
        self.flow.judge_archive()
        return verdicts

    def _measure(self, worker: Worker) -> None:
        for line in Path(f"/proc/{worker.pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                self._largest = max(self._largest, int(line.split()[1]) << 10)


def static(name: str, *, session_ms: int = 1500) -> Mapping[str, object]:
    """`[kafka]` of a process that is the same member of its group through all its lives."""
    return {"consumer": {"group.instance.id": name, **dynamic(session_ms=session_ms)["consumer"]}}  # type: ignore[dict-item]


def dynamic(*, session_ms: int = 1500) -> Mapping[str, object]:
    return {"consumer": {"session.timeout.ms": str(session_ms), "heartbeat.interval.ms": str(session_ms // 5)}}


__all__: Sequence[str] = ("EXACTLY_ONCE", "Rig", "Tally", "dynamic", "static")
