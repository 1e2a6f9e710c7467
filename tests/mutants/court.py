"""Judges one mutant at a time: which tests are asked, in which order, and what is remembered of it.

    quick stages ──no test saw it──> stages with brokers ──no test saw it──> survived

Every stage has passed without a mistake before its word counts.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.mutants.guards import Guards, Stage, nearest
from tests.mutants.jury import Jury, Trial, Verdict
from tests.mutants.mutate import Mutant

CPU_SECONDS, BROKER_CPU_SECONDS = 150.0, 240.0  # of one stage; an unchanged one takes a third of it at most
WITNESSES = 8
SAW_IT = (Verdict.FAILED, Verdict.TIMED_OUT)


class Control(Exception):
    """Tests fail without a mutant, or there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    id: str
    module: str
    module_digest: str  # of the module's text, unchanged
    tests_digest: str  # of all tests
    caught: bool
    with_brokers: bool = False  # they were asked, too
    timed_out: bool = False
    by: str = ""  # the test that saw it first
    seconds: float = 0.0


@dataclass(slots=True)
class Memory:
    """Caught: believed as long as the module is the same. Survived: as long as the tests are, too."""

    path: Path
    lock: threading.RLock = field(default_factory=threading.RLock)  # juries sit side by side
    _judged: dict[tuple[str, str], Judged] = field(default_factory=dict)

    def load(self) -> None:
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                one = Judged(**json.loads(line))
                self._judged[one.id, one.module_digest] = one

    def of(self, name: str, module_digest: str, tests_digest: str) -> Judged | None:
        found = self._judged.get((name, module_digest))
        return found if found is not None and (found.caught or found.tests_digest == tests_digest) else None

    def witnesses(self, module: str) -> tuple[str, ...]:
        """The tests that saw most of the other mistakes in it, or in its package: asked first, they save the rest."""
        package = module.partition("/")[0]
        saw = Counter[str]()
        with self.lock:
            before = list(self._judged.values())
        for one in before:
            if one.caught and "::" in one.by and not one.with_brokers and one.module.startswith(f"{package}/"):
                saw[one.by] += 100 if one.module == module else 1
        return tuple(by for by, _ in saw.most_common(WITNESSES))

    def add(self, one: Judged) -> None:
        self.path.parent.mkdir(exist_ok=True)
        with self.lock, self.path.open("a", encoding="utf-8") as file:
            self._judged[one.id, one.module_digest] = one
            file.write(json.dumps(asdict(one)) + "\n")


@dataclass(slots=True)
class Court:
    jury: Jury
    memory: Memory
    tests_digest: str
    product_digest: str  # of every module

    def judge(self, one: Mutant, guards: Guards, *, with_brokers: bool) -> Judged:
        """`with_brokers`: those stages alone, for what the others did not see. Raises Control."""
        place = self.jury.copy / one.module  # as it was when this run began, whatever is edited meanwhile
        text = place.read_text(encoding="utf-8")
        module_digest = digest(text)
        known = self.memory.of(one.id, module_digest, self.tests_digest)
        if known is not None and (known.caught or known.with_brokers or not with_brokers):
            return known
        began, trial = time.monotonic(), None
        for stage in self._broker_stages(guards) if with_brokers else self._quick_stages(one, guards):
            place.write_text(one.applied(text), encoding="utf-8")
            try:
                trial = self._try(stage, broker=with_brokers)
            finally:
                place.write_text(text, encoding="utf-8")
            if trial.verdict in SAW_IT:
                break
        saw_it = trial is not None and trial.verdict in SAW_IT
        judged = Judged(
            id=one.id,
            module=one.module,
            module_digest=module_digest,
            tests_digest=self.tests_digest,
            caught=saw_it,
            with_brokers=with_brokers,
            timed_out=trial is not None and trial.verdict is Verdict.TIMED_OUT,
            by=trial.by if trial is not None and saw_it else "",
            seconds=round(time.monotonic() - began, 1),
        )
        self.memory.add(judged)
        return judged

    def _quick_stages(self, one: Mutant, guards: Guards) -> Iterator[Stage]:
        stages = dict.fromkeys((*nearest(one.module), *guards.stages))
        files = tuple(file for stage in stages for file in stage)
        if witnesses := tuple(by for by in self.memory.witnesses(one.module) if by.startswith(files)):
            for stage in stages:
                if any(by.startswith(stage) for by in witnesses):
                    self._control(stage, broker=False)
            yield witnesses
        for stage in stages:
            self._control(stage, broker=False)
            yield stage

    def _broker_stages(self, guards: Guards) -> Iterator[Stage]:
        for stage in guards.broker:
            self._control(stage, broker=True)
            yield stage

    def _try(self, stage: Stage, *, broker: bool) -> Trial:
        trial = self.jury.try_(stage, broker=broker, cpu_seconds=BROKER_CPU_SECONDS if broker else CPU_SECONDS)
        if trial.verdict is Verdict.BROKEN:
            raise Control(f"pytest broke: {' '.join(stage)}; {self.jury.log} says why")
        return trial

    def _control(self, stage: Stage, *, broker: bool) -> None:
        """The same without a mistake passes; else everything would be caught by whatever is wrong already."""
        name = f"control {'broker ' if broker else ''}{' '.join(stage)}"
        with self.memory.lock:  # one jury makes sure of it for all
            self._make_sure(name, stage, broker=broker)

    def _make_sure(self, name: str, stage: Stage, *, broker: bool) -> None:
        if self.memory.of(name, self.product_digest, self.tests_digest) is not None:
            return
        trial = self._try(stage, broker=broker)
        print(f"{name}: {trial.verdict}, {trial.seconds:.0f} s", flush=True)
        if trial.verdict is not Verdict.PASSED:
            raise Control(f"{name}: {trial.verdict} without a mistake planted: {trial.by}")
        self.memory.add(
            Judged(
                id=name,
                module="",
                module_digest=self.product_digest,
                tests_digest=self.tests_digest,
                caught=False,
                seconds=round(trial.seconds, 1),
            )
        )


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest_of(paths: Sequence[Path]) -> str:
    return digest("".join(f"{path}\n{path.read_text(encoding='utf-8')}" for path in sorted(paths)))
