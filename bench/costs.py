"""What a deployment costs a month: S3 by request and by level, replication, SQS and KMS, line by line.

    python -m bench.sizing --cost --partitions 1000 --mb-per-second 100

One source region, whose bucket is copied to one target region. Quantities come from `bench.deployment`, prices from
`bench.prices`; both are inputs. What is left out stands in `docs/cost.md`. Kafka, machines and Spark are not on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property

from bench.deployment import FOOTER_BYTES, MONTH_SECONDS, MULTIPART_CALLS, Deployment
from bench.prices import GB, MINIMUM_DAYS, STANDARD, RegionPrices, prices_of
from compaction.settings import CompactionJob
from infra.settings.units import MIB

WINDOW = 8 * MIB  # bytes that one GET of a reader fetches
HEARTBEATS = 1 / 5  # objects a second of the process that writes the control objects
WRITER_LISTS = 240 / 3600  # LIST a second of that process, and of every other one of the region: docs/operations.md
OTHER_LISTS = 720 / 3600
BUCKET_KEY = 0.01  # of the requests to KMS that are left with a bucket key, says AWS: down to 1 %
JOB = CompactionJob(name="sizing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What an operator decides beside the deployment itself."""

    compaction: timedelta | None = timedelta(days=1)  # between two runs; None: segments are never merged
    noncurrent_days: float = 30  # how long the bucket keeps what was deleted: `NoncurrentDays` of the templates
    merged_class: str = STANDARD
    time_control: bool = False  # S3's replication time control
    kms: str = "none"  # or "bucket-key", or "object": a request for every PUT and GET


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    where: str
    what: str
    quantity: float
    unit: str
    price: float  # of one

    @property
    def dollars(self) -> float:
        return self.quantity * self.price


