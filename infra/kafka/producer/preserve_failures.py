"""What becomes of a partition that keeps the source's offsets, when a run is not whole in the target."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from confluent_kafka import KafkaError

from formats.records.hole_rate import BEHIND, HoleBacklog
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, RunFailed, TargetRun

EXPIRED = KafkaError(KafkaError._MSG_TIMED_OUT).name()


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedies:
    """What an operator does, as text. `{topic}` stands for the destination, `{source}` for the source partition."""

    broken: str
    long_hole: str


OF_INGRESS = Remedies(
    broken="Either rebuild: delete the topic {topic}, and once it is created again set where it begins, with "
    "`replicator checkpoints seed {source} --offset N`; or set offsets = 'map' for this source, which goes on from "
    "there at other offsets, and start this process again",
    long_hole="raise ingress.preserve_hole_limit, or set offsets = 'map' for it",
)


class RunEnded(Exception):
    """The partition's part of a call of `deliver` ends here."""

    def __init__(self, failure: RunFailed) -> None:
        super().__init__(failure.reason)
        self.failure = failure


def taken_over(partition: TopicPartition, left: timedelta) -> RunFailed:
    reason = f"taken over: records of an earlier owner may still arrive for {max(left.total_seconds(), 0):.1f} s"
    return RunFailed(partition, "TAKEN_OVER", reason, FailureKind.RETRY_LATER)


def moved(partition: TopicPartition, expected: int, lies: int) -> RunFailed:
    """The next attempt compares the log with the source, and says where they differ first."""
    where = "records of others are in between" if lies == expected else f"it got {lies}"
    reason = f"offset {expected} is expected next, and {where}"
    return RunFailed(partition, "MOVED", reason, FailureKind.RETRY_LATER)


def unfinished(partition: TopicPartition, reason: str) -> RunFailed:
    return RunFailed(partition, "UNFINISHED", reason, FailureKind.RETRY_NOW)


def leaderless(partition: TopicPartition, reason: str) -> RunFailed:
    """Where its log ends is not known, and the others are not to wait for it."""
    return RunFailed(partition, "STALLED", f"{reason}: does the partition lack a leader?", FailureKind.STALLED)


def not_acknowledged(partition: TopicPartition, reason: str) -> RunFailed:
    why = f"{reason}: does the partition lack a leader, or replicas (min.insync.replicas)?"
    return RunFailed(partition, "STALLED", why, FailureKind.STALLED)


def expired(failure: RunFailed) -> RunFailed:
    """Each attempt waits as long again, and so would the others in the same call."""
    return not_acknowledged(failure.partition, f"{failure.code}: {failure.reason}")


def not_to_be_read(partition: TopicPartition, reason: str) -> RunFailed:
    """What lies in its log is not known, and nothing may follow it."""
    return RunFailed(partition, "NOT_READABLE", reason, FailureKind.DENIED)


def broken(run: TargetRun, at: int, reason: str, remedies: Remedies) -> RunFailed:
    ways = remedies.broken.format(topic=run.partition.topic, source=run.key.source)
    return RunFailed(run.partition, "PRESERVE_BROKEN", f"preserve broken at {at}: {reason}. {ways}", FailureKind.DENIED)


def too_long(run: TargetRun, hole: int, takes: timedelta, remedies: Remedies) -> RunFailed:
    remedy = remedies.long_hole.format(topic=run.partition.topic, source=run.key.source)
    reason = (
        f"{hole} offsets without a record come next, which take about {takes.total_seconds():.0f} s to fill: {remedy}"
    )
    return RunFailed(run.partition, "LONG_HOLE", reason, FailureKind.DENIED)


def too_many(partition: TopicPartition, backlog: HoleBacklog) -> RunFailed:
    reason = (
        f"the source makes more than {backlog.per_second} holes a second, such as markers of transactions, which is "
        f"what this partition is to fill: {backlog.waiting:.0f} of them would wait, more than in "
        f"{BEHIND.total_seconds() / 60:.0f} minutes are filled. Set offsets = 'map' for it; or, if this cluster fills "
        "more, raise ingress.preserve_holes_per_second; and start this process again"
    )
    return RunFailed(partition, "TOO_MANY_HOLES", reason, FailureKind.DENIED)
