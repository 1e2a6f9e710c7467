"""The rows of `bench.field` that copy: each program of both versions, from one topic, each with an archive of its own.

Each program runs with a quarter of the records and with all: the difference is the steady state (marginal CPU), the
rest of the smaller run is start-up. What it wrote is compared with what was sent, by the plain client and by pyarrow
alone (`bench.fidelity`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bench import fidelity
from bench.child import ChildFailed, Measurement
from bench.data import GeneratedRecords, RecordKind, records
from bench.earlier import HERE, Contender
from bench.fidelity import PartitionDigests
from bench.field_plan import NAMES, QUARTERS
from bench.field_report import FieldRow, SizePair
from bench.field_suite import FieldSuite, same
from bench.resources import empty, stored_bytes
from infra.kafka.consumer.source_consumer import BATCH_BYTES, MAX_RECORDS

REGION, TOPIC = "a", "t"  # of the archive: what the earlier commit's own benchmark restores
SEGMENT_BYTES = 95_000_000  # at most
IN_FOLDER = """
from {0} import tune
tune()
from pathlib import Path
import {1} as objects, {2} as wiring
wiring.s3_store = lambda *_, **__: objects.DirectoryObjectStore(Path({3!r}))
"""  # puts a folder in the place of the bucket, before the service is built
MODULES = ("infra.runtime.tuning", "infra.storage.memory_and_folder", "replicator.services.wiring")
EARLIER_MODULES = ("infra.tuning", "infra.objects", "replicator.surroundings")


@dataclass(frozen=True, slots=True)
class FieldFlows:
    suite: FieldSuite

    def rows(self, kind: RecordKind, partitions: int, programs: Sequence[str]) -> Iterator[FieldRow]:
        quarter = self.suite.plan.quarter(kind, partitions)
        made = records(kind, quarter, partitions)
        wanted = {times: fidelity.of_records(made, times=times) for times in (1, QUARTERS)}
        about = FieldRow(
            name="egress", data=NAMES[kind], partitions=partitions, server=self.suite.server, small=quarter,
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
                for number in range(self.suite.plan.rounds):
                    order = self.suite.order(number)
                    for name in ("egress", *(one for one in programs if one != "egress")):
                        if times > 1:
                            rows[name].floors.append(self._floor(rows[name], kind, made))
                        for contender in order:
                            prefix = f"{contender.name.replace(' ', '-')}-{kind}-{partitions}-{number}-{times}"
                            result = self._one(name, contender, prefix, made, wanted[times])
                            if name == "egress" and times > 1:
                                rows[name].stored[contender.name] = stored_bytes(
                                    self.suite.objects, f"{prefix}/{REGION}/"
                                )
                            if times == 1:
                                small[number, f"{name} {contender.name}"] = result
                            else:
                                pair = SizePair(small=small[number, f"{name} {contender.name}"], large=result)
                                rows[name].pairs.setdefault(contender.name, []).append(pair)
            for contender in self.suite.contenders:
                empty(self.suite.objects, contender.name.replace(" ", "-"))
        yield from (row for name, row in rows.items() if name in programs)

    def _one(
        self, name: str, contender: Contender, prefix: str, made: GeneratedRecords, wanted: PartitionDigests
    ) -> Measurement:
        """Run one program, and compare what it wrote. Raises ChildFailed when that is not what was sent."""
        count, partitions = sum(one.values.count for one in wanted.values()), len(wanted)
        match name:
            case "egress":
                result = self._service(contender, "egress", self._egress(contender, prefix, made, count, partitions))
                same(name, fidelity.of_files(self._archived(prefix)), wanted)
            case "ingress":
                target = f"{prefix}.copy"
                with self._dropped(
                    target, f"{target}.events", f"{target}.checkpoint", f"{target}.checkpoint.offset-map"
                ):
                    config = self._ingress(contender, prefix, target)
                    spec = {"config": config, "records": count}
                    result = self._service(contender, "ingress", spec)
                    same(name, self._of_topic(target, wanted), wanted)
            case _:
                target = f"{prefix}.restored"
                with self._dropped(target):
                    spec = {"config": self._config(contender, self.suite.place.archived(prefix)), "name": target}
                    spec |= {"region": REGION, "topic": TOPIC}
                    module = "bench.field_programs" if contender is HERE else "bench.restore"
                    result = self.suite.child(contender, module, "restore", spec)
                    same(name, self._of_topic(target, wanted), wanted)
        rate, cpu = count / result.seconds, result.whole_cpu_seconds * 1e6 / count
        print(
            f"{self.suite.server:9} {count:>9,} × {len(made.values[0]):>6,} B {name:8} {contender.name:12} "
            f"{rate:>10,.0f} records/s {cpu:6.1f} CPU-s per million, start-up included",
            flush=True,
        )
        return result

    def _egress(
        self, contender: Contender, prefix: str, made: GeneratedRecords, count: int, partitions: int
    ) -> dict[str, object]:
        """Segments are sealed by count only, so that the last one is full once the last record is read."""
        config = self.suite.place.egress(
            TOPIC,
            prefix=prefix,
            group=f"{prefix}.egress",
            topic_settings={"max_segment_messages": _of_segment(made, partitions)},
        )
        return {"config": self._config(contender, config), "records": count}

    def _ingress(self, contender: Contender, prefix: str, target: str) -> dict[str, Any]:
        config = self._config(
            contender, self.suite.place.ingress(TOPIC, prefix=prefix, group=target, destination=target)
        )
        config["ingress"]["sources"][0]["region"] = REGION
        if contender is not HERE:
            del config["ingress"]["replication_factor"]  # which that version takes from the broker
        return config

    def _config(self, contender: Contender, config: dict[str, Any]) -> dict[str, Any]:
        if self.suite.server == "folder" and contender is HERE:  # a folder cannot be asked
            config["s3"]["conditional_writes"] = "assume"
        return config | {"region": REGION}

    def _archived(self, prefix: str) -> Iterator[tuple[int, bytes]]:
        keys = [info.key for info in self.suite.objects.list(f"{prefix}/{REGION}/{TOPIC}")]
        for key in sorted(keys, key=lambda one: int(one.rpartition("/")[2].partition("-")[0])):
            with closing(self.suite.objects.open(key)) as file:
                yield int(key.split("/")[-3]), file.read()

    def _of_topic(self, topic: str, wanted: PartitionDigests) -> PartitionDigests:
        return fidelity.of_topic(self.suite.place.bootstrap, topic, {p: one.values.count for p, one in wanted.items()})

    # --- floors ---

    def _floor(self, row: FieldRow, kind: RecordKind, made: GeneratedRecords) -> Measurement:
        if row.floor == "bare consume":
            spec = {
                "properties": self.suite.place.consumer_properties(TOPIC),
                "topic": TOPIC,
                "partitions": row.partitions,
                "records": row.records,
                "batch": max(min(MAX_RECORDS, BATCH_BYTES // max(len(made.values[0]), 1)), 1),
            }
            return self.suite.child(HERE, "bench.bare", "consume", spec)
        with self._topic("bare", row.partitions):
            return self._produce("bare", kind, row.records, row.partitions)

    def _produce(self, topic: str, kind: RecordKind, count: int, partitions: int) -> Measurement:
        spec = {"properties": self.suite.place.producer_properties(), "topic": topic, "partitions": partitions}
        result = self.suite.child(HERE, "bench.bare", "produce", {**spec, "records": count, "kind": kind})
        if result.other["unsent"]:
            raise ChildFailed(f"{result.other['unsent']} records were not acknowledged")
        return result

    def _codec(self, kind: RecordKind, made: GeneratedRecords, partitions: int) -> Mapping[str, float]:
        """CPU-seconds per million records, of "encode" and "decode"."""
        count = len(made.values)
        spec = {"kind": kind, "records": count, "segment_records": _of_segment(made, partitions)}
        found = self.suite.child(HERE, "bench.field_programs", "codec", spec).other
        return {what: found[what] * 1e6 / count for what in ("encode", "decode")}

    # --- one program ---

    def _service(self, contender: Contender, what: str, spec: Mapping[str, object]) -> Measurement:
        before = ""
        if self.suite.server == "folder":
            modules = MODULES if contender is HERE else EARLIER_MODULES
            before = IN_FOLDER.format(*modules, str(self.suite.folder / "objects"))
        return self.suite.child(contender, "bench.service", what, spec, before=before)

    @contextmanager
    def _topic(self, name: str, partitions: int) -> Iterator[None]:
        self.suite.place.create(name, partitions)
        with self._dropped(name):
            yield

    @contextmanager
    def _dropped(self, *topics: str) -> Iterator[None]:
        try:
            yield
        finally:
            self.suite.place.drop(*topics)


def _of_segment(made: GeneratedRecords, partitions: int) -> int:
    """Records of a segment: each of a partition has the same number."""
    each = len(made.values) // partitions
    segments = max(-(-made.raw_bytes // partitions // SEGMENT_BYTES), 1)
    while each % segments:
        segments += 1
    return each // segments
