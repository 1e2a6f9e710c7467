"""Offsets of the source's partitions now: ends of their logs, and how far each is archived.

Needs DESCRIBE on the topics, and READ on the egress group, without which nothing is archived either. A right that is
missing, or a partition without a leader, leaves out what depends on it, and the watermarks say so.

    topics ─> positions ─> ends ─> settled_at ─> ends of what may be settled ─> topics again

`egress.catalog.settlement` says what the second collection of ends proves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from egress.catalog.observer import SelectedTopics, first_of
from egress.catalog.settlement import may_be_settled, settled_partitions
from egress.start.commit_metadata import read_commit_metadata
from formats.control.watermarks import SourceWatermarks, TopicWatermarks
from formats.errors import ReplicatorError, TargetError
from formats.incarnation import Incarnation
from infra.contracts.catalog import LogEndReader, TopicShape
from infra.contracts.cluster import Committed, LogEnds, TopicPartition
from infra.runtime.lifecycle import Clock
from infra.runtime.log_fields import ERROR

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatermarkObserver:
    """Blocks: use from a thread of its own."""

    topics: SelectedTopics
    ends: LogEndReader
    committed: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Committed]]  # of the egress group
    writer: str
    clock: Clock

    def observe(self, _before: SourceWatermarks | None, now: datetime) -> SourceWatermarks:
        """Raises BrokerUnavailable, and TargetError when the topics may not be described."""
        cluster_id = self.topics.admin.cluster_id()
        shapes = self.topics.shapes()
        partitions = [TopicPartition(name, n) for name, shape in shapes.items() for n in range(shape.partitions)]
        committed, no_positions = self._positions(partitions)  # first, so that none is beyond a high watermark
        positions = {p: one for p, one in committed.items() if _is_of(one, shapes[p.topic])}
        answers = dict(self.ends.log_ends(partitions))
        settled_at = self.clock.now()  # after the first collection, and before the second
        settled = self._settled(answers, shapes)
        ends = {p: answer for p, answer in answers.items() if isinstance(answer, LogEnds)}
        refused = {str(p): answer for p, answer in answers.items() if isinstance(answer, ReplicatorError)}
        problems = {"position": no_positions} if no_positions else {}
        if refused:
            problems["offsets"] = first_of(refused, "partitions")
        return SourceWatermarks(
            cluster_id=cluster_id,
            writer=self.writer,
            observed_at=now,
            topics={name: _columns(shape, ends, positions, settled) for name, shape in shapes.items()},
            problems=problems,
            settled_at=settled_at if settled else None,
        )

    def _settled(
        self, answers: dict[TopicPartition, LogEnds | ReplicatorError], shapes: Mapping[str, TopicShape]
    ) -> frozenset[TopicPartition]:
        """The settled partitions; `answers` gets their later ends. Not knowing them is no failure."""
        try:
            lows = {partition: ends.low for partition, ends in answers.items() if isinstance(ends, LogEnds)}
            again = self.ends.log_ends(may_be_settled(answers), lows)
            settled = settled_partitions(answers, again)
            # a topic that was created again meanwhile has another log
            still = self.topics.shapes_of({one.topic for one in settled}) if settled else {}
        except ReplicatorError as error:
            log.info("settlement_not_known", extra={ERROR: str(error)})
            return frozenset()
        answers |= {partition: ends for partition, ends in again.items() if isinstance(ends, LogEnds)}
        return frozenset(one for one in settled if still.get(one.topic) == shapes[one.topic])

    def _positions(self, partitions: Collection[TopicPartition]) -> tuple[Mapping[TopicPartition, Committed], str]:
        """The positions, or why there are none."""
        try:
            return self.committed(partitions), ""
        except TargetError as error:
            return {}, str(error)


def _is_of(committed: Committed, shape: TopicShape) -> bool:
    """Whether the commit is for this topic, as far as it says: not for an earlier one of this name."""
    metadata = read_commit_metadata(committed)
    if metadata is None or not metadata.incarnation_id or not shape.topic_id:
        return True
    return Incarnation(shape.name, metadata.incarnation_id).topic_id == shape.topic_id


def _columns(
    shape: TopicShape,
    ends: Mapping[TopicPartition, LogEnds],
    positions: Mapping[TopicPartition, Committed],
    settled: Collection[TopicPartition],
) -> TopicWatermarks:
    partitions = [TopicPartition(shape.name, n) for n in range(shape.partitions)]
    known = [ends.get(p) for p in partitions]
    return TopicWatermarks(
        topic_id=shape.topic_id,
        low=tuple(None if one is None else one.low for one in known),
        high=tuple(None if one is None else one.high for one in known),
        stable=tuple(None if one is None else one.stable for one in known),
        position=tuple(positions[p].next_offset if p in positions else None for p in partitions),
        settled=frozenset(p.partition for p in partitions if p in settled),
    )
