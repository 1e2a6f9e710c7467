"""The state of the delivery of one archived partition, with the problems that are visible from outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from formats.coverage import Extent, end_of, joined, uncovered
from formats.messages.delivery_checkpoint import (
    Checkpoint,
    CheckpointKey,
    Parked,
    Skipped,
    Waiting,
    still_parked,
    still_waiting,
)
from formats.segment import OffsetRange
from infra.archive.proofs import Proof
from infra.contracts.cluster import TopicFacts
from ingress.undelivered import before_begin, behind_end, describe_after_end, describe_before_begin, undelivered
from replicator.status.archive import ArchivedPartition

NO_PROGRESS = timedelta(minutes=5)  # limit of the time that offsets wait without progress


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressPartition:
    key: CheckpointKey
    configured: bool  # the configuration delivers it there
    checkpoint: Checkpoint | None
    archive_start: int | None
    archive_end: int | None
    parked: Parked | None
    skipped: int  # total number of offsets given up
    is_over: bool  # delivery has switched to the topic's next incarnation
    proof: Proof | None  # of the archive in this bucket, recorded by `verify`; None: none is recorded
    problems: tuple[str, ...]
    waits_since: datetime | None = None  # since when stored offsets wait and nothing is delivered
    waits_for: str = ""  # what delivery waits for: a decision or the previous incarnation; empty: nothing
    transform: str = ""  # name of the function that its records go through; empty: none
    has_ended: bool = False  # at the source: its topic was deleted, created again, or is no longer archived
    absent: Sequence[OffsetRange] = ()  # below the archive's end, to be delivered, and neither stored nor explained

    @property
    def next_offset(self) -> int | None:
        """Of the source, to be delivered next; None: nothing was delivered."""
        return None if self.checkpoint is None else self.checkpoint.next_offset

    @property
    def dropped(self) -> int:
        """Records that transforms left out since delivery began."""
        return 0 if self.checkpoint is None else self.checkpoint.dropped

    @property
    def lag(self) -> int:
        """Archived offsets that are not delivered, including those that are refused or have to wait."""
        if self.archive_end is None or not self.configured or self.is_over:
            return 0
        done = self.checkpoint.next_offset if self.checkpoint else self.archive_start
        return max(self.archive_end - (done or 0), 0)


def partition_status(
    key: CheckpointKey,
    *,
    configured: bool,
    checkpoint: Checkpoint | None,
    conflict: str = "",
    archived: ArchivedPartition,
    gaps: Sequence[OffsetRange],
    parked: Parked | None,
    skipped: Sequence[Skipped],
    target: TopicFacts | None,
    waiting: Waiting | None = None,
    refused: str = "",
    behind: str = "",
    is_over: bool = False,
    settles_within: timedelta = timedelta(),
    members: int = 0,  # of the group
    now: datetime,
    proof: Proof | None = None,
    transform: str = "",
    has_ended: bool = False,
) -> IngressPartition:
    """The status of a partition with the problems that are visible from outside.

    `refused`: why the configuration does not deliver it, or why its destination cannot be described; `behind`: the
    archive path of the incarnation that is delivered before it. Pure.
    """
    extent, waits_since = archived.extent, archived.waits_since
    if waits_since is not None:
        waits_since = max(waits_since, checkpoint.at) if checkpoint is not None else waits_since + settles_within
    current = parked if parked is not None and still_parked(parked, checkpoint) else None
    problems = [conflict] if conflict else []
    if current is not None:
        where = "without a position" if current.next_offset is None else f"at {current.next_offset}"
        problems.append(f"parked {where} since {current.since.isoformat(timespec='seconds')}: {current.reason}")
    refused = refused if configured else ""
    if refused and (current is None or current.reason != refused):
        problems.append(refused)
    waits_for = refused or (f"the end of {behind}, the incarnation before it" if behind and configured else "")
    if checkpoint is not None and configured:
        problems += _undelivered(key, checkpoint, extent, [s.offsets for s in skipped], is_over=is_over)
    if checkpoint is not None and configured and not is_over:
        problems += _beyond_end(key, checkpoint, extent, [*gaps, *(s.offsets for s in skipped)])
    if configured and proof is not None and not proof.is_whole:
        problems.append(f"verify found its archive here not whole at {proof.at.isoformat(timespec='seconds')}")
    if configured and current is None and not is_over and not waits_for:
        if checkpoint is not None:
            waiting = waiting if waiting is not None and still_waiting(waiting, checkpoint) else None
            missing = joined([*extent.runs, *gaps]).missing_at(checkpoint.next_offset)
            if missing is not None:
                since = (
                    f"; waited for since {waiting.since.isoformat(timespec='seconds')}" if waiting is not None else ""
                )
                problems.append(f"offsets {missing} are in no segment, and no gap was recorded for them{since}")
        if checkpoint and target and _is_other(checkpoint.destination_topic_id, target.topic_id):
            problems.append(
                f"{target.name} was created again: its id is {target.topic_id}, the checkpoint's is "
                f"{checkpoint.destination_topic_id}"
            )
        if target is not None and key.source.partition >= target.partition_count:
            problems.append(
                f"{target.name} has {target.partition_count} partitions; add partitions, at least "
                f"{key.source.partition + 1}"
            )
        if not problems and members and waits_since is not None and now - waits_since >= NO_PROGRESS:
            problems.append(
                f"nothing was delivered since {waits_since.isoformat(timespec='seconds')}, although offsets wait and "
                "the group has members: /readyz of its owner, or its log, says why"
            )
    return IngressPartition(
        key=key,
        configured=configured,
        checkpoint=checkpoint,
        archive_start=extent.start,
        archive_end=extent.next_offset,
        parked=current,
        skipped=sum(s.offsets.count for s in skipped),
        is_over=is_over,
        proof=proof,
        problems=tuple(problems),
        waits_since=waits_since,
        waits_for=waits_for,
        transform=transform if configured else "",
        has_ended=has_ended,
        absent=_absent(checkpoint, extent, [*gaps, *(s.offsets for s in skipped)]),
    )


def _absent(checkpoint: Checkpoint | None, extent: Extent, explained: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
    """`explained`: gaps and skipped offsets."""
    if extent.start is None or extent.next_offset is None:
        return ()
    begin = extent.start if checkpoint is None else checkpoint.next_offset
    end = extent.next_offset - 1
    return uncovered([*extent.runs, *explained], OffsetRange(begin, end)) if begin <= end else ()


def _undelivered(
    key: CheckpointKey, checkpoint: Checkpoint, extent: Extent, given_up: Sequence[OffsetRange], *, is_over: bool
) -> Iterator[str]:
    """Problems of segments stored at offsets that delivery does not reach any more."""
    source, destination = key.source, key.destination_topic
    if left := undelivered(before_begin(checkpoint.begun_at), extent.runs, given_up):
        yield describe_before_begin(source, destination, checkpoint.begun_at or 0, left)
    if is_over and (left := undelivered(behind_end(checkpoint.next_offset), extent.runs, given_up)):
        yield describe_after_end(source, destination, left)


def _beyond_end(
    key: CheckpointKey, checkpoint: Checkpoint, extent: Extent, explained: Sequence[OffsetRange]
) -> Iterator[str]:
    """The problem of a position that delivery from this archive cannot reach.

    Without a segment the end is not known: retention may remove the last one, too. `explained`: gaps and skipped
    offsets, after which delivery continues.
    """
    end = end_of([*extent.runs, *explained])
    if extent.runs and checkpoint.next_offset > end:
        yield (
            f"the checkpoint, {checkpoint.next_offset}, lies beyond the end of the archive, {end}: records that are "
            "archived between the two from now on are not delivered. Unless it was taken over from another replicator, "
            "and the archive has yet to reach it: stop ingress and seed the position, "
            f"`replicator checkpoints seed {key.source} --offset {end}` or a smaller offset; if the archive lost its "
            "last objects, restore those"
        )


def _is_other(then: str, now: str) -> bool:
    return bool(then) and bool(now) and then != now