@dataclass(frozen=True, kw_only=True)
class Bill:
    """Of a month of 30 days, once `retention_days` are stored in both regions."""

    deployment: Deployment
    choices: Choices = field(default_factory=Choices)
    source: RegionPrices = field(default_factory=lambda: prices_of("us-east-1", {}))
    target: RegionPrices = field(default_factory=lambda: prices_of("eu-west-1", {}))

    @property
    def dollars(self) -> float:
        return sum(line.dollars for line in self.lines())

    def but(self, **changes: object) -> Bill:
        """The same with other choices."""
        return replace(self, choices=replace(self.choices, **changes))  # type: ignore[arg-type]  # fields of Choices

    def lines(self) -> Iterator[Line]:
        for where, prices in (("source", self.source), ("target", self.target)):
            yield from self._storage(where, prices)
        yield from self._source_requests()
        yield from self._replication()
        yield from self._target_requests()
        yield from self._keys()

    # --- quantities

    @property
    def _merges(self) -> bool:
        return self.choices.compaction is not None

    @cached_property
    def _small_per_month(self) -> float:
        """Segments of level 0."""
        return self.deployment.segments_per_second * MONTH_SECONDS

    @cached_property
    def _small_bytes(self) -> float:
        """A month, with their footers."""
        return self._small_per_month * self.deployment.segment_bytes

    @cached_property
    def _merged_per_month(self) -> float:
        """Merged segments: a run makes one of what a partition wrote since the last one, unless it is too large."""
        if self.choices.compaction is None:
            return 0.0
        total, seconds = 0.0, self.choices.compaction.total_seconds()
        for rate in self.deployment.rates:
            stored = rate / self.deployment.stored_ratio
            total += max(MONTH_SECONDS / seconds, stored * MONTH_SECONDS / JOB.max_segment_size)
        return total

    @cached_property
    def _merged_bytes(self) -> float:
        """A month."""
        return self.deployment.stored_bytes_per_month + self._merged_per_month * FOOTER_BYTES if self._merges else 0.0

    @property
    def _small_days(self) -> float:
        """How long a segment of level 0 stays: until it is old enough, the next run, and the grace of a delete."""
        if self.choices.compaction is None:
            return self.deployment.retention_days
        waits = JOB.min_segment_age + self.choices.compaction / 2 + JOB.delete_grace
        return waits / timedelta(days=1)

    @property
    def _merged_puts(self) -> float:
        """A month: each is uploaded in parts."""
        parts = self._merged_bytes / self.deployment.part_size
        return parts + self._merged_per_month * MULTIPART_CALLS if self._merges else 0.0

    @property
    def _proof_gets(self) -> float:
        """A month: GET of merged segments, each of which is read once before what it replaces is deleted."""
        return self._merged_bytes / WINDOW

    @property
    def _small_gets(self) -> float:
        """A month, to read every segment of level 0 once."""
        return self.deployment.gets_per_second * MONTH_SECONDS

    @property
    def _control_puts(self) -> float:
        """A month: heartbeats, watermarks, and a change of the catalogue each day."""
        return (HEARTBEATS + 1 / self.deployment.refresh.total_seconds() + 1 / 86_400) * MONTH_SECONDS

    # --- lines

    def _storage(self, where: str, prices: RegionPrices) -> Iterator[Line]:
        month, other = "GB and month", self.choices.merged_class
        kept = self.deployment.retention_days
        gone = self.choices.noncurrent_days if self._merges else 0.0
        small, merged = self._small_bytes / GB / 30, self._merged_bytes / GB / 30  # of a day

        def line(what: str, quantity: float, storage_class: str) -> Line:
            price = prices.of("storage", storage_class)
            return Line(where=where, what=what, quantity=quantity, unit=month, price=price)

        yield line("storage of level 0", small * self._small_days, STANDARD)
        if self._merges:
            yield line("storage of level 0, deleted versions", small * gone, STANDARD)
            yield line(f"storage of level 1, {other}", merged * max(kept, MINIMUM_DAYS[other]), other)

    def _source_requests(self) -> Iterator[Line]:
        put, get = self.source.of("put", STANDARD), self.source.of("get", STANDARD)
        lists = (WRITER_LISTS + OTHER_LISTS * (self.deployment.processes - 1)) * MONTH_SECONDS

        def line(what: str, quantity: float, price: float, unit: str = "requests") -> Line:
            return Line(where="source", what=what, quantity=quantity, unit=unit, price=price)

        yield line("PUT of level 0", self.deployment.puts_per_second * MONTH_SECONDS, put)
        yield line("PUT of control objects", self._control_puts, put)
        yield line("LIST of egress", lists, put)
        if self._merges:
            yield line("compaction: GET of level 0", self._small_gets, get)
            yield line(
                "compaction: PUT of level 1", self._merged_puts, self.source.of("put", self.choices.merged_class)
            )
            yield from self._proof("source", "compaction", self.source)

    def _replication(self) -> Iterator[Line]:
        transferred = (self._small_bytes + self._merged_bytes) / GB
        put = self.target.of("put", STANDARD)

        def line(what: str, quantity: float, unit: str, price: float) -> Line:
            return Line(where="between", what=what, quantity=quantity, unit=unit, price=price)

        yield line("transfer of level 0", self._small_bytes / GB, "GB", self.source.of("transfer"))
        if self._merges:
            yield line("transfer of level 1", self._merged_bytes / GB, "GB", self.source.of("transfer"))
        yield line(
            "PUT of copies of level 0 and control objects", self._small_per_month + self._control_puts, "requests", put
        )
        if self._merges:
            price = self.target.of("put", self.choices.merged_class)
            yield line("PUT of copies of level 1", self._merged_puts, "requests", price)
        if self.choices.time_control:
            yield line("replication time control", transferred, "GB", self.source.of("time_control"))

    def _target_requests(self) -> Iterator[Line]:
        put, get, queue = self.target.of("put", STANDARD), self.target.of("get", STANDARD), self.target.of("queue")
        lists = self.deployment.lists_per_second * MONTH_SECONDS
        asked = self.deployment.queue_requests_per_second * MONTH_SECONDS

        def line(what: str, quantity: float, price: float) -> Line:
            return Line(where="target", what=what, quantity=quantity, unit="requests", price=price)

        yield line("GET of ingress", self._small_gets, get)
        yield line("LIST of ingress' timer", lists, put)
        yield line("SQS: notifications sent", self._small_per_month + self._merged_per_month, queue)
        yield line("SQS: receive and delete", asked, queue)
        if self._merges:
            yield line("gc --covered: GET of level 0", self._small_gets, get)
            yield from self._proof("target", "gc --covered", self.target)

    def _proof(self, where: str, command: str, prices: RegionPrices) -> Iterator[Line]:
        """Reading merged segments: nothing is deleted without it."""
        price = prices.of("get", self.choices.merged_class)
        what = f"{command}: GET of level 1"
        yield Line(where=where, what=what, quantity=self._proof_gets, unit="requests", price=price)
        if price := prices.of("retrieval", self.choices.merged_class):
            what = f"{command}: retrieval of level 1"
            yield Line(where=where, what=what, quantity=self._merged_bytes / GB, unit="GB", price=price)

    def _keys(self) -> Iterator[Line]:
        share = {"none": 0.0, "bucket-key": BUCKET_KEY, "object": 1.0}[self.choices.kms]
        if not share:
            return
        written = self._small_per_month + self._merged_per_month + self._control_puts
        proofs = self._small_gets + self._proof_gets if self._merges else 0.0
        for where, prices, calls in (
            ("source", self.source, 2 * written + proofs),  # to store an object, and to replicate it
            ("target", self.target, written + self._small_gets + proofs),
        ):
            yield Line(
                where=where, what="KMS: requests", quantity=calls * share, unit="requests", price=prices.of("kms")
            )
            yield Line(where=where, what="KMS: a key", quantity=1, unit="keys", price=prices.of("key"))


def alternatives(bill: Bill) -> Iterator[tuple[str, Bill]]:
    """The same deployment with one thing changed: which choice is worth what."""
    deployment = bill.deployment
    rule = deployment.topic_settings
    yield "as above", bill
    yield "no compaction", bill.but(compaction=None)
    yield "deleted versions kept for 1 day", bill.but(noncurrent_days=1)
    yield "merged segments in STANDARD_IA", bill.but(merged_class="STANDARD_IA")
    yield "merged segments in GLACIER_IR", bill.but(merged_class="GLACIER_IR")
    yield "with replication time control", bill.but(time_control=True)
    yield "SSE-KMS with a bucket key", bill.but(kms="bucket-key")
    yield "SSE-KMS without", bill.but(kms="object")
    slow = replace(deployment, relist=timedelta(hours=1))
    yield 'relist_interval = "1h"', replace(bill, deployment=slow)
    for seconds, text in ((60, "1m"), (1_800, "30m")):
        other = replace(deployment, topic_settings=replace(rule, max_segment_age=timedelta(seconds=seconds)))
        yield f'max_segment_age = "{text}"', replace(bill, deployment=other)
