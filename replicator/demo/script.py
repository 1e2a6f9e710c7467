"""The steps of the demo in a running stack: load, replicate, add live records, read everything back.

flights ──load──> topic in a ──egress──> bucket a ──sync──> bucket b ──ingress──> topic in b
                       │                 compact ↺          gc ↺                   │
                       └──────────── judge: source = archive = target ─────────────┘
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from formats.errors import TransientError
from formats.parquet.writer import ParquetFormat
from formats.segment import SegmentInfo, SourcePartition
from infra.archive.archive import Archive
from infra.archive.segments import SegmentStore
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.aws import create_bucket_with_queue, s3_client
from infra.local.errors import LocalStackError
from infra.runtime.lifecycle import Deadline
from infra.runtime.log_fields import ERROR
from infra.storage.s3 import S3ObjectStore
from replicator.config import load as load_config
from replicator.demo.disaster import lose_and_restore
from replicator.demo.flights import by_partition
from replicator.demo.judge import judge
from replicator.demo.live import Endpoint, Latencies, LiveTraffic
from replicator.demo.load import create_topic, load
from replicator.demo.progress import TopicObserver, TopicPositions
from replicator.demo.report import DemoReport
from replicator.demo.services import SOURCE, TARGET, Names, Segments, Services, selection_of, write_configs
from replicator.verify.verify import Verification

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    from pyarrow import RecordBatch

    from infra.local.stack import LocalStack
    from replicator.demo.judge import PartitionVerdict
    from replicator.demo.screen import Bars, Screen

POLL_INTERVAL = timedelta(seconds=0.5)
CLEAN_INTERVAL = timedelta(seconds=3)
LOADED, ARCHIVED, DELIVERED = "loaded", "archived", "delivered"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Amounts and names."""

    partitions: int = 6
    live_records: int = 480
    live_per_second: float = 40
    patience: timedelta = timedelta(minutes=3)  # without progress, on a machine that is busy with other work
    segments: Segments = field(default_factory=Segments)
    names: Names = field(default_factory=Names.usual)
    ends_in_disaster: bool = True


