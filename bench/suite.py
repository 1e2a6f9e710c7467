"""What is measured, in which order.

for each kind of record     one topic of 6 partitions, filled once
    for each round          bare consume, egress, bare produce, ingress, ingress at least once
                            (taking turns: a slow minute hits all)
many partitions             one topic of 400, egress at its defaults until all is read, then stopped
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import child
from bench.child import Result
from bench.data import KINDS, Kind
from bench.place import Place
from infra.kafka.consumer import BATCH_BYTES, MOST

PARTITIONS = 6
REPEATING = "ingress, at least once"
TIMEOUT_SECONDS = 240.0  # of one measurement; hundred times what it takes
SEGMENT_BYTES = 95_000_000  # at most; a little below the default


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    records: int = 1_000_000  # of 1 kB
    small_records: int = 3_000_000
    rounds: int = 3
    many_partitions: int = 400
    many_records: int = 1_000_000  # over all of them
    kinds: tuple[Kind, ...] = KINDS

    def count(self, kind: Kind) -> int:
        """Rounded down, so that every partition has as many."""
        return (self.records if kind == "json" else self.small_records) // PARTITIONS * PARTITIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One service with one kind of record, and the bare loop it took turns with."""

    service: str  # "egress", "ingress", or REPEATING
    kind: Kind
    records: int
    raw_bytes: int
    ours: list[Result] = field(default_factory=list)
    bare: list[Result] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    partitions: int
    records: int
    egress: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    lines: list[Line]
    many: Many
    stored_ratio: dict[Kind, float]  # raw bytes per stored byte


@dataclass(slots=True)
class Suite:
    place: Place
    plan: Plan
    logs: Path
    say: Callable[[str], None]
    _number: int = 0

    def run(self) -> Results:
        lines: list[Line] = []
        ratios: dict[Kind, float] = {}
        for kind in self.plan.kinds:
            both, ratios[kind] = self._kind(kind)
            lines += both
        return Results(lines=lines, many=self._many(), stored_ratio=ratios)

    def _kind(self, kind: Kind) -> tuple[list[Line], float]:
        count = self.plan.count(kind)
        with self.place.topic(kind, PARTITIONS) as topic:
            filled = self._bare_produce(topic, kind, count, PARTITIONS)
            raw = int(filled.other["raw_bytes"])
            lines = [Line(service=s, kind=kind, records=count, raw_bytes=raw) for s in ("egress", "ingress", REPEATING)]
            egress, ingress, repeating = lines
            ratio = 0.0
            for number in range(self.plan.rounds):
                egress.bare.append(self._bare_consume(topic, count, raw // count))
                self._tell(egress, egress.bare, "bare consume", number)
                prefix = f"{kind}-{number}"
                egress.ours.append(self._egress(topic, prefix, count, raw))
                self._tell(egress, egress.ours, "egress", number)
                ratio = raw / max(self.place.stored_bytes(prefix), 1)
                with self.place.topic(f"{kind}-{number}.bare", PARTITIONS) as target:
                    ingress.bare.append(self._bare_produce(target, kind, count, PARTITIONS))
                self._tell(ingress, ingress.bare, "bare produce", number)
                ingress.ours.append(self._ingress(topic, prefix, count))
                self._tell(ingress, ingress.ours, "ingress", number)
                repeating.bare.append(ingress.bare[-1])
                repeating.ours.append(self._ingress(topic, prefix, count, delivery="at-least-once"))
                self._tell(repeating, repeating.ours, REPEATING, number)
                self.place.empty(prefix)
        return lines, ratio

    def _many(self) -> Many:
        partitions = self.plan.many_partitions
        count = self.plan.many_records // partitions * partitions
        with self.place.topic("many", partitions) as topic:
            self._bare_produce(topic, "json", count, partitions)
            config = self.place.egress(topic, prefix="many", group=f"{topic}.egress", topic_settings={})
            config["egress"]["shutdown_timeout"] = "2m"  # all segments are stored by the stop, on a slow S3
            result = self._child(
                "bench.service", "egress", {"config": config, "records": count, "stop_when": "fetched"}
            )
        self.say(f"{partitions} partitions: peak RSS {result.peak_rss_mib:.0f} MiB")
        return Many(partitions=partitions, records=count, egress=result)

    def _bare_consume(self, topic: str, count: int, record_bytes: int) -> Result:
        """In batches of the size that our consumer settles on, which suits the client better than larger ones."""
        spec = {
            "properties": self.place.consumer_properties(topic),
            "topic": topic,
            "partitions": PARTITIONS,
            "records": count,
            "batch": min(MOST, BATCH_BYTES // record_bytes),
        }
        return self._child("bench.bare", "consume", spec)

    def _bare_produce(self, topic: str, kind: Kind, count: int, partitions: int) -> Result:
        properties = self.place.producer_properties()
        spec = {"properties": properties, "topic": topic, "partitions": partitions, "records": count, "kind": kind}
        result = self._child("bench.bare", "produce", spec)
        if result.other["unsent"]:
            raise child.ChildFailed(f"bench.bare produce: {result.other['unsent']} records were not acknowledged")
        return result

    def _egress(self, topic: str, prefix: str, count: int, raw_bytes: int) -> Result:
        """Sealed by count alone, so that the last segment is full when the last record was read."""
        per_partition = count // PARTITIONS
        segments = -(-raw_bytes // PARTITIONS // SEGMENT_BYTES)
        while per_partition % segments:
            segments += 1
        settings = {"max_segment_messages": per_partition // segments}
        config = self.place.egress(topic, prefix=prefix, group=f"{topic}.{prefix}", topic_settings=settings)
        return self._child("bench.service", "egress", {"config": config, "records": count})

    def _ingress(self, topic: str, prefix: str, count: int, **settings: object) -> Result:
        destination = f"{topic}.{prefix}.copy"
        config = self.place.ingress(topic, prefix=prefix, group=destination, destination=destination)
        config["ingress"] |= settings
        with self._dropped(destination, f"{destination}.events", f"{destination}.checkpoint"):
            return self._child("bench.service", "ingress", {"config": config, "records": count})

    @contextmanager
    def _dropped(self, *topics: str) -> Iterator[None]:
        try:
            yield
        finally:
            self.place.drop(*topics)

    def _child(self, module: str, what: str, spec: dict[str, object]) -> Result:
        self._number += 1
        log = self.logs / f"{self._number:02d}-{module.removeprefix('bench.')}-{what}.log"
        spec = spec | {"timeout_seconds": TIMEOUT_SECONDS}
        return child.run(module, what, spec, log=log, timeout_seconds=TIMEOUT_SECONDS + 60)

    def _tell(self, line: Line, results: list[Result], name: str, number: int) -> None:
        rate, cpu = line.records / results[-1].seconds, results[-1].whole_cpu_seconds * 1e6 / line.records
        self.say(f"{line.kind:5} round {number + 1}  {name:22} {rate:>11,.0f} records/s  {cpu:5.1f} CPU-s per million")
