"""Schedules one after another: `python -m tests.faults.soak 100-399` plays these seeds, adds a row to docs/faults.md.

Five schedules share the processes of one site, each with a topic of its own; when they are over the processes are
stopped and all five topics are judged once more. Twenty-five share the brokers.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from infra.local.process import Supervisor
from tests.faults.crash_points import made
from tests.faults.hand import Hand, crew
from tests.faults.place import Place, place
from tests.faults.player import Player
from tests.faults.report import Differences, append, differences
from tests.faults.rig import EXACTLY_ONCE, Rig, Tally, stop
from tests.faults.schedule import PER_SITE, Schedule, Slot, family, membership, schedule
from tests.processes.harness import Site
from tests.processes.s3_proxy import S3Proxy, proxied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infra.runtime.crash_points import Step

PER_STACK = 25


@dataclass(slots=True)
class Outcome:
    schedules: int = 0
    tally: Tally = field(default_factory=Tally)
    failures: dict[int, str] = field(default_factory=dict)  # by seed
    differences: Differences = field(default_factory=Differences)
    seconds: float = 0.0

    def add(self, other: Outcome) -> None:
        self.schedules += other.schedules
        self.tally.add(other.tally)
        self.failures |= other.failures
        self.differences += other.differences
        self.seconds += other.seconds


@dataclass(slots=True)
class Soak:
    """Plays on one stack."""

    place: Place
    supervisor: Supervisor
    steps: Sequence[Step]
    outcome: Outcome = field(default_factory=Outcome)

    def run(self, seeds: Iterable[int]) -> None:
        for _, group in groupby(seeds, key=lambda seed: seed // PER_SITE):
            left = list(group)
            while left:
                left = self._site(left)

    def _site(self, seeds: list[int]) -> list[int]:
        """Plays these on the same processes. After a failure the rest is left, for others."""
        name = f"f{seeds[0]}-{uuid.uuid4().hex[:6]}"
        rigs: list[Rig] = []
        with ExitStack() as around:
            proxy = around.enter_context(proxied(self.place.stack.moto.endpoint_url))
            site = around.enter_context(Site(self.place.stack, self.supervisor, set(), name))
            hands = crew(site, self.place, membership(seeds[0]), endpoint_url=proxy.endpoint_url)
            for each in hands.values():
                each.start()
            site.wait("all ready", lambda: all(each.worker.readiness().get("started") for each in hands.values()))
            for done, seed in enumerate(seeds, start=1):
                rig = around.enter_context(Rig(site, seed=seed, word=f"t{seed}"))
                rigs.append(rig)
                if not self._play(rig, hands, proxy):
                    return seeds[done:]
            self._judge_again(rigs, list(hands.values()))
        return []

    def _play(self, rig: Rig, hands: Mapping[Slot, Hand], proxy: S3Proxy) -> bool:
        began = time.monotonic()
        plan = schedule(rig.seed, self.steps)
        with self._failing(rig):
            rig.traffic()
            Player(rig, hands, self.place, proxy).play(plan)
            rig.drain(hands=list(hands.values()))
            rig.judge()
        self.outcome.schedules += 1
        self.outcome.tally.add(rig.tally)
        took = time.monotonic() - began
        self.outcome.seconds += took
        failed = self.outcome.failures.get(rig.seed)
        done = ", ".join(f"{name} ×{n}" for name, n in sorted(rig.tally.faults.items()))
        print(
            f"seed {rig.seed} ({plan.membership}): {'FAILED' if failed else 'ok'}, {took:.1f} s, "
            f"{rig.tally.in_flight}/{rig.tally.total} in flight: {done}",
            flush=True,
        )
        if failed:
            planned = "\n".join(map(str, plan.faults))
            print(f"{planned}\n{failed}", flush=True)
            self._count(rig)
        return failed is None

    def _judge_again(self, rigs: Sequence[Rig], hands: list[Hand]) -> None:
        """What came after a schedule was judged counts too."""
        with self._failing(rigs[-1]):
            stop(hands)
        for rig in rigs:
            with self._failing(rig):
                rig.judge()
        for rig in rigs:
            if rig.seed in self.outcome.failures:
                print(f"seed {rig.seed}: FAILED afterwards\n{self.outcome.failures[rig.seed]}", flush=True)
                self._count(rig)

    def _count(self, rig: Rig) -> None:
        try:
            source, target = rig.logs()
        except Exception:
            traceback.print_exc()
            return
        for p in source:
            self.outcome.differences += differences(source[p].records, target[p].records)

    @contextmanager
    def _failing(self, rig: Rig) -> Iterator[None]:
        """A schedule that fails is a result; the next one is played."""
        try:
            yield
        except Exception as error:
            self.outcome.failures.setdefault(rig.seed, "".join(traceback.format_exception(error)))
            self.place.restore()


def play(seeds: Sequence[int]) -> Outcome:
    """On stacks of their own."""
    whole = Outcome()
    steps = sorted(made())
    for first in range(0, len(seeds), PER_STACK):
        with place() as here:
            supervisor = Supervisor(log=here.stack.log_dir / "processes.log")
            try:
                soak = Soak(here, supervisor, steps)
                soak.run(seeds[first : first + PER_STACK])
            finally:
                supervisor.close()
            if soak.outcome.failures:
                print(f"logs: {here.stack.keep_logs()}", flush=True)
        whole.add(soak.outcome)
    return whole


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak")
    parser.add_argument("seeds", help="a range with both ends: 100-399")
    parser.add_argument("--plan", action="store_true", help="only say what would happen")
    parser.add_argument("--no-row", action="store_true", help="append nothing to the table")
    given = parser.parse_args(arguments)
    first, _, last = given.seeds.partition("-")
    seeds = list(range(int(first), int(last or first) + 1))
    if given.plan:
        for seed in seeds:
            _show(schedule(seed, sorted(made())))
        return 0
    outcome = play(seeds)
    print(outcome.tally)
    if not given.no_row:
        append(f"make soak SEEDS={given.seeds}", outcome, judged="exactly once" if EXACTLY_ONCE else "at least once")
    return 0 if not outcome.failures and outcome.tally.honest else 1


def _show(plan: Schedule) -> None:
    print(f"seed {plan.seed} ({plan.membership})")
    for timed in plan.faults:
        print(f"  {timed.at:.1f} s, for {timed.fault.seconds:.1f} s: {family(timed.fault)}: {timed.fault}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
