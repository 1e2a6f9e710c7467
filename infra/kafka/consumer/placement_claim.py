"""Partitions that a command holds in the workers' group, so that no worker delivers to them meanwhile.

    join ──> given all of them ──> nothing of an owner before is pending ──> held: the caller writes ──> leave
               └ somebody else is there, or comes first: TargetError, nothing is written

A worker that starts meanwhile gets them only when they were given up here, and asks for its position after that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

from formats.errors import BrokerUnavailable, TargetError
from infra.contracts.cluster import TopicPartition
from infra.kafka.consumer.placement import KafkaPlacement
from infra.runtime.lifecycle import Deadline

TURN = timedelta(milliseconds=100)
LEAVE = timedelta(seconds=10)


class KafkaClaim:
    """`held` may be used again."""

    def __init__(
        self, properties: Mapping[str, str], *, group_id: str, within: timedelta = timedelta(seconds=30)
    ) -> None:
        """`properties`: of the workers' consumer. Under a worker's `group.instance.id` this would push it out."""
        self._properties = {name: value for name, value in properties.items() if name != "group.instance.id"}
        self._group_id = group_id
        self._within = within

    @contextmanager
    def held(self, partitions: Collection[TopicPartition]) -> Iterator[None]:
        """Raises TargetError when the group does not give all of them, BrokerUnavailable when it cannot be said, or
        when they were lost before the end: then look at what was written."""
        wanted = set(partitions)
        placement, losses = KafkaPlacement(self._properties, group_id=self._group_id), _Losses()
        try:
            self._join(placement, wanted, losses)
            placement.settled(wanted)
            yield  # nothing is polled, so nothing is given up: what goes, goes because the session or the poll ran out
            placement.poll(timedelta())
            if losses.seen:
                raise BrokerUnavailable(f"group {self._group_id} took partitions away while they were written to")
        finally:
            placement.close(LEAVE)

    def _join(self, placement: KafkaPlacement, wanted: set[TopicPartition], losses: _Losses) -> None:
        placement.subscribe({p.topic for p in wanted}, losses)
        deadline = Deadline(self._within)
        while not wanted <= placement.assignment():
            if deadline.expired:
                given = ", ".join(map(str, sorted(placement.assignment()))) or "nothing"
                raise TargetError(
                    f"group {self._group_id} gave {given} of {', '.join(map(str, sorted(wanted)))} within "
                    f"{self._within}: has ingress been started meanwhile? Stop it first"
                )
            placement.poll(TURN)


class _Losses:
    """A listener that only notes whether something went without being given up."""

    def __init__(self) -> None:
        self.seen = False

    def assigned(self, partitions: Collection[TopicPartition]) -> None: ...

    def revoked(self, partitions: Collection[TopicPartition]) -> None: ...

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        self.seen |= bool(partitions)
