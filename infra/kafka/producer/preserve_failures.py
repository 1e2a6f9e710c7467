"""What becomes of a partition that keeps the source's offsets, when a run is not whole in the target."""

from __future__ import annotations

from datetime import timedelta

from formats.records.hole_rate import BEHIND, HoleBacklog
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind, RunFailed, TargetRun


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


def broken(run: TargetRun, at: int, reason: str) -> RunFailed:
    topic, source = run.partition.topic, run.key.source
    ways = (
        f"Either rebuild: delete the topic {topic}, and once it is created again set where it begins, with "
        f"`replicator checkpoints seed {source} --offset N`; or set offsets = 'map' for this source, which goes on "
        "from there at other offsets, and start this process again"
    )
    return RunFailed(run.partition, "PRESERVE_BROKEN", f"preserve broken at {at}: {reason}. {ways}", FailureKind.DENIED)


def too_long(partition: TopicPartition, hole: int, takes: timedelta) -> RunFailed:
    reason = (
        f"{hole} offsets without a record come next, which take about {takes.total_seconds():.0f} s to fill: raise "
        "ingress.preserve_hole_limit, or set offsets = 'map' for it"
    )
    return RunFailed(partition, "LONG_HOLE", reason, FailureKind.DENIED)


def too_many(partition: TopicPartition, backlog: HoleBacklog) -> RunFailed:
    reason = (
        f"the source makes more than {backlog.per_second} holes a second, such as markers of transactions, which is "
        f"what this partition is to fill: {backlog.waiting:.0f} of them would wait, more than in "
        f"{BEHIND.total_seconds() / 60:.0f} minutes are filled. Set offsets = 'map' for it; or, if this cluster fills "
        "more, raise ingress.preserve_holes_per_second; and start this process again"
    )
    return RunFailed(partition, "TOO_MANY_HOLES", reason, FailureKind.DENIED)
