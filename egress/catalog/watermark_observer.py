"""Offsets of the source's partitions now: ends of their logs, and how far each is archived.

Needs DESCRIBE on the topics, and READ on the egress group, without which nothing is archived either. A right that is
missing, or a partition without a leader, leaves out what depends on it, and the watermarks say so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from egress.catalog.observer import SelectedTopics, first_of
from formats.control.watermarks import SourceWatermarks, TopicWatermarks
from formats.errors import ReplicatorError, TargetError
from infra.contracts.catalog import LogEndReader, TopicShape
from infra.contracts.cluster import Committed, LogEnds, TopicPartition


@dataclass(frozen=True, slots=True)
class WatermarkObserver:
    """Blocks: use from a thread of its own."""

    topics: SelectedTopics
    ends: LogEndReader
    committed: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Committed]]  # of the egress group
    writer: str

    def observe(self, _before: SourceWatermarks | None, now: datetime) -> SourceWatermarks:
        """Raises BrokerUnavailable, and TargetError when the topics may not be described."""
        cluster_id = self.topics.admin.cluster_id()
        shapes = self.topics.shapes()
        partitions = [TopicPartition(name, n) for name, shape in shapes.items() for n in range(shape.partitions)]
        positions, no_positions = self._positions(partitions)  # first, so that none is beyond a high watermark
        answers = self.ends.log_ends(partitions)
        ends = {p: answer for p, answer in answers.items() if isinstance(answer, LogEnds)}
        refused = {str(p): answer for p, answer in answers.items() if isinstance(answer, ReplicatorError)}
        problems = {"position": no_positions} if no_positions else {}
        if refused:
            problems["offsets"] = first_of(refused, "partitions")
        return SourceWatermarks(
            cluster_id=cluster_id,
            writer=self.writer,
            observed_at=now,
            topics={name: _columns(shape, ends, positions) for name, shape in shapes.items()},
            problems=problems,
        )

    def _positions(self, partitions: Collection[TopicPartition]) -> tuple[Mapping[TopicPartition, Committed], str]:
        """The positions, or why there are none."""
        try:
            return self.committed(partitions), ""
        except TargetError as error:
            return {}, str(error)


def _columns(
    shape: TopicShape, ends: Mapping[TopicPartition, LogEnds], positions: Mapping[TopicPartition, Committed]
) -> TopicWatermarks:
    partitions = [TopicPartition(shape.name, n) for n in range(shape.partitions)]
    known = [ends.get(p) for p in partitions]
    return TopicWatermarks(
        topic_id=shape.topic_id,
        low=tuple(None if one is None else one.low for one in known),
        high=tuple(None if one is None else one.high for one in known),
        stable=tuple(None if one is None else one.stable for one in known),
        position=tuple(positions[p].next_offset if p in positions else None for p in partitions),
    )
