"""Delivery that keeps the source's offsets: a record has the same offset at the target as at the source.

    take over ─> compare what lies beyond the checkpoint ─┬─> records, outside transactions, in order
                     │                                    ├─> holes, by aborted transactions: `hole_filler`
                     └─ a difference: broken at o         └─> all acknowledged, at the offsets expected
                                                                │           └─ another offset: broken at o
                                                                └─> offset map ─> checkpoints ─> return

The position is the end of the log itself: whatever a run has below it is there already, was compared, and is not sent
again. So every crash state is finished from the log alone; the checkpoint is a lower limit of it, and is written for
those who read it: status, groups, and an owner in map mode.

Records carry no fence. Their number in flight is limited, each expires soon, and before each run
the process checks whether it still polls its group in time; `preserved_log` has the next owner's half.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from formats.errors import BrokerUnavailable, TargetError, WriterRefused
from formats.holes import time_to_fill
from formats.messages.delivery_checkpoint import Author, CheckpointKey, Skipped
from formats.records.hole_rate import HoleBacklog
from formats.records.offset_runs import contiguous
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import RunFailed, TargetRun
from infra.kafka.client.idempotent_producer import transactional_properties
from infra.kafka.cluster.admin import LeaderNotFound
from infra.kafka.producer.acknowledged import GRACE, AcknowledgedProducers
from infra.kafka.producer.departure_log import DepartureLog
from infra.kafka.producer.hole_filler import NotAsExpected
from infra.kafka.producer.offset_pages import SentRun
from infra.kafka.producer.own_topics import OwnTopics
from infra.kafka.producer.owned_logs import OwnedLogs
from infra.kafka.producer.preserve_failures import (
    EXPIRED,
    OF_INGRESS,
    Remedies,
    RunEnded,
    broken,
    expired,
    leaderless,
    moved,
    not_to_be_read,
    too_long,
    too_many,
    unfinished,
)
from infra.kafka.producer.preserved_log import PreservedLog, TargetLogs
from infra.kafka.producer.preserving_call import PreservingCall, check_owned, part_of
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Deadline
from infra.runtime.log_fields import COUNT, DESTINATION, NEXT, REASON

METADATA_WITHIN = timedelta(seconds=5)
LEFT_WITHIN = timedelta(seconds=1)  # else the next owner waits
FILL_FOR = timedelta(seconds=2)  # of one call: other partitions wait meanwhile
MOST_AT_ONCE = 300_000  # offsets of a hole before the deadline is checked again
LONG = timedelta(seconds=10)  # a hole that takes so long is announced

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreserveLimits:
    transaction_timeout: timedelta
    take_over_wait: timedelta  # an owner begins when the end of the log has stood still for it
    expires_after: timedelta  # a record that is not acknowledged; not longer than `take_over_wait`
    hole_limit: int  # offsets; a larger hole waits for an operator
    holes_per_second: int  # of a partition; a source that has more, all the time, is refused


class PreservingWriter:
    """An UnfencedWriter that keeps the source's offsets."""

    author = Author.AT_LEAST_ONCE

    def __init__(
        self,
        properties: Mapping[str, object],
        *,
        transactional_id: str,
        logs: TargetLogs,
        owns: Callable[[], bool],
        limits: PreserveLimits,
        checkpoint_topic: str,
        offset_map_topic: str,
        memory_bytes: int,
        is_new: Callable[[TopicPartition], bool] = lambda _: False,
        handover: DepartureLog | None = None,
        remedies: Remedies = OF_INGRESS,
    ) -> None:
        """Connects on first use. `transactional_id`: the same for all processes of the group; those of the partitions
        begin with it. `owns`: whether this process has certainly its partitions now; it may raise OwnershipLost.
        `is_new`: whether no other process can have sent a record to the partition, so that there is nothing to wait
        for. `handover`: what owners leave for the next one; None: each waits. Raises ConfigError."""
        expires = {"message.timeout.ms": int(limits.expires_after / timedelta(milliseconds=1))}
        self._topics = OwnTopics(checkpoint_topic, offset_map_topic)
        self._producers = AcknowledgedProducers({**properties, **expires}, self._topics, memory_bytes=memory_bytes)
        self._target, self._owns, self._limits, self._memory_bytes = logs, owns, limits, memory_bytes
        self._remedies, self._handover = remedies, handover
        self._is_delivering = False
        self._backlogs = defaultdict[TopicPartition, HoleBacklog](lambda: HoleBacklog(limits.holes_per_second))
        self._logs = OwnedLogs(
            transactional_properties(
                properties, memory_bytes=memory_bytes, transaction_timeout=limits.transaction_timeout
            ),
            transactional_id=transactional_id,
            target=logs,
            take_over_wait=limits.take_over_wait,
            is_new=is_new,
            handover=handover,
            remedies=remedies,
            memory_bytes=memory_bytes,
        )

    def batch_size_class(self, topic: str) -> int:
        return self._producers.sizes.of(topic)

    def deliver(
        self,
        runs: Iterable[TargetRun],
        *,
        should_stop: Callable[[], bool],
        fence: object = None,  # noqa: ARG002 -- records outside transactions have none
    ) -> Sequence[RunFailed]:
        """See TargetWriter. A partition that was taken over fails with RETRY_LATER until its log has stood still, one
        with a long hole with RETRY_NOW until that is filled; one without a leader with STALLED; a broken one, one with
        too many holes, or one of which the cluster refuses to say what lies there, with DENIED."""
        call = PreservingCall(partial(check_owned, should_stop, self._owns), lambda: should_stop() or not self._owns())
        skipped: dict[CheckpointKey, list[Skipped]] = defaultdict(list)
        self._is_delivering = True
        try:
            with durable(Step.PRODUCE_RECORDS):
                for run in runs:
                    call.wait()
                    if run.partition in call.failed:
                        continue
                    skipped[run.key] += run.skipped
                    try:
                        self._place(run, call)
                    except RunEnded as ended:
                        self._fail(call, ended.failure)
                    except LeaderNotFound as error:
                        self._fail(call, leaderless(run.partition, str(error)))
                    except WriterRefused:
                        raise
                    except TargetError as error:
                        self._fail(call, not_to_be_read(run.partition, str(error)))
                self._settle(call)
            done = [run for run in call.sent if run.partition not in call.failed] + call.found
            with durable(Step.PRODUCE_OFFSET_MAP):
                self._producers.record_pages([SentRun.preserved(run) for run in done], call.wait)
            last = {run.key: replace(run.without_records, skipped=skipped[run.key]) for run in done}
            with durable(Step.PRODUCE_CHECKPOINT):
                call.failed |= self._producers.record_checkpoints(list(last.values()), call.wait)
        except (BrokerUnavailable, WriterRefused):
            self._logs.forget()  # what was sent may still arrive
            self._producers.close(GRACE)
            raise
        finally:
            self._is_delivering = False
        return list(call.failed.values())

    def leave(self, epochs: Collection[int] | None = None) -> None:
        """These ownerships are over, or all: say so to the next owners, as far as nothing is on its way. Not during
        `deliver`. It may fail: then they wait."""
        left = self._logs.quiet(epochs)
        if self._handover is None or not left:
            return
        deadline = Deadline(LEFT_WITHIN)
        records = [self._handover.left(self._logs.id_of(one.partition), one.end) for one in left]
        try:
            with durable(Step.LEAVE_PARTITION):
                self._producers.record_notes(records, partial(check_owned, lambda: deadline.expired, lambda: True))
        except (BrokerUnavailable, WriterRefused) as error:
            log.info("departure_not_recorded", extra={REASON: str(error)})

    def close(self, timeout: timedelta) -> None:
        """Drop records in flight and release everything. May be called twice; the next `deliver` connects again."""
        if not self._is_delivering:  # or a thread that was left behind is in it
            self.leave()
        self._producers.close(timeout)
        self._logs.close()
        if self._handover is not None:
            self._handover.close()

    # --- one run ---

    def _place(self, run: TargetRun, call: PreservingCall) -> None:
        """Bring the log from where it ends to the end of the run, as far as what is queued."""
        target, whole = self._logs.of(run, call.seen, call.should_stop), run
        self._take(target, call)
        if target.end > run.position:
            until = min(target.end, run.checkpoint.next_offset)
            self._compare(target, run, until, call)
            run = part_of(run, until, run.checkpoint.next_offset)
        backlog = self._backlogs[run.partition]
        backlog.add(run.batches, position=run.position, next_offset=run.checkpoint.next_offset)
        if backlog.is_endless:
            raise RunEnded(too_many(run.partition, backlog))
        stretches = contiguous([b.column("offset") for b in run.batches], 0).rows() if run.count else []
        for source, _, count in stretches:
            self._fill(target, source, run, call)
            piece = run if len(stretches) == 1 else part_of(run, source, source + count)
            self._send(target, piece, source, call)
        self._fill(target, run.checkpoint.next_offset, run, call)
        self._remove_prefix(target, run)
        call.sent.append(whole)

    def _take(self, target: PreservedLog, call: PreservingCall) -> None:
        """What an earlier owner wrote of its departure must not count as this one's, should this one be killed."""
        if self._handover is not None and not target.is_taken:
            self._settle(call)  # first: a record that is refused meanwhile is not one of our topic
            with durable(Step.TAKE_PARTITION):
                self._producers.record_notes([self._handover.taken(self._logs.id_of(target.partition))], call.wait)
        target.is_taken = True

    def _send(self, target: PreservedLog, piece: TargetRun, expected: int, call: PreservingCall) -> None:
        if call.producer is None:
            call.producer = self._producers.of(self.batch_size_class(piece.partition.topic))
            self._topics.check(partial(call.producer.topic_error, within=METADATA_WITHIN))
        if call.producer.fatal is not None:
            self._settle(call)
            raise RunEnded(unfinished(piece.partition, "another run failed"))
        target.is_quiet = False
        reports = call.producer.send(piece, piece.partition, memory_bytes=self._memory_bytes, wait=call.wait)
        call.queued.append((piece.partition, reports, expected))
        target.end = expected + piece.count

    def _fill(self, target: PreservedLog, wanted: int, run: TargetRun, call: PreservingCall) -> None:
        if target.end >= wanted:
            return
        self._settle(call)
        if target.partition in call.failed:
            raise RunEnded(call.failed[target.partition])
        hole, takes = wanted - target.end, time_to_fill(wanted - target.end)
        call.deadline = call.deadline or Deadline(FILL_FOR)
        if call.deadline.expired:
            raise RunEnded(unfinished(target.partition, f"fills holes up to offset {wanted}"))
        if hole > self._limits.hole_limit:
            raise RunEnded(too_long(run, hole, takes, self._remedies))
        if takes > LONG:
            takes_text = f"about {takes.total_seconds():.0f} s until they are filled"
            log.info("long_hole", extra={DESTINATION: str(target.partition), COUNT: hole, NEXT: takes_text})
        filler = self._logs.filler(run)
        try:
            while target.end < wanted:
                before = target.end
                target.end = filler.fill(before, wanted, call.should_stop, most=MOST_AT_ONCE)
                if filler.has_met_others:
                    self._check_hole(target, before, run)
                if target.end < wanted and call.deadline.expired:
                    raise RunEnded(unfinished(target.partition, f"fills a hole up to offset {wanted}"))
        except NotAsExpected as error:
            raise RunEnded(broken(run, target.end, str(error), self._remedies)) from error

    def _check_hole(self, target: PreservedLog, start: int, run: TargetRun) -> None:
        """Markers of others are no difference; a record that consumers see is one."""
        at = self._target.first_difference(target.partition, (), start, target.end)
        if at is not None:
            why = "another program has written a record into a hole"
            raise RunEnded(broken(run, at, why, self._remedies))

    def _compare(self, target: PreservedLog, run: TargetRun, until: int, call: PreservingCall) -> None:
        """What lies in the target already, up to `until`."""
        start, end = max(run.position, target.low), min(until, target.checked_from)
        if start >= end:
            return
        at = self._target.first_difference(target.partition, run.batches, start, end)
        if at is None:
            return
        if at > run.position:
            call.found.append(part_of(run, run.position, at))
        why = "the target has another record there than the source, or only one has any"
        raise RunEnded(broken(run, at, why, self._remedies))

    def _remove_prefix(self, target: PreservedLog, run: TargetRun) -> None:
        """Below the begin of the source's log there are fillers only."""
        begun_at = run.checkpoint.begun_at
        if begun_at is None or not target.low < begun_at <= target.end:
            return
        try:
            with durable(Step.DELETE_RECORDS):
                self._target.admin.delete_records({target.partition: begun_at})
        except TargetError as error:  # such as of a topic that is compacted only: no consumer sees fillers
            log.warning("prefix_stays", extra={DESTINATION: str(target.partition), REASON: str(error), NEXT: "nothing"})
        target.low = begun_at

    # --- what is acknowledged ---

    def _settle(self, call: PreservingCall) -> None:
        """Wait until all that is queued is acknowledged, and check where it is."""
        if call.producer is not None:
            for failure in self._producers.failed(call.producer, call.wait).values():
                self._fail(call, expired(failure) if failure.code == EXPIRED else failure)
            if call.failed:
                call.producer = None  # a new one may have taken its place
        for partition, reports, expected in call.queued:
            if partition in call.failed or (reports.is_contiguous and reports.first_offset == expected):
                continue
            self._fail(call, moved(partition, expected, reports.first_offset))
        self._logs.settled({partition for partition, _, _ in call.queued} - call.failed.keys())
        call.queued.clear()

    def _fail(self, call: PreservingCall, failure: RunFailed) -> None:
        call.failed.setdefault(failure.partition, failure)
        self._logs.ended(failure)
