"""The logs of this process's partitions that keep the source's offsets, and what fills their holes.

    of(run) ──first run of an ownership──> fillers taken over ─┬─> TAKEN_OVER until the end stands still ──> ready
       │                                                        └─ no process has written to it before ───────> ready
       └─ ready: the end is read once in each call of `deliver`; it may have moved, and never backwards

A log is forgotten when its partition's part of a call fails: records of this process may still arrive then, too, where
it ends is not known, and the wait begins again. It is not where all that was sent is acknowledged and the next attempt
follows at once.

A log that its last owner has left for certain needs no wait, either: `handover` says where it ended then.

A log that no process can have sent a record to needs no wait, as `is_new` says of the first time that this process
has it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial

from formats.holes import has_lost_its_tail
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, RunFailed, TargetRun
from infra.kafka.producer.departure_log import DepartureLog
from infra.kafka.producer.hole_filler import HoleFiller
from infra.kafka.producer.preserve_failures import Remedies, RunEnded, broken, taken_over
from infra.kafka.producer.preserved_log import PreservedLog, Stillness, TargetLogs

OPEN_FILLERS = 32  # partitions with a producer for holes; each has a thread for each broker


class OwnedLogs:
    """Use from one thread. Raises BrokerUnavailable, WriterRefused and TargetError."""

    def __init__(
        self,
        properties: Mapping[str, object],
        *,
        transactional_id: str,
        target: TargetLogs,
        take_over_wait: timedelta,
        is_new: Callable[[TopicPartition], bool],
        handover: DepartureLog | None,
        remedies: Remedies,
        memory_bytes: int,
    ) -> None:
        """`properties`: the result of `transactional_properties`. `transactional_id`: those of the partitions begin
        with it. `take_over_wait`: an owner begins when the end of the log has stood still for it. `is_new`: whether no
        other process can have sent a record to the partition. `handover`: None where owners leave nothing."""
        self._properties, self._id, self._target = properties, transactional_id, target
        self._wait, self._is_new, self._memory_bytes = take_over_wait, is_new, memory_bytes
        self._handover, self._remedies, self._had = (
            handover,
            remedies,
            set[TopicPartition](),
        )  # those that this process has had
        self._logs: dict[TopicPartition, PreservedLog] = {}
        self._fillers: OrderedDict[TopicPartition, HoleFiller] = OrderedDict()

    def of(self, run: TargetRun, seen: set[TopicPartition], should_stop: Callable[[], bool]) -> PreservedLog:
        """The log of a partition that is ready. `seen`: partitions whose end was requested in this call of `deliver`.
        Raises RunEnded."""
        partition = run.partition
        target = self._logs.get(partition)
        if target is None or target.epoch != run.epoch:
            target = self._begun(run, should_stop)
        if not target.is_ready:
            self._await_stillness(target, run)
            seen.add(partition)
        elif partition not in seen:  # before anything is sent: what others wrote is noticed at its offset
            seen.add(partition)
            end = self._target.stable_end(partition)
            if end < target.end:
                why = f"the target has lost its records up to offset {target.end}"
                raise RunEnded(broken(run, end, why, self._remedies))
            if end > target.end:
                target.end = target.checked_from = end
        return target

    def filler(self, run: TargetRun) -> HoleFiller:
        partition = run.partition
        if partition not in self._fillers:
            self._fillers[partition] = HoleFiller(
                self._properties,
                transactional_id=self.id_of(partition),
                sample=run,
                stable_end=partial(self._target.stable_end, partition),
                memory_bytes=self._memory_bytes,
            )
        self._fillers.move_to_end(partition)
        while len(self._fillers) > OPEN_FILLERS:
            self._fillers.popitem(last=False)[1].close()
        return self._fillers[partition]

    def id_of(self, partition: TopicPartition) -> str:
        """Its transactional id."""
        return f"{self._id}.{partition.topic}.{partition.partition}"

    def quiet(self, epochs: Collection[int] | None) -> Sequence[PreservedLog]:
        """Of these ownerships, or of all, those of which nothing is on its way; they are forgotten."""
        found = [one for one in self._logs.values() if epochs is None or one.epoch in epochs]
        for one in found:
            del self._logs[one.partition]
        return [one for one in found if one.is_taken and one.is_quiet]

    def settled(self, partitions: Collection[TopicPartition]) -> None:
        """All that was sent to these is acknowledged."""
        for partition in partitions:
            if partition in self._logs:
                self._logs[partition].is_quiet = True

    def ended(self, failure: RunFailed) -> None:
        target = self._logs.get(failure.partition)
        if target is None or not target.is_ready:
            return
        if failure.kind is not FailureKind.RETRY_NOW or not target.is_quiet:
            del self._logs[failure.partition]

    def forget(self) -> None:
        """All of them: records of this process may still arrive anywhere."""
        self._logs.clear()

    def close(self) -> None:
        """May be called twice."""
        self.forget()
        while self._fillers:
            self._fillers.popitem()[1].close()

    def _begun(self, run: TargetRun, should_stop: Callable[[], bool]) -> PreservedLog:
        partition = run.partition
        self.filler(run).take_over(should_stop)
        ends, now = self._target.ends(partition), self._target.monotonic()
        still = Stillness(ends.high, now)
        wait = timedelta() if partition not in self._had and self._is_new(partition) else self._wait
        target = PreservedLog(partition, run.epoch, ends.low, ends.high, ends.high, still, wait)
        self._had.add(partition)
        self._logs[partition] = target
        return target

    def _await_stillness(self, target: PreservedLog, run: TargetRun) -> None:
        asked_at = self._target.monotonic()  # what stood still did so until then, and what moved did so by the answer
        ends = self._target.ends(target.partition)
        target.still.seen(ends.high, self._target.monotonic())
        left = target.wait - target.still.lasts(asked_at)
        if left > timedelta() and self._handover is not None:
            left_at = self._handover.left_at(self.id_of(target.partition))
            if left_at == ends.high:
                left = timedelta()
        if left > timedelta() or ends.stable != ends.high:
            raise RunEnded(taken_over(target.partition, left))
        target.low, target.end, target.checked_from = ends.low, ends.high, ends.high
        filled = run.filled
        if filled.is_mapped:  # its end may be the source's by chance
            why = f"what lies there up to the source's offset {filled.next_offset} was delivered at other offsets"
            raise RunEnded(broken(run, ends.low, why, self._remedies))
        if has_lost_its_tail(ends.high, filled.next_offset):
            why = f"the target has lost its records up to offset {filled.next_offset}"
            raise RunEnded(broken(run, ends.high, why, self._remedies))
        target.is_ready = True
