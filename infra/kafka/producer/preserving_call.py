"""One call of `PreservingWriter.deliver`: its state, the part of a run that is left, and whether it may go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from formats.errors import BrokerUnavailable
from formats.records.statistics import records_within
from formats.segment import OffsetRange
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import RunFailed, TargetRun
from infra.kafka.client.delivery_reports import Reports
from infra.kafka.client.idempotent_producer import IdempotentProducer
from infra.runtime.lifecycle import Deadline


@dataclass(slots=True)
class PreservingCall:
    """Its state."""

    wait: Callable[[], None]
    should_stop: Callable[[], bool]
    deadline: Deadline | None = None  # for filling holes, from the first one on
    producer: IdempotentProducer[TopicPartition] | None = None
    queued: list[tuple[TopicPartition, Reports, int]] = field(default_factory=list)  # with the first offset expected
    seen: set[TopicPartition] = field(default_factory=set)  # whose end was requested
    failed: dict[TopicPartition, RunFailed] = field(default_factory=dict)
    sent: list[TargetRun] = field(default_factory=list)  # whole, once they are settled
    found: list[TargetRun] = field(default_factory=list)  # in the target already, of partitions that failed after them


def part_of(run: TargetRun, start: int, next_offset: int) -> TargetRun:
    """The part of a run from `start` to before `next_offset`."""
    batches = tuple(records_within(run.batches, OffsetRange(start, next_offset - 1))) if start < next_offset else ()
    count = sum(batch.num_rows for batch in batches)
    return replace(
        run,
        batches=batches,
        count=count,
        size_bytes=run.size_bytes * count // max(run.count, 1),
        position=start,
        checkpoint=replace(run.checkpoint, next_offset=next_offset),
    )


def check_owned(should_stop: Callable[[], bool], owns: Callable[[], bool]) -> None:
    if should_stop():
        raise BrokerUnavailable("stopped before the target had acknowledged everything")
    if not owns():
        raise BrokerUnavailable("this process was frozen, or did not poll its group: it may have lost its partitions")
