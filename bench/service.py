"""One run of a real service, built by `replicator.services` from a configuration, with clocks at its interfaces.

    egress    first records fetched ──> last segment stored
    ingress   first delivery begun  ──> last checkpoint acknowledged

Classes of the composition root are replaced by subclasses that record the time and delegate: one more Python frame per
poll, segment or round, none per record. `bench.child` starts this.
"""

# ruff: noqa: PLC0415  -- as a command does: it imports what one service needs, since its start is measured, too

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bench import child
from formats.errors import ShutdownExpired
from infra.runtime.collector import collect_rarely

if TYPE_CHECKING:
    from types import ModuleType

    from formats.coverage import SegmentSlice
    from formats.footer import SegmentFooter
    from formats.messages.delivery_checkpoint import Skipped
    from formats.segment import Segment
    from infra.archive.upload import Encoded
    from infra.contracts.cluster import TopicPartition
    from infra.contracts.consumer import Fetched
    from infra.contracts.producer import RunFailed, TargetRun
    from infra.runtime.service import Service
    from ingress.delivery.events import DeliveryTarget
    from replicator.config import Config

POLL_SECONDS = 0.05  # between checks that the service still runs


@dataclass(slots=True)
class Marks:
    """Counts and times of the run. Several threads write."""

    wanted: int  # records
    fetched: int = 0
    finished: int = 0
    began: float | None = None  # monotonic seconds
    ended: float = 0.0
    cpu_at_begin: float = 0.0
    cpu_at_end: float = 0.0
    ages: list[float] = field(default_factory=list)  # of the oldest record of each segment when it was stored, seconds
    all_fetched: threading.Event = field(default_factory=threading.Event)
    all_finished: threading.Event = field(default_factory=threading.Event)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        if self.began is None:
            self.began, self.cpu_at_begin = time.monotonic(), time.process_time()

    def fetch(self, count: int) -> None:
        self.fetched += count
        if self.fetched >= self.wanted:
            self.all_fetched.set()

    def finish(self, count: int) -> None:
        with self._mutex:
            self.finished += count
            self.ended, self.cpu_at_end = time.monotonic(), time.process_time()
            if self.finished >= self.wanted:
                self.all_finished.set()


class _Counted:
    """Passes runs on to a writer, and counts their records."""

    def __init__(self, runs: Iterable[TargetRun]) -> None:
        self._runs = iter(runs)
        self._counts: Counter[TopicPartition] = Counter()

    def __iter__(self) -> Iterator[TargetRun]:
        for run in self._runs:
            self._counts[run.partition] += run.count
            yield run

    def finish(self, marks: Marks, failures: Sequence[RunFailed]) -> Sequence[RunFailed]:
        failed = {failure.partition for failure in failures}
        marks.finish(sum(count for partition, count in self._counts.items() if partition not in failed))
        return failures


def marked_egress(config: Config, marks: Marks) -> Service:
    """Egress, with the clocks in its composition root."""
    from infra.archive.upload import Uploader
    from infra.contracts.consumer import Run
    from infra.kafka.consumer.source_consumer import KafkaSourceConsumer
    from replicator.services import egress

    class Consumer(KafkaSourceConsumer):
        def poll(self, timeout: timedelta) -> Sequence[Fetched]:
            fetched = super().poll(timeout)
            if count := sum(item.count for item in fetched if isinstance(item, Run)):
                marks.begin()
                marks.fetch(count)
            return fetched

    class Uploads(Uploader):
        def upload(
            self, segment: Segment, file: Encoded, footer: SegmentFooter, overlapping: Collection[Segment] = ()
        ) -> bool:
            new = super().upload(segment, file, footer, overlapping)
            if footer.min_timestamp_ms is not None:
                marks.ages.append(time.time() - footer.min_timestamp_ms / 1000)
            marks.finish(footer.count)
            return new

    _replace(egress, Consumer, Uploads)
    return egress.build_egress(config)


def marked_ingress(config: Config, marks: Marks) -> Service:
    """Ingress, likewise."""
    from infra.kafka.producer.at_least_once import AtLeastOnceWriter
    from infra.kafka.producer.transactional import TransactionalWriter
    from ingress.delivery.rounds import Delivery
    from replicator.services import ingress

    class Deliveries(Delivery):
        def begin(
            self,
            delivery_target: DeliveryTarget,
            slices: Sequence[SegmentSlice],
            skipped: Sequence[Skipped] = (),
            *,
            dropped: int = 0,
        ) -> None:
            marks.begin()
            super().begin(delivery_target, slices, skipped, dropped=dropped)

    def counting(writer: type[Any]) -> type[Any]:
        class Counting(writer):  # type: ignore[misc]  # one class for each writer
            def deliver(
                self, runs: Iterable[TargetRun], *, should_stop: Callable[[], bool], fence: object = None
            ) -> Sequence[RunFailed]:
                counted = _Counted(runs)
                return counted.finish(marks, super().deliver(counted, should_stop=should_stop, fence=fence))

        return Counting

    _replace(ingress, Deliveries, counting(AtLeastOnceWriter), counting(TransactionalWriter))
    return ingress.build_ingress(config)


def _replace(module: ModuleType, *replacements: type[Any]) -> None:
    """Put each in the place of the class that it is derived from."""
    for replacement in replacements:
        (replaced,) = replacement.__bases__
        name = replaced.__name__
        if replaced is not getattr(module, name):
            raise TypeError(f"{module.__name__}.{name} is not the class that the benchmark measures")
        setattr(module, name, replacement)


def run(what: str, spec: dict[str, Any]) -> dict[str, Any]:
    """`spec`: config, records, timeout_seconds, stop_when ("finished", or "fetched": then the stop finishes the rest),
    ages (whether to report them)."""
    collect_rarely()
    from infra.runtime.logs import configure
    from infra.runtime.tuning import tune
    from replicator.config import from_mapping

    tune()
    marks = Marks(wanted=spec["records"])
    config = from_mapping(spec["config"])
    configure(config.log.level or "info", config.log.format or "json")
    service = {"egress": marked_egress, "ingress": marked_ingress}[what](config, marks)
    done = marks.all_fetched if spec.get("stop_when") == "fetched" else marks.all_finished
    deadline = time.monotonic() + spec["timeout_seconds"]
    service.start()
    while not done.wait(POLL_SECONDS) and time.monotonic() < deadline:
        _still_runs(service)
    if not done.is_set():
        raise TimeoutError(f"{marks.finished} of {marks.wanted} records in {spec['timeout_seconds']} s; see the log")
    service.stop()
    service.join(timedelta(seconds=60))
    if marks.finished < marks.wanted or marks.began is None:
        raise RuntimeError(f"only {marks.finished} of {marks.wanted} records when the service had stopped")
    return {
        "records": marks.finished,
        "seconds": marks.ended - marks.began,
        "cpu_seconds": marks.cpu_at_end - marks.cpu_at_begin,
        **({"wait_seconds": _percentiles(marks.ages)} if spec.get("ages") else {}),
    }


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {"median": ordered[len(ordered) // 2], "99 of 100": ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)]}


def _still_runs(service: Service) -> None:
    """Raises the service's error if it has failed, or RuntimeError when it has ended by itself."""
    try:
        service.join(timedelta(0))
    except ShutdownExpired:
        return
    raise RuntimeError("the service ended before all records were processed")


if __name__ == "__main__":
    outcome = run(sys.argv[1], json.load(sys.stdin))
    print(json.dumps(outcome | {"peak_rss_kib": child.peak_rss_kib()}))
