"""Reads source, archive and target back, and compares them column by column.

    topic a ── plain consumer ──> digest ┐
    bucket  ── pages, decoded ──> digest ├─> one Verdict per partition
    topic b ── plain consumer ──> digest ┘

The comparison does not rely on the replicator's own data: no footer, no checkpoint, no count.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from formats.coverage import Gap, steps
from formats.errors import DataError
from formats.footer import STREAMS, Digest
from formats.records.digest import Digester
from formats.segment import SourcePartition
from infra.contracts.consumer import PartitionFailed
from infra.kafka.consumer.decode import convert, items
from infra.local.errors import LocalStackError
from infra.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from infra.archive.archive import Archive

CONSUME_COUNT = 5_000
CONSUME_SECONDS = 0.5
PATIENCE = timedelta(seconds=30)  # without a record

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRead:
    """The records of one partition in source, archive or target."""

    digest: Digest
    first_offset: int | None
    last_offset: int | None
    raw_bytes: int = 0
    damage: tuple[str, ...] = ()  # what could not be read: missing offsets, corrupt segments

    @property
    def records(self) -> int:
        return self.digest.count


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionVerdict:
    """One partition in source, archive and target."""

    partition: int
    source: CopyRead
    archive: CopyRead
    target: CopyRead

    @property
    def differences(self) -> tuple[str, ...]:
        """Differences from the source, the most informative first. Offsets may differ in the target, but not in the
        archive."""
        archived = differing(self.source.digest, self.archive.digest)
        delivered = [name for name in differing(self.source.digest, self.target.digest) if name != "offset"]
        return (
            *(f"archive: {what}" for what in _describe(self.source, self.archive, archived)),
            *(f"target: {what}" for what in _describe(self.source, self.target, delivered)),
        )

    @property
    def equal(self) -> bool:
        return not self.differences


def differing(wanted: Digest, found: Digest) -> list[str]:
    """Names (of `STREAMS`) of the column streams that are not equal."""
    return [name for name, a, b in zip(STREAMS, wanted.streams, found.streams, strict=True) if a != b]


def _describe(wanted: CopyRead, found: CopyRead, streams: list[str]) -> Iterator[str]:
    yield from found.damage
    if found.records != wanted.records:
        missing = wanted.records - found.records
        yield f"{abs(missing):,} record(s) {'missing' if missing > 0 else 'too many'}"
    elif streams:
        yield f"{', '.join(streams)} differ"


def judge(
    source: Mapping[int, CopyRead], archive: Mapping[int, CopyRead], target: Mapping[int, CopyRead]
) -> tuple[PartitionVerdict, ...]:
    """One verdict for each partition in any of the three."""
    empty = side_of(())
    return tuple(
        PartitionVerdict(
            partition=partition,
            source=source.get(partition, empty),
            archive=archive.get(partition, empty),
            target=target.get(partition, empty),
        )
        for partition in sorted({*source, *archive, *target})
    )


class _SideBuilder:
    """Builds a Side from batches."""

    def __init__(self) -> None:
        self._digester = Digester()
        self._first: int | None = None
        self._last: int | None = None
        self._raw_bytes = 0
        self.damage: list[str] = []

    def add(self, batch: RecordBatch, raw_bytes: int = 0) -> None:
        if batch.num_rows:
            offsets = batch.column("offset")
            if self._first is None:
                self._first = offsets[0].as_py()
            self._last = offsets[-1].as_py()
        self._digester.update(batch)
        self._raw_bytes += raw_bytes

    def side(self) -> CopyRead:
        return CopyRead(
            digest=self._digester.digest(),
            first_offset=self._first,
            last_offset=self._last,
            raw_bytes=self._raw_bytes,
            damage=tuple(self.damage),
        )


def side_of(batches: Iterable[RecordBatch], *, damage: Iterable[str] = ()) -> CopyRead:
    """The Side of these records, in this order."""
    builder = _SideBuilder()
    for batch in batches:
        builder.add(batch)
    builder.damage.extend(damage)
    return builder.side()


# --- topics ----------------------------------------------------------------------------------------------------------


def read_topic(bootstrap: str, topic: str, partitions: Iterable[int]) -> Mapping[int, CopyRead]:
    """The current records of the partitions, read by a consumer of its own. Raises LocalStackError."""
    builders = {partition: _SideBuilder() for partition in partitions}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"demo-judge-{uuid.uuid4().hex}",  # the client requires one; nothing is committed
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
        },
        logger=log,
    )
    with closing(consumer):
        try:
            consumer.assign(
                [
                    ClientPartition(
                        topic, partition, consumer.get_watermark_offsets(ClientPartition(topic, partition))[0]
                    )
                    for partition in builders
                ]
            )
            _read_to_the_end(consumer, topic, builders)
        except KafkaException as error:
            raise LocalStackError(f"cannot read {topic} back: {error.args[0].str()}") from error
    return {partition: builder.side() for partition, builder in builders.items()}


def _read_to_the_end(consumer: Consumer, topic: str, builders: Mapping[int, _SideBuilder]) -> None:
    left = set(builders)
    patience = Deadline(PATIENCE)
    while left:
        messages = consumer.consume(CONSUME_COUNT, CONSUME_SECONDS)
        for where, item in items(messages):
            if isinstance(item, tuple):
                _, error = item
                if error.code() != KafkaError._PARTITION_EOF:
                    raise LocalStackError(f"cannot read {where} back: {error.str()}")
                left.discard(where.partition)
                continue
            for run in convert(where, item):
                if isinstance(run, PartitionFailed):
                    raise LocalStackError(f"cannot read {where} back: {run.reason}")
                builders[where.partition].add(run.batch, run.size_bytes)
        if messages:
            patience = Deadline(PATIENCE)
        elif patience.expired:
            raise LocalStackError(f"cannot read {topic} back: the end of partitions {sorted(left)} was not reached")


# --- archive ---------------------------------------------------------------------------------------------------------


def read_archive(archive: Archive, *, region: str, topic: str, partitions: Iterable[int]) -> Mapping[int, CopyRead]:
    """All archived records of the partitions, decoded from the pages of the segments that a reader would choose."""
    return {partition: _read_archived(archive, SourcePartition(region, topic, partition)) for partition in partitions}


def _read_archived(archive: Archive, source: SourcePartition) -> CopyRead:
    builder = _SideBuilder()
    for step in steps([info.segment for info in archive.segments.list(source)], 0):
        if isinstance(step, Gap):
            builder.damage.append(f"offsets {step.offsets} missing")
            continue
        try:
            for batch in archive.batches(step):
                builder.add(batch)
        except DataError as error:
            builder.damage.append(str(error))
    return builder.side()