class Play:
    """One run in a new stack, as a context manager. The services run until the stack ends, or until `kill`."""

    def __init__(self, stack: LocalStack, scenario: Scenario, screen: Screen) -> None:
        self._stack, self._scenario, self._screen = stack, scenario, screen
        self._waiting = threading.Event()  # never set: only an interrupt ends a wait
        self._services: Services | None = None
        self._configs: Mapping[str, Path] = {}
        self._clean_again = Deadline(timedelta())
        names = scenario.names
        self._source = Endpoint(bootstrap=stack.brokers[SOURCE].bootstrap, topic=names.topic)
        self._target = Endpoint(bootstrap=stack.brokers[TARGET].bootstrap, topic=names.copy)
        client = s3_client(stack.moto.endpoint_url)
        self._resources = ExitStack()
        self._resources.callback(client.close)
        # the bucket to which sync copies the segments
        self._objects = S3ObjectStore(client, names.buckets[TARGET])
        self._archive = Archive.of(self._objects, names.prefix, ParquetFormat())
        self._origin = SegmentStore(S3ObjectStore(client, names.buckets[SOURCE]), names.prefix)
        self._observer = TopicObserver(
            region=SOURCE,
            topic=names.topic,
            copy=names.copy,
            partitions=scenario.partitions,
            source=KafkaAdmin({"bootstrap.servers": self._source.bootstrap}),
            target=KafkaAdmin({"bootstrap.servers": self._target.bootstrap}),
            archive=self._archive.segments,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._resources.close()

    @property
    def configs(self) -> Mapping[str, Path]:
        """The services' configuration files by region, once the services are started."""
        return self._configs

    def kill(self) -> None:
        """End the services at once: their unfinished work is removed with the stack."""
        if self._services is not None:
            self._services.kill()

    def settle(self) -> None:
        """Wait for the jobs that end by themselves, so that only services are left. Raises LocalStackError."""
        if self._services is not None:
            self._services.wait_for_clean(self._scenario.patience)

    def run(self, flights: Future[RecordBatch], *, since: float) -> DemoReport:
        """`since`: start of the demo on the monotonic clock. Raises LocalStackError, TransientError."""
        self._start_services()
        records = flights.result()
        begin = time.monotonic()
        positions = self._replicate(records)
        self._screen.say(f"Region b has all records, {time.monotonic() - begin:.1f} s after the first was loaded.")
        self._compact()
        latencies = self._live(positions)
        compacted = self._until_compacted()
        self._screen.say("Reading source, archive and target back ...")
        verdicts = self._judge()
        raw_bytes = sum(self._archive.footer(i.segment).raw_bytes for i in self._segments(self._archive.segments))
        recovery = None
        if self._scenario.ends_in_disaster:
            self._screen.say("Region a's broker and its disks are lost. Restoring its topic from the bucket ...")
            self.kill()
            sources = {verdict.alone.source: verdict.source for verdict in verdicts}
            recovery = lose_and_restore(self._stack, self._scenario.names, sources)
        assert self._services is not None
        stored = self._services.archived()
        return DemoReport(
            produced=records.num_rows + latencies.sent,
            verdicts=verdicts,
            latencies=latencies,
            max_segment_age=self._scenario.segments.max_age,
            objects=len(stored),
            stored_bytes=sum(stored),
            raw_bytes=raw_bytes,
            compacted_objects=len(compacted),
            compacted_bytes=sum(compacted),
            recovery=recovery,
            took=timedelta(seconds=time.monotonic() - since),
        )

    # --- steps, in order ---

    def _start_services(self) -> None:
        stack, scenario, names = self._stack, self._scenario, self._scenario.names
        endpoint_url = stack.moto.endpoint_url
        for region, bucket in names.buckets.items():
            create_bucket_with_queue(endpoint_url, bucket, names.queues[region], prefix=f"{names.prefix}/")
        create_topic(self._observer.source, names.topic, partitions=scenario.partitions)
        self._configs = write_configs(
            stack.dir,
            brokers={SOURCE: self._source.bootstrap, TARGET: self._target.bootstrap},
            endpoint_url=endpoint_url,
            names=names,
            segments=scenario.segments,
        )
        self._screen.say("Region a: egress and sync. Region b: ingress. Each is a process of its own.")
        self._services = Services(stack, self._configs)

    def _replicate(self, records: RecordBatch) -> TopicPositions:
        """Load all records, and wait until the target has them."""
        total, partitions = records.num_rows, self._scenario.partitions
        self._screen.say(
            f"Loading {total:,} flights of 2013 into topic {self._source.topic}, {partitions} partitions ..."
        )
        with self._screen.bars((LOADED, ARCHIVED, DELIVERED), total=total) as bars:
            interval = Deadline(POLL_INTERVAL)
            queued = 0

            def progress(count: int) -> None:
                nonlocal queued, interval
                queued += count
                bars.set(LOADED, done=queued)
                if interval.expired:
                    self._check()
                    _draw(bars, self._observe())
                    interval = Deadline(POLL_INTERVAL)

            load(
                by_partition(records, partitions),
                bootstrap=self._source.bootstrap,
                topic=self._source.topic,
                check=self._check,
                progress=progress,
            )
            return self._until_delivered(lambda positions: _draw(bars, positions))

    def _live(self, before: TopicPositions) -> Latencies:
        scenario = self._scenario
        self._screen.say(
            f"Adding {scenario.live_records} live records, {scenario.live_per_second:g} per second, "
            f"and reading topic {self._target.topic} in region b ..."
        )
        traffic = LiveTraffic(
            self._source,
            self._target,
            target_ends=before.target,
            count=scenario.live_records,
            per_second=scenario.live_per_second,
        )
        with self._screen.bars(("sent", "arrived"), total=scenario.live_records) as bars, traffic:
            seen, patience = (0, 0), Deadline(scenario.patience)
            while not traffic.finished:
                self._check()
                self._clean()
                self._waiting.wait(POLL_INTERVAL.total_seconds() / 2)
                bars.set("sent", done=traffic.sent)
                bars.set("arrived", done=traffic.seen)
                if (traffic.sent, traffic.seen) != seen:
                    seen, patience = (traffic.sent, traffic.seen), Deadline(scenario.patience)
                elif patience.expired:
                    raise self._stuck(f"{traffic.sent} live records were sent, {traffic.seen} arrived")
            bars.set("sent", done=traffic.sent)
            bars.set("arrived", done=traffic.seen)
        self._until_delivered(lambda _standing: None)
        return traffic.latencies()

    def _judge(self) -> tuple[PartitionVerdict, ...]:
        source, target = load_config(self._configs[SOURCE]), load_config(self._configs[TARGET])
        with Verification(target, selection_of(self._scenario.names), objects=self._objects) as verification:
            return judge(verification, self._sources, source, target, self._target.topic)

    def _compact(self) -> None:
        assert self._services is not None
        self._screen.say(
            "Compacting region a's bucket on Spark from now on; region b's bucket gets the merged segments ..."
        )
        self._services.compact()

    def _clean(self) -> None:
        """Clean the bucket that ingress reads, at most every CLEAN_INTERVAL: two cores have other work, too."""
        assert self._services is not None
        if self._clean_again.expired:
            self._services.clean()
            self._clean_again = Deadline(CLEAN_INTERVAL)

    def _until_compacted(self) -> list[int]:
        """Wait until both buckets have the same single segment for each partition. Returns the segments' sizes."""
        patience, seen = Deadline(self._scenario.patience), (0, 0)
        while True:
            self._check()
            self._clean()
            in_a, in_b = self._segments(self._origin), self._segments(self._archive.segments)
            if (len(in_a), len(in_b)) != seen:
                seen, patience = (len(in_a), len(in_b)), Deadline(self._scenario.patience)
            is_single = len({info.segment.source for info in in_a}) == len(in_a)
            if is_single and {info.segment for info in in_a} == {info.segment for info in in_b}:
                return [info.size_bytes for info in in_a]
            if patience.expired:
                raise self._stuck(f"{len(in_a)} segments are left in region a's bucket, {len(in_b)} in region b's")
            self._waiting.wait(POLL_INTERVAL.total_seconds())

    @property
    def _sources(self) -> list[SourcePartition]:
        return [SourcePartition(SOURCE, self._source.topic, p) for p in range(self._scenario.partitions)]

    def _segments(self, store: SegmentStore) -> list[SegmentInfo]:
        return [info for source in self._sources for info in store.list(source)]

    # --- waiting ---

    def _until_delivered(self, draw: Callable[[TopicPositions | None], None]) -> TopicPositions:
        last: TopicPositions | None = None
        patience = Deadline(self._scenario.patience)
        while True:
            self._check()
            positions = self._observe()
            draw(positions)
            if positions is not None and positions.complete:
                return positions
            if positions is not None and positions != last:
                last, patience = positions, Deadline(self._scenario.patience)
            elif patience.expired:
                raise self._stuck(_text(last))
            self._waiting.wait(POLL_INTERVAL.total_seconds())

    def _observe(self) -> TopicPositions | None:
        """None if it is unknown now: a topic that was just created has no leader yet."""
        try:
            return self._observer.observe()
        except TransientError as error:
            log.info("not_seen", extra={ERROR: str(error)})
            return None

    def _check(self) -> None:
        """Raises LocalStackError if a process has ended."""
        self._stack.check()
        if self._services is not None:
            self._services.check()

    def _stuck(self, what: str) -> LocalStackError:
        seconds = self._scenario.patience.total_seconds()
        return LocalStackError(
            f"no progress for {seconds:.0f} s: {what}. Try again when this machine is less busy, if it is.\n"
            "See the services' logs: egress.log, sync.log, ingress.log, compact.log and gc.log in "
            f"{self._stack.log_dir}"
        )


def _draw(bars: Bars, positions: TopicPositions | None) -> None:
    if positions is not None:
        bars.set(ARCHIVED, done=sum(positions.archive.values()))
        bars.set(DELIVERED, done=sum(positions.target.values()))


def _text(positions: TopicPositions | None) -> str:
    if positions is None:
        return "the brokers and the bucket do not answer"
    return (
        f"of {sum(positions.source.values()):,} records in region a, {sum(positions.archive.values()):,} are in the "
        f"archive and {sum(positions.target.values()):,} in region b"
    )
