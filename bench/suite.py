"""Runs all measurements in order. Programs that are compared alternate: a slow minute affects both.

for each kind of record     one topic of 6 partitions, filled once
    for each round          bare consume, egress, bare produce, ingress, ingress at least once
many partitions             one topic of 400, egress with its defaults until all records are read, then stopped
a trickle                   one topic of 50, filled at a steady pace while egress stores segments of a second; then
                            egress once more, which splits the same records into segments of the same size
merging                     an archive of small segments; for each round: its floor, merge, merge on Spark
restoring, verifying        an archive of large segments; for each round: bare produce, restore, restore on Spark,
                            decode, verify
the first record            an archive of many tiny segments, one command
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench import archive, child
from bench.child import Measurement
from bench.data import KINDS, RecordKind
from bench.first_record import wait_for_first_record
from bench.resources import BenchResources
from bench.rows import JSON_RECORDS, SMALL_RECORDS, BenchRow
from bench.server_log import ServerLog
from infra.kafka.consumer.source_consumer import BATCH_BYTES, MAX_RECORDS

PARTITIONS = 6
TRICKLE_PARTITIONS, TRICKLE_PER_SECOND = 50, 5_000
JOINED_AFTER_SECONDS = 8.0  # time for the egress that starts with the producer to join its group
TIMEOUT_SECONDS = 600.0  # of one measurement; many times its duration
SEGMENT_BYTES = 95_000_000  # at most; a little below the default
MERGE_PARTITIONS, MERGE_SEGMENTS = 4, 10
RESTORE_SEGMENTS = 2  # per partition
NAMES: Mapping[RecordKind, str] = {"json": JSON_RECORDS, "small": SMALL_RECORDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    records: int = 1_000_000  # of 1 kB
    small_records: int = 3_000_000
    rounds: int = 3
    many_partitions: int = 400
    many_records: int = 1_000_000  # over all of them
    trickle_seconds: int = 30
    merge_records: int = 400_000
    first_segments: int = 2_000
    kinds: tuple[RecordKind, ...] = KINDS
    spark: bool = True  # whether the rows on Spark are measured

    def count(self, kind: RecordKind) -> int:
        """Number of records, rounded down so that every partition has the same number."""
        return (self.records if kind == "json" else self.small_records) // PARTITIONS * PARTITIONS

    def as_mapping(self) -> Mapping[str, Any]:
        return dataclasses.asdict(self)


@dataclass(slots=True)
class Suite:
    resources: BenchResources
    plan: BenchPlan
    logs: Path
    server_log: ServerLog | None  # None: requests are not counted
    say: Callable[[str], None]
    stored_ratio: dict[str, float] = field(default_factory=dict)  # raw bytes per stored byte, by data
    _numbers: Iterator[int] = field(default_factory=itertools.count)  # of log files; two children may run in parallel

    def run(self) -> list[BenchRow]:
        """Raises ChildFailed."""
        rows = [row for kind in self.plan.kinds for row in self._flow(kind)]
        return [*rows, self._many(), self._trickle(), *self._merging(), *self._restoring(), self._first_record()]

    # --- egress and ingress ---

    def _flow(self, kind: RecordKind) -> list[BenchRow]:
        count = self.plan.count(kind)
        with self.resources.topic(kind, PARTITIONS) as topic:
            raw = int(self._bare_produce(topic, kind, count, PARTITIONS).other["raw_bytes"])
            about = BenchRow(name="egress", data=NAMES[kind], records=count, raw_bytes=raw, floor="bare consume")
            egress = replace(about, ours=[], floors=[])
            ingress = replace(about, name="ingress", floor="bare produce", ours=[], floors=[])
            repeating = replace(about, name="ingress, at least once", floor="bare produce", ours=[], floors=[])
            for number in range(self.plan.rounds):
                prefix = f"{kind}-{number}"
                self._add(egress.floors, egress, "bare consume", self._bare_consume(topic, count, raw // count))
                self._add(egress.ours, egress, egress.name, self._egress(topic, prefix, count, raw))
                self.stored_ratio[NAMES[kind]] = raw / max(self.resources.stored_bytes(prefix), 1)
                with self.resources.topic(f"{kind}-{number}.bare", PARTITIONS) as target:
                    bare = self._bare_produce(target, kind, count, PARTITIONS)
                self._add(ingress.floors, ingress, "bare produce", bare)
                self._add(ingress.ours, ingress, ingress.name, self._ingress(topic, prefix, count))
                repeating.floors.append(bare)
                again = self._ingress(topic, prefix, count, delivery="at-least-once")
                self._add(repeating.ours, repeating, repeating.name, again)
                self.resources.empty(prefix)
        return [egress, ingress, repeating]

    def _many(self) -> BenchRow:
        partitions = self.plan.many_partitions
        count = self.plan.many_records // partitions * partitions
        with self.resources.topic("many", partitions) as topic:
            raw = int(self._bare_produce(topic, "json", count, partitions).other["raw_bytes"])
            row = BenchRow(
                name="egress, many partitions", data=JSON_RECORDS, records=count, raw_bytes=raw, has_rate=False
            )
            config = self.resources.egress(topic, prefix="many", group=f"{topic}.egress", topic_settings={})
            config["egress"]["shutdown_timeout"] = "2m"  # the stop stores all segments, on a slow S3
            spec = {"config": config, "records": count, "stop_when": "fetched"}
            self._add(row.ours, row, f"egress, {partitions} partitions", self._child("bench.service", "egress", spec))
        self.resources.empty("many")
        return row

    def _trickle(self) -> BenchRow:
        count = TRICKLE_PER_SECOND * self.plan.trickle_seconds
        with self.resources.topic("trickle", TRICKLE_PARTITIONS) as topic:
            spec = {
                "properties": self.resources.producer_properties(),
                "topic": topic,
                "partitions": TRICKLE_PARTITIONS,
                "records": count,
                "per_second": TRICKLE_PER_SECOND,
                "begin_after_seconds": JOINED_AFTER_SECONDS,
            }
            with ThreadPoolExecutor(1) as beside:
                produced = beside.submit(self._child, "bench.pace", "produce", spec)
                egress = self._trickle_egress(topic, "trickle", count, {"max_segment_age": "1s"})
                raw = int(_acknowledged(produced.result()).other["raw_bytes"])
            in_a_second = {"max_segment_messages": TRICKLE_PER_SECOND // TRICKLE_PARTITIONS}
            backlog = self._trickle_egress(topic, "trickle-backlog", count, in_a_second)
        row = BenchRow(
            name="egress, trickle",
            data=JSON_RECORDS,
            records=count,
            raw_bytes=raw,
            floor="backlog",
            compared_by="cpu",
        )
        self._add(row.ours, row, f"{TRICKLE_PER_SECOND:,}/s over {TRICKLE_PARTITIONS} partitions", egress)
        self._add(row.floors, row, "the same as a backlog", backlog)
        return row

    def _trickle_egress(self, topic: str, prefix: str, count: int, settings: Mapping[str, object]) -> Measurement:
        config = self.resources.egress(topic, prefix=prefix, group=f"{topic}.{prefix}", topic_settings=settings)
        return self._child("bench.service", "egress", {"config": config, "records": count, "ages": True})

    # --- the archive ---

    def _merging(self) -> list[BenchRow]:
        each = max(self.plan.merge_records // (MERGE_PARTITIONS * MERGE_SEGMENTS), 1)
        row = self._filled("merging", "merge", MERGE_PARTITIONS, MERGE_SEGMENTS, each)
        merge = replace(row, floor="decode and encode", compared_by="cpu", ours=[], floors=[])
        spark = replace(row, name="merge on Spark local[2]", floor="merge", one_process=False, ours=[], floors=[])
        for _ in range(self.plan.rounds):
            self._add(merge.floors, merge, "decode and encode", self._merge("floor-merge", row.records))
            self._add(merge.ours, merge, "merge", self._merge("merge", row.records))
            if self.plan.spark:
                spark.floors.append(merge.ours[-1])
                self._add(spark.ours, spark, spark.name, self._merge("spark-merge", row.records))
        self.resources.empty("merging")
        return [merge, *([spark] if self.plan.spark else [])]

    def _merge(self, what: str, count: int) -> Measurement:
        """Merge, and remove the outputs, so that the next measurement merges the same segments."""
        result = self._of_archive(what, "merging", count)
        store = self.resources.archive("merging")
        store.delete_many([plan.output for plan in archive.plans(store)])
        return result

    def _restoring(self) -> list[BenchRow]:
        each = max(self.plan.records // (PARTITIONS * RESTORE_SEGMENTS), 1)
        row = self._filled("restoring", "restore", PARTITIONS, RESTORE_SEGMENTS, each)
        restore = replace(row, floor="bare produce", ours=[], floors=[])
        spark = replace(row, name="restore on Spark local[2]", floor="restore", one_process=False, ours=[], floors=[])
        verify = replace(row, name="verify", floor="decode", ours=[], floors=[])
        for number in range(self.plan.rounds):
            with self.resources.topic(f"restored-{number}.bare", PARTITIONS) as target:
                bare = self._bare_produce(target, "json", row.records, PARTITIONS)
            self._add(restore.floors, restore, "bare produce", bare)
            self._add(restore.ours, restore, "restore", self._restore("restore", number, row.records))
            if self.plan.spark:
                spark.floors.append(restore.ours[-1])
                self._add(spark.ours, spark, spark.name, self._restore("spark-restore", number, row.records))
            decoded = self._of_archive("floor-verify", "restoring", row.records)
            self._add(verify.floors, verify, "decode", decoded)
            self._add(verify.ours, verify, "verify", self._of_archive("verify", "restoring", row.records))
        self.resources.empty("restoring")
        return [restore, *([spark] if self.plan.spark else []), verify]

    def _restore(self, what: str, number: int, count: int) -> Measurement:
        with self._dropped(name := f"{what}-{number}.{self.resources.run}"):
            return self._of_archive(what, "restoring", count, name=name)

    def _first_record(self) -> BenchRow:
        each = 10
        segments = max(self.plan.first_segments // MERGE_PARTITIONS, 1)
        row = self._filled("first", "restore, first record", MERGE_PARTITIONS, segments, each)
        row = replace(row, has_rate=False, one_process=False)
        for number in range(self.plan.rounds):
            with self._dropped(name := f"first-{number}.{self.resources.run}"):
                since = self.server_log.position() if self.server_log else 0
                log = self.logs / f"{next(self._numbers):02d}-first-record.log"
                result = wait_for_first_record(
                    self.resources, "first", name, partitions=MERGE_PARTITIONS, log=log, timeout_seconds=TIMEOUT_SECONDS
                )
            row.ours.append(self._counted(result, since))
            self.say(f"{row.name:26} {row.figure('wait'):6.1f} s from the start of the command")
        self.resources.empty("first")
        return row

    def _filled(self, prefix: str, name: str, partitions: int, segments: int, each: int) -> BenchRow:
        store = self.resources.archive(prefix)
        raw = archive.fill(store, partitions=partitions, segments=segments, count=each)
        return BenchRow(name=name, data=JSON_RECORDS, records=partitions * segments * each, raw_bytes=raw)

    def _of_archive(self, what: str, prefix: str, count: int, **more: object) -> Measurement:
        result = self._child("bench.archive", what, {"config": self.resources.archived(prefix), **more})
        if result.other["records"] != count:
            raise child.ChildFailed(f"bench.archive {what}: {result.other['records']} records of {count}")
        return result

    # --- one program ---

    def _bare_consume(self, topic: str, count: int, record_bytes: int) -> Measurement:
        """In batches of the size that our consumer adapts to, which is faster in the client than larger ones."""
        spec = {
            "properties": self.resources.consumer_properties(topic),
            "topic": topic,
            "partitions": PARTITIONS,
            "records": count,
            "batch": min(MAX_RECORDS, BATCH_BYTES // record_bytes),
        }
        return self._child("bench.bare", "consume", spec)

    def _bare_produce(self, topic: str, kind: RecordKind, count: int, partitions: int) -> Measurement:
        properties = self.resources.producer_properties()
        spec = {"properties": properties, "topic": topic, "partitions": partitions, "records": count, "kind": kind}
        return _acknowledged(self._child("bench.bare", "produce", spec))

    def _egress(self, topic: str, prefix: str, count: int, raw_bytes: int) -> Measurement:
        """Segments are sealed by count only, so that the last one is full once the last record is read."""
        per_partition = count // PARTITIONS
        segments = -(-raw_bytes // PARTITIONS // SEGMENT_BYTES)
        while per_partition % segments:
            segments += 1
        settings = {"max_segment_messages": per_partition // segments}
        config = self.resources.egress(topic, prefix=prefix, group=f"{topic}.{prefix}", topic_settings=settings)
        return self._child("bench.service", "egress", {"config": config, "records": count})

    def _ingress(self, topic: str, prefix: str, count: int, **settings: object) -> Measurement:
        destination = f"{topic}.{prefix}.copy"
        config = self.resources.ingress(topic, prefix=prefix, group=destination, destination=destination)
        config["ingress"] |= settings
        with self._dropped(destination, f"{destination}.events", f"{destination}.checkpoint"):
            return self._child("bench.service", "ingress", {"config": config, "records": count})

    @contextmanager
    def _dropped(self, *topics: str) -> Iterator[None]:
        try:
            yield
        finally:
            self.resources.drop(*topics)

    def _child(self, module: str, what: str, spec: dict[str, object]) -> Measurement:
        log = self.logs / f"{next(self._numbers):02d}-{module.removeprefix('bench.')}-{what}.log"
        since = self.server_log.position() if self.server_log else 0
        spec = spec | {"timeout_seconds": TIMEOUT_SECONDS}
        return self._counted(child.run(module, what, spec, log=log, timeout_seconds=TIMEOUT_SECONDS + 60), since)

    def _counted(self, result: Measurement, since: int) -> Measurement:
        """Add the requests that the server received since position `since` of its log."""
        if self.server_log is not None:
            result.other["requests"] = self.server_log.requests(self.resources.bucket, since)
        return result

    def _add(self, results: list[Measurement], row: BenchRow, name: str, result: Measurement) -> None:
        results.append(result)
        rate, cpu = row.records / result.seconds, result.whole_cpu_seconds * 1e6 / row.records
        about = f"{row.data:25} round {len(results)}  {name:26}"
        self.say(f"{about} {rate:>11,.0f} records/s  {cpu:5.1f} CPU-s per million")


def _acknowledged(result: Measurement) -> Measurement:
    if result.other["unsent"]:
        raise child.ChildFailed(f"{result.other['unsent']} records were not acknowledged")
    return result
