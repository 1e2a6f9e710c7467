"""Brings the logs of a restore that keeps the source's offsets to where those of the source ended: behind the last
record that is restored there may be markers, and offsets whose records are gone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from formats.errors import BrokerUnavailable, WriterRefused
from formats.messages.delivery_checkpoint import Author, Checkpoint
from infra.contracts.producer import FailureKind, RunFailed, TargetRun, TargetWriter
from infra.runtime.lifecycle import Clock, Deadline, Stop
from replicator.restore.kept_offsets import log_end
from replicator.restore.progress import Done, RestoringPartition

PAUSE = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEndFiller:
    """For the thread that `writer` belongs to now."""

    writer: TargetWriter
    clock: Clock
    stop: Stop
    patience: timedelta  # for one partition, beside what filling takes

    def reach(self, partitions: Iterable[RestoringPartition]) -> None:
        """Of those that are done. One that stays behind has failed then, or is not done when this is stopped."""
        for partition in partitions:
            if partition.is_done and not partition.is_void and _position(partition) < log_end(partition.plan):
                self._reach(partition)

    def _reach(self, partition: RestoringPartition) -> None:
        run, deadline = self._run(partition), Deadline(self.patience)
        partition.ending = None
        while not self.stop.is_set():
            failed = self._delivered(run)
            if failed is None:
                partition.ending = Done()
                return
            match failed.kind:
                case FailureKind.RETRY_NOW:  # some of it is filled
                    deadline = Deadline(self.patience)
                case FailureKind.RETRY_LATER | FailureKind.UNKNOWN | FailureKind.STALLED:
                    self.stop.wait(PAUSE)
                case FailureKind.DENIED | FailureKind.REJECTED | FailureKind.DELIVER_SEPARATELY:
                    partition.fail(f"{failed.code}: {failed.reason}")
                    return
                case _:
                    assert_never(failed.kind)
            if deadline.expired:
                partition.fail(f"its log was not brought to offset {log_end(partition.plan)}: {failed.reason}")
                return

    def _delivered(self, run: TargetRun) -> RunFailed | None:
        try:
            failed = self.writer.deliver([run], should_stop=self.stop.is_set)
        except BrokerUnavailable as error:
            return RunFailed(run.partition, "UNAVAILABLE", str(error), FailureKind.UNKNOWN)
        except WriterRefused as error:  # once the right is granted, the same restore resumes
            return RunFailed(run.partition, "REFUSED", str(error), FailureKind.DENIED)
        return failed[0] if failed else None

    def _run(self, partition: RestoringPartition) -> TargetRun:
        """Without a record: the offsets up to its checkpoint are a hole."""
        target, end = partition.delivery_target, log_end(partition.plan)
        begun_at = end if partition.plan.offsets is None else target.begun_at
        checkpoint = Checkpoint(
            end,
            target.target_topic_id,
            self.clock.now(),
            Author.AT_LEAST_ONCE,
            begun_at=begun_at,
            dropped=partition.dropped,
            keeps_offsets=True,
        )
        position = _position(partition)
        return TargetRun(target.target, (), 0, 0, target.key, checkpoint, position, target.epoch, filled=target.filled)


def _position(partition: RestoringPartition) -> int:
    """Next offset up to which the log is restored."""
    if partition.plan.offsets is not None:
        return partition.next_offset
    return 0 if partition.plan.checkpoint is None else partition.plan.checkpoint.next_offset
