"""The rows of `bench.field`: each program of both versions, from one topic, each with an archive of its own.

Each program runs with a quarter of the records and with all: the difference is the steady state (marginal CPU), the
rest of the smaller run is start-up. What it wrote is compared with what was sent, by the plain client and by pyarrow
alone (`bench.fidelity`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench import child, fidelity
from bench.child import ChildFailed, Measurement
from bench.data import GeneratedRecords, RecordKind, records
from bench.earlier import HERE, Contender
from bench.fidelity import PartitionDigests
from bench.field_report import FieldRow, SizePair
from bench.resources import BenchResources
from bench.server_log import ServerLog, VersityLog
from infra.kafka.consumer.source_consumer import BATCH_BYTES, MAX_RECORDS
from infra.local.aws import s3_client

REGION, TOPIC = "a", "t"  # of the archive: what the earlier commit's own benchmark restores
QUARTERS = 4  # the topic holds the same records so many times; a small run reads them once
SEGMENT_BYTES = 95_000_000  # at most
MERGE_PARTITIONS, MERGE_SEGMENTS = 4, 10
MERGED = 0.4  # records of a merge, relative to those of the other programs
TIMEOUT_SECONDS = 900.0
COUNTS: Mapping[RecordKind, int] = {"json": 480_000, "small": 1_440_000, "large": 5_760, "random": 192_000}
NAMES: Mapping[RecordKind, str] = {
    "json": "1 kB JSON, key, 2 headers",
    "small": "100 B",
    "large": "100 kB JSON",
    "random": "1 kB, incompressible",
}
PROGRAMS = ("egress", "ingress", "restore", "merge")
ROWS: Sequence[tuple[RecordKind, int, tuple[str, ...]]] = (
    ("json", 6, PROGRAMS),
    ("small", 6, ("egress", "ingress", "restore")),
    ("large", 6, ("egress", "ingress")),
    ("random", 6, ("egress", "ingress")),
    ("json", 1, ("egress", "ingress")),
    ("json", 200, ("egress", "ingress")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldPlan:
    rounds: int = 2
    share: float = 1.0  # of COUNTS
    servers: tuple[str, ...] = ("moto", "versitygw")
    data: tuple[RecordKind, ...] = tuple(NAMES)
    partitions: tuple[int, ...] = (1, 6, 200)
    only: tuple[str, ...] = PROGRAMS

    @classmethod
    def profiled(cls, count: int, programs: tuple[str, ...]) -> FieldPlan:
        """Each of these programs once with `count` records of 1 kB."""
        return cls(rounds=1, share=count / COUNTS["json"], data=("json",), partitions=(6,), only=programs)

    def quarter(self, kind: RecordKind, partitions: int) -> int:
        """Records of a small run: the same number for each partition."""
        return max(int(COUNTS[kind] * self.share) // QUARTERS // partitions, 1) * partitions


@dataclass(slots=True)
class FieldSuite:
    place: BenchResources
    plan: FieldPlan
    server: str
    contenders: tuple[Contender, ...]  # this version first
    folder: Path
    log: ServerLog | VersityLog
    profiler: Callable[[Path], Sequence[str]] | None = None  # its command, for a file of its own beside each log
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def run(self) -> Iterator[FieldRow]:
        for kind, partitions, programs in ROWS:
            chosen = [name for name in programs if name in self.plan.only]
            if kind in self.plan.data and partitions in self.plan.partitions and chosen:
                yield from self._flows(kind, partitions, [name for name in chosen if name != "merge"])
                if "merge" in chosen and self.server == "moto":  # it uses neither server
                    yield self._merge()

    # --- egress, ingress, restore ---

    def _flows(self, kind: RecordKind, partitions: int, programs: Sequence[str]) -> Iterator[FieldRow]:
        if not programs:
            return
        quarter = self.plan.quarter(kind, partitions)
        made = records(kind, quarter, partitions)
        wanted = {times: fidelity.of_records(made, times=times) for times in (1, QUARTERS)}
        about = FieldRow(
            name="egress", data=NAMES[kind], partitions=partitions, server=self.server, small=quarter,
            records=QUARTERS * quarter, raw_bytes=QUARTERS * made.raw_bytes, floor="bare consume",
        )  # fmt: skip
        rows = {name: replace(about, name=name, pairs={}, floors=[], stored={}) for name in ("egress", *programs)}
        for name in ("ingress", "restore"):
            if name in rows:
                rows[name] = replace(rows[name], floor="bare produce")
        with self._topic(TOPIC, partitions):
            small: dict[tuple[int, str], Measurement] = {}
            for times in (1, QUARTERS):
                for _ in range(times - (times > 1)):  # the small run's records are there already
                    self._produce(TOPIC, kind, quarter, partitions)
                for number in range(self.plan.rounds):
                    order = self.contenders if number % 2 == 0 else self.contenders[::-1]
                    for name in ("egress", *(one for one in programs if one != "egress")):
                        if times > 1:
                            rows[name].floors.append(self._floor(rows[name], kind, made))
                        for contender in order:
                            prefix = f"{contender.name.replace(' ', '-')}-{kind}-{partitions}-{number}-{times}"
                            result = self._one(name, contender, prefix, made, wanted[times])
                            if name == "egress" and times > 1:
                                rows[name].stored[contender.name] = self.place.stored_bytes(f"{prefix}/{REGION}/")
                            if times == 1:
                                small[number, f"{name} {contender.name}"] = result
                            else:
                                pair = SizePair(small=small[number, f"{name} {contender.name}"], large=result)
                                rows[name].pairs.setdefault(contender.name, []).append(pair)
            for contender in self.contenders:
                self.place.empty(contender.name.replace(" ", "-"))
        yield from (row for name, row in rows.items() if name in programs)

    def _one(
        self, name: str, contender: Contender, prefix: str, made: GeneratedRecords, wanted: PartitionDigests
    ) -> Measurement:
        """Run one program, and compare what it wrote. Raises ChildFailed when that is not what was sent."""
        count, partitions = sum(one.values.count for one in wanted.values()), len(wanted)
        match name:
            case "egress":
                result = self._child(
                    contender, "bench.service", "egress", self._egress(prefix, made, count, partitions)
                )
                self._same(name, fidelity.of_files(self._archived(prefix)), wanted)
            case "ingress":
                target = f"{prefix}.copy"
                with self._dropped(
                    target, f"{target}.events", f"{target}.checkpoint", f"{target}.checkpoint.offset-map"
                ):
                    config = self._ingress(contender, prefix, target)
                    spec = {"config": config, "records": count}
                    result = self._child(contender, "bench.service", "ingress", spec)
                    self._same(name, self._of_topic(target, wanted), wanted)
            case _:
                target = f"{prefix}.restored"
                with self._dropped(target):
                    spec = {"config": self._config(self.place.archived(prefix)), "name": target}
                    spec |= {"region": REGION, "topic": TOPIC}
                    module = "bench.field_programs" if contender is HERE else "bench.restore"
                    result = self._child(contender, module, "restore", spec)
                    self._same(name, self._of_topic(target, wanted), wanted)
        rate, cpu = count / result.seconds, result.whole_cpu_seconds * 1e6 / count
        print(
            f"{self.server:9} {count:>9,} × {len(made.values[0]):>6,} B {name:8} {contender.name:12} "
            f"{rate:>10,.0f} records/s {cpu:6.1f} CPU-s per million, start-up included",
            flush=True,
        )
        return result

    def _egress(self, prefix: str, made: GeneratedRecords, count: int, partitions: int) -> dict[str, object]:
        """Segments are sealed by count only, so that the last one is full once the last record is read."""
        each = len(made.values) // partitions
        segments = max(-(-made.raw_bytes // partitions // SEGMENT_BYTES), 1)
        while each % segments:
            segments += 1
        config = self.place.egress(
            TOPIC, prefix=prefix, group=f"{prefix}.egress", topic_settings={"max_segment_messages": each // segments}
        )
        return {"config": self._config(config), "records": count}

    def _ingress(self, contender: Contender, prefix: str, target: str) -> dict[str, Any]:
        config = self._config(self.place.ingress(TOPIC, prefix=prefix, group=target, destination=target))
        config["ingress"]["sources"][0]["region"] = REGION
        if contender is not HERE:
            del config["ingress"]["replication_factor"]  # which that version takes from the broker
        return config

    def _config(self, config: dict[str, Any]) -> dict[str, Any]:
        return config | {"region": REGION}

    def _archived(self, prefix: str) -> Iterator[tuple[int, bytes]]:
        with closing(s3_client(self.place.endpoint_url)) as s3:
            pages = s3.get_paginator("list_objects_v2").paginate(
                Bucket=self.place.bucket, Prefix=f"{prefix}/{REGION}/{TOPIC}"
            )
            keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
            for key in sorted(keys, key=lambda one: int(one.rpartition("/")[2].partition("-")[0])):
                partition = key.split("/")[-3]
                yield int(partition), s3.get_object(Bucket=self.place.bucket, Key=key)["Body"].read()

    def _of_topic(self, topic: str, wanted: PartitionDigests) -> PartitionDigests:
        return fidelity.of_topic(self.place.bootstrap, topic, {p: one.values.count for p, one in wanted.items()})

    def _same(self, name: str, found: PartitionDigests, wanted: PartitionDigests) -> None:
        if found != wanted:
            wrong = [p for p in sorted(wanted) if found.get(p) != wanted[p]]
            raise ChildFailed(f"{name}: partitions {wrong} are not what was sent: {found} instead of {wanted}")

    # --- floors ---

    def _floor(self, row: FieldRow, kind: RecordKind, made: GeneratedRecords) -> Measurement:
        if row.floor == "bare consume":
            spec = {
                "properties": self.place.consumer_properties(TOPIC),
                "topic": TOPIC,
                "partitions": row.partitions,
                "records": row.records,
                "batch": max(min(MAX_RECORDS, BATCH_BYTES // max(len(made.values[0]), 1)), 1),
            }
            return self._child(HERE, "bench.bare", "consume", spec)
        with self._topic("bare", row.partitions):
            return self._produce("bare", kind, row.records, row.partitions)

    def _produce(self, topic: str, kind: RecordKind, count: int, partitions: int) -> Measurement:
        spec = {"properties": self.place.producer_properties(), "topic": topic, "partitions": partitions}
        result = self._child(HERE, "bench.bare", "produce", {**spec, "records": count, "kind": kind})
        if result.other["unsent"]:
            raise ChildFailed(f"{result.other['unsent']} records were not acknowledged")
        return result

    # --- merging: in a folder, without a server between ---

    def _merge(self) -> FieldRow:
        segments = MERGE_PARTITIONS * MERGE_SEGMENTS
        quarter = max(round(COUNTS["json"] * MERGED * self.plan.share) // segments // QUARTERS, 1)  # of a segment
        row = FieldRow(
            name="merge", data=NAMES["json"], partitions=MERGE_PARTITIONS, server="folder",
            small=segments * quarter, records=segments * quarter * QUARTERS, raw_bytes=0, floor="",
        )  # fmt: skip
        raw = 0
        for number in range(self.plan.rounds):
            order = self.contenders if number % 2 == 0 else self.contenders[::-1]
            for contender in order:
                results = []
                for count in (quarter, quarter * QUARTERS):
                    root = self.folder / f"merge-{number}-{contender.name.replace(' ', '-')}-{count}"
                    root.mkdir()
                    raw = self._fill(contender, root, count)
                    before = set(_segments(root))
                    module = "bench.field_programs" if contender is HERE else "bench.merge"
                    results.append(self._child(contender, module, "merge", {"root": str(root)}))
                    merged = [one for one in _segments(root) if one not in before]
                    self._same("merge", fidelity.of_files(_read(merged)), fidelity.of_files(_read(before)))
                    row.stored[contender.name] = sum(one.stat().st_size for one in merged)
                pair = SizePair(small=results[0], large=results[1])
                row.pairs.setdefault(contender.name, []).append(pair)
                cpu = pair.large.cpu_seconds * 1e6 / row.records
                print(f"folder    {row.records:>9,} merge {contender.name:12} {cpu:6.1f} CPU-s per million", flush=True)
        return replace(row, raw_bytes=raw)

    def _fill(self, contender: Contender, root: Path, count: int) -> int:
        """By the version that merges. Returns the raw bytes."""
        spec = {"root": str(root), "partitions": MERGE_PARTITIONS, "segments": MERGE_SEGMENTS, "records": count}
        if contender is HERE:
            return int(self._child(contender, "bench.field_programs", "fill", spec).other["raw_bytes"])
        code = (
            "import sys; from pathlib import Path; from bench.merge import *; "
            f"print(fill(SegmentStore(DirectoryObjectStore(Path(sys.argv[1])), ''), {MERGE_PARTITIONS}, "
            f"{MERGE_SEGMENTS}, {count}))"
        )
        return int(child.output([str(contender.python), "-c", code, str(root)], folder=contender.folder))

    # --- one program ---

    def _child(self, contender: Contender, module: str, what: str, spec: Mapping[str, object]) -> Measurement:
        log = self.folder / f"{next(self._numbers):03d}-{module.removeprefix('bench.')}-{what}.log"
        since = self.log.position()
        result = child.run(
            module,
            what,
            {**spec, "timeout_seconds": TIMEOUT_SECONDS},
            log=log,
            timeout_seconds=TIMEOUT_SECONDS + 60,
            python=contender.python,
            folder=contender.folder,
            under=self.profiler(log) if self.profiler is not None else (),
        )
        result.other["requests"] = self.log.requests(self.place.bucket, since)
        return result

    @contextmanager
    def _topic(self, name: str, partitions: int) -> Iterator[None]:
        self.place.create(name, partitions)
        with self._dropped(name):
            yield

    @contextmanager
    def _dropped(self, *topics: str) -> Iterator[None]:
        try:
            yield
        finally:
            self.place.drop(*topics)


def _segments(root: Path) -> list[Path]:
    return [one for one in root.rglob("*") if one.is_file() and "_control" not in one.parts]


def _read(files: Sequence[Path] | set[Path]) -> Iterator[tuple[int, bytes]]:
    for one in sorted(files, key=lambda file: int(file.name.partition("-")[0])):
        yield int(one.parts[-3]), one.read_bytes()
