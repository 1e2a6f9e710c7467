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
from bench.field_merge import merge_row
from bench.field_plan import NAMES, PROGRAMS, QUARTERS, FieldPlan
from bench.field_report import FieldRow, SizePair
from bench.resources import BenchResources
from bench.server_log import ServerLog, VersityLog
from infra.contracts.storage import ObjectStore
from infra.kafka.consumer.source_consumer import BATCH_BYTES, MAX_RECORDS

REGION, TOPIC = "a", "t"  # of the archive: what the earlier commit's own benchmark restores
SEGMENT_BYTES = 95_000_000  # at most
TIMEOUT_SECONDS = 900.0
IN_FOLDER = """
from {0} import tune
tune()
from pathlib import Path
import {1} as objects, {2} as wiring
wiring.s3_store = lambda *_, **__: objects.DirectoryObjectStore(Path({3!r}))
"""  # puts a folder in the place of the bucket, before the service is built
MODULES = ("infra.runtime.tuning", "infra.storage.memory_and_folder", "replicator.services.wiring")
EARLIER_MODULES = ("infra.tuning", "infra.objects", "replicator.surroundings")


@dataclass(slots=True)
class FieldSuite:
    place: BenchResources
    plan: FieldPlan
    server: str
    contenders: tuple[Contender, ...]  # this version first
    folder: Path
    objects: ObjectStore  # where the archives are
    log: ServerLog | VersityLog
    profiler: Callable[[Path], Sequence[str]] | None = None  # its command, for a file of its own beside each log
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def run(self) -> Iterator[FieldRow]:
        for kind, partitions, programs in self.plan.rows(self.server):
            if programs == ["merge"]:
                yield merge_row(self, kind)
            else:
                yield from self._flows(kind, partitions, programs)

    # --- egress, ingress, restore ---

    def _flows(self, kind: RecordKind, partitions: int, programs: Sequence[str]) -> Iterator[FieldRow]:
        quarter = self.plan.quarter(kind, partitions)
        made = records(kind, quarter, partitions)
        wanted = {times: fidelity.of_records(made, times=times) for times in (1, QUARTERS)}
        about = FieldRow(
            name="egress", data=NAMES[kind], partitions=partitions, server=self.server, small=quarter,
            records=QUARTERS * quarter, raw_bytes=QUARTERS * made.raw_bytes, floor="bare consume",
        )  # fmt: skip
        codec = self._codec(kind, made, partitions)
        rows = {
            name: replace(about, name=name, codec=codec["encode"], pairs={}, floors=[], stored={})
            for name in ("egress", *programs)
        }
        for name in ("ingress", "restore"):
            if name in rows:
                rows[name] = replace(rows[name], floor="bare produce", codec=codec["decode"])
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
                                rows[name].stored[contender.name] = self._stored_bytes(f"{prefix}/{REGION}/")
                            if times == 1:
                                small[number, f"{name} {contender.name}"] = result
                            else:
                                pair = SizePair(small=small[number, f"{name} {contender.name}"], large=result)
                                rows[name].pairs.setdefault(contender.name, []).append(pair)
            for contender in self.contenders:
                self._empty(contender.name.replace(" ", "-"))
        yield from (row for name, row in rows.items() if name in programs)

    def _one(
        self, name: str, contender: Contender, prefix: str, made: GeneratedRecords, wanted: PartitionDigests
    ) -> Measurement:
        """Run one program, and compare what it wrote. Raises ChildFailed when that is not what was sent."""
        count, partitions = sum(one.values.count for one in wanted.values()), len(wanted)
        match name:
            case "egress":
                result = self._service(contender, "egress", self._egress(contender, prefix, made, count, partitions))
                self.same(name, fidelity.of_files(self._archived(prefix)), wanted)
            case "ingress":
                target = f"{prefix}.copy"
                with self._dropped(
                    target, f"{target}.events", f"{target}.checkpoint", f"{target}.checkpoint.offset-map"
                ):
                    config = self._ingress(contender, prefix, target)
                    spec = {"config": config, "records": count}
                    result = self._service(contender, "ingress", spec)
                    self.same(name, self._of_topic(target, wanted), wanted)
            case _:
                target = f"{prefix}.restored"
                with self._dropped(target):
                    spec = {"config": self._config(contender, self.place.archived(prefix)), "name": target}
                    spec |= {"region": REGION, "topic": TOPIC}
                    module = "bench.field_programs" if contender is HERE else "bench.restore"
                    result = self.child(contender, module, "restore", spec)
                    self.same(name, self._of_topic(target, wanted), wanted)
        rate, cpu = count / result.seconds, result.whole_cpu_seconds * 1e6 / count
        print(
            f"{self.server:9} {count:>9,} × {len(made.values[0]):>6,} B {name:8} {contender.name:12} "
            f"{rate:>10,.0f} records/s {cpu:6.1f} CPU-s per million, start-up included",
            flush=True,
        )
        return result

    def _egress(
        self, contender: Contender, prefix: str, made: GeneratedRecords, count: int, partitions: int
    ) -> dict[str, object]:
        """Segments are sealed by count only, so that the last one is full once the last record is read."""
        config = self.place.egress(
            TOPIC,
            prefix=prefix,
            group=f"{prefix}.egress",
            topic_settings={"max_segment_messages": _of_segment(made, partitions)},
        )
        return {"config": self._config(contender, config), "records": count}

    def _ingress(self, contender: Contender, prefix: str, target: str) -> dict[str, Any]:
        config = self._config(contender, self.place.ingress(TOPIC, prefix=prefix, group=target, destination=target))
        config["ingress"]["sources"][0]["region"] = REGION
        if contender is not HERE:
            del config["ingress"]["replication_factor"]  # which that version takes from the broker
        return config

    def _config(self, contender: Contender, config: dict[str, Any]) -> dict[str, Any]:
        if self.server == "folder" and contender is HERE:  # a folder cannot be asked
            config["s3"]["conditional_writes"] = "assume"
        return config | {"region": REGION}

    def _archived(self, prefix: str) -> Iterator[tuple[int, bytes]]:
        keys = [info.key for info in self.objects.list(f"{prefix}/{REGION}/{TOPIC}")]
        for key in sorted(keys, key=lambda one: int(one.rpartition("/")[2].partition("-")[0])):
            with closing(self.objects.open(key)) as file:
                yield int(key.split("/")[-3]), file.read()

    def _stored_bytes(self, prefix: str) -> int:
        return sum(info.size_bytes for info in self.objects.list(prefix))

    def _empty(self, prefix: str) -> None:
        self.objects.delete_many([info.key for info in self.objects.list(prefix)])

    def _of_topic(self, topic: str, wanted: PartitionDigests) -> PartitionDigests:
        return fidelity.of_topic(self.place.bootstrap, topic, {p: one.values.count for p, one in wanted.items()})

    def same(self, name: str, found: PartitionDigests, wanted: PartitionDigests) -> None:
        """Raises ChildFailed when it is not."""
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
            return self.child(HERE, "bench.bare", "consume", spec)
        with self._topic("bare", row.partitions):
            return self._produce("bare", kind, row.records, row.partitions)

    def _produce(self, topic: str, kind: RecordKind, count: int, partitions: int) -> Measurement:
        spec = {"properties": self.place.producer_properties(), "topic": topic, "partitions": partitions}
        result = self.child(HERE, "bench.bare", "produce", {**spec, "records": count, "kind": kind})
        if result.other["unsent"]:
            raise ChildFailed(f"{result.other['unsent']} records were not acknowledged")
        return result

    def _codec(self, kind: RecordKind, made: GeneratedRecords, partitions: int) -> Mapping[str, float]:
        """CPU-seconds per million records, of "encode" and "decode"."""
        count = len(made.values)
        spec = {"kind": kind, "records": count, "segment_records": _of_segment(made, partitions)}
        found = self.child(HERE, "bench.field_programs", "codec", spec).other
        return {what: found[what] * 1e6 / count for what in ("encode", "decode")}

    # --- one program ---

    def _service(self, contender: Contender, what: str, spec: Mapping[str, object]) -> Measurement:
        before = ""
        if self.server == "folder":
            modules = MODULES if contender is HERE else EARLIER_MODULES
            before = IN_FOLDER.format(*modules, str(self.folder / "objects"))
        return self.child(contender, "bench.service", what, spec, before=before)

    def child(
        self, contender: Contender, module: str, what: str, spec: Mapping[str, object], *, before: str = ""
    ) -> Measurement:
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
            under=self.profiler(log) if self.profiler is not None and what in PROGRAMS else (),  # floors are not
            before=before,
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


def _of_segment(made: GeneratedRecords, partitions: int) -> int:
    """Records of a segment: each of a partition has the same number."""
    each = len(made.values) // partitions
    segments = max(-(-made.raw_bytes // partitions // SEGMENT_BYTES), 1)
    while each % segments:
        segments += 1
    return each // segments
