"""One topic between two regions with faults in between, and what every case ends with: drained and judged.

traffic ──> source ──> egresses ──> bucket, queue ──> ingresses ──> target
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING

from replicator.config import IngressSettings
from tests.processes import judge
from tests.processes.flow import Flow

if TYPE_CHECKING:
    from tests.faults.hand import Hand
    from tests.processes.harness import Site
    from tests.processes.judge import Log, Verdict
    from tests.processes.traffic import Traffic

EXACTLY_ONCE = next(f.default for f in fields(IngressSettings) if f.name == "delivery") == "exactly-once"
ISOLATION = "read_committed" if EXACTLY_ONCE else "read_uncommitted"
AS_OFTEN_AS_IT_LIKES = 1_000_000  # rewinds, of any length: at least once, and in order otherwise
PATIENCE = timedelta(seconds=60)
MOST_RECORDS = 120  # in one burst of traffic
POLL_SECONDS = 0.2  # from one poll of what is on its way to the next, between faults
FRESH_SECONDS = 3.0  # an older answer says nothing about the moment of a fault
LARGEST_BYTES = 700 << 20  # a process: 64 MiB of budget or less, Python, Arrow and the clients' own threads


@dataclass(slots=True)
class Tally:
    """What was done to the processes, by name; and whether anything was on its way at the moment before."""

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
        """Something was done, and at least half of it hit something."""
        return 0 < self.total <= 2 * self.in_flight


@dataclass(slots=True)
class Underway:
    """How many records were on their way, each time it was asked. A process that fails by its own hand is noticed
    afterwards, and by then its records wait for it: what counts is the last answer before."""

    _asked: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=1000))  # seconds since the epoch

    def note(self, at: float, records: int) -> None:
        self._asked.append((at, records))

    def before(self, moment: float) -> bool:
        """Whether any was; not, when no poll was shortly before `moment`."""
        at, records = next((one for one in reversed(self._asked) if one[0] <= moment), (0.0, 0))
        return records > 0 and moment - at <= FRESH_SECONDS

    def asked_within(self, seconds: float, now: float) -> bool:
        return bool(self._asked) and now - self._asked[-1][0] < seconds


class Rig:
    """A context manager, which ends the traffic. Processes are the site's."""

    def __init__(self, site: Site, *, seed: int, word: str = "t", partitions: int = 3) -> None:
        self.site, self.seed = site, seed
        self.tally = Tally()
        self.underway = Underway()
        self.flow = Flow(site, word, partitions=partitions, isolation=ISOLATION)
        self._traffic: Traffic | None = None

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *error: object) -> None:
        if self._traffic is not None:
            self._traffic.__exit__(*error)
        self.flow.__exit__()

    def traffic(self) -> None:
        """Flows from now on, until `drain`; the source has the first records when this returns."""
        traffic = self._traffic = self.flow.traffic(seed=self.seed, most=MOST_RECORDS)
        traffic.start()
        self.site.wait("the first records", lambda: traffic.taken > 0)

    def crashed(self, hand: Hand) -> bool:
        """Whether it killed itself where it was ordered to; counted, as is a callback that raised."""
        if (raised := hand.raised()) is not None:
            self.tally.count(f"exception {raised.name}", in_flight=self.underway.before(hand.failed_at))
        if (point := hand.crashed()) is None:
            if not self.underway.asked_within(POLL_SECONDS, time.time()):
                self.pending()
            return False
        self.tally.count(f"kill {point.name}", in_flight=self.underway.before(hand.failed_at))
        return True

    def count(self, name: str) -> None:
        """A fault that is made next: what is on its way is asked first."""
        self.tally.count(name, in_flight=self.pending() > 0)

    def pending(self) -> int:
        """Records that the source had taken, and that the target does not show now."""
        taken = self._traffic.taken if self._traffic is not None else 0
        found = taken - self.flow.delivered()
        self.underway.note(time.time(), found)
        return found

    def drain(self, timeout: timedelta = PATIENCE, *, hands: Iterable[Hand] = ()) -> None:
        """No more faults: everything arrives. Raises AssertionError if it does not. `hands` that end because their
        client gave up are started again."""
        assert self._traffic is not None, "nothing was produced"
        hands = list(hands)
        words = self._traffic.finish()

        self._wait(f"the last words of {self.flow.topic}", lambda: self.flow.has_arrived(words), timeout, hands)
        ends = {p: log.next_offset for p, log in self.flow.source().items()}
        self._wait(
            f"an archive of {self.flow.topic}", lambda: self.site.archived(self.flow.topic, ends), timeout, hands
        )

    def _wait(self, what: str, check: Callable[[], bool], timeout: timedelta, hands: Iterable[Hand]) -> None:
        def checked() -> bool:
            for each in hands:
                self.crashed(each)
            return check()

        try:
            self.site.wait(what, checked, timeout)
        except AssertionError:
            for each in hands:
                each.tell_where()  # who stands still says nothing by itself
            raise

    def judge(self) -> Mapping[int, Verdict]:
        """Of everything that is there now. Raises judge.Guilty."""
        source, target = self.logs()
        covered = self.site.ranges(self.flow.topic)
        verdicts: dict[int, Verdict] = {}
        for p, log in source.items():
            rewinds, run = (0, 1) if EXACTLY_ONCE else (AS_OFTEN_AS_IT_LIKES, len(log.records))
            try:
                verdicts[p] = judge.judge_target(log.records, target[p].records, rewinds=rewinds, run=run)
                judge.judge_archive(covered.get(p, ()), start=0, next_offset=log.next_offset)
            except judge.Guilty as error:
                raise judge.Guilty(error.charge, f"{self.flow.topic}/{p}: {error}") from None
        return verdicts

    def logs(self) -> tuple[Mapping[int, Log], Mapping[int, Log]]:
        """Source and target, read anew."""
        with ThreadPoolExecutor(2) as pool:
            source, target = pool.submit(self.flow.source), pool.submit(self.flow.read_target)
            return source.result(), target.result()


def stop(hands: list[Hand]) -> None:
    """Each ends as it should, and was never too large. Raises AssertionError."""
    running = [each for each in hands if each.worker.expected]
    largest = max((each.peak_bytes() for each in running), default=0)
    for each in running:
        each.leave()
    for each in running:
        each.left()
    assert largest <= LARGEST_BYTES, f"a process grew to {largest >> 20} MiB"
