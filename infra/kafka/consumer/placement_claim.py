"""Assigns partitions to a command in the workers' group, so that no worker delivers to them meanwhile.

    join ──> all are assigned ──> no earlier owner has a pending transaction ──> the caller writes ──> leave
               └ another member has, or gets, some of them: TargetError, nothing is written

A worker that starts meanwhile is assigned them only after the command has released them, and looks its position up
after that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

from formats.errors import BrokerUnavailable, TargetError
from infra.contracts.cluster import TopicPartition
from infra.kafka.consumer.placement import KafkaPlacement
from infra.runtime.lifecycle import Deadline

POLL_TIMEOUT = timedelta(milliseconds=100)
CLOSE_TIMEOUT = timedelta(seconds=10)


class KafkaClaim:
    """`hold` may be called more than once."""

    def __init__(
        self, properties: Mapping[str, str], *, group_id: str, within: timedelta = timedelta(seconds=30)
    ) -> None:
        """`properties`: those of the workers' consumer. `group.instance.id` is dropped: a member with a worker's id
        would fence that worker. `within`: time limit for the assignment."""
        self._properties = {name: value for name, value in properties.items() if name != "group.instance.id"}
        self._group_id = group_id
        self._within = within

    @contextmanager
    def hold(self, partitions: Collection[TopicPartition]) -> Iterator[None]:
        """Hold `partitions` within the block.

        Raises TargetError when the group does not assign all of them, and BrokerUnavailable when that is unknown, or
        when partitions were lost before the end of the block: then check what was written."""
        wanted = set(partitions)
        placement, losses = KafkaPlacement(self._properties, group_id=self._group_id), _Losses()
        try:
            self._join(placement, wanted, losses)
            placement.wait_until_settled(wanted)
            yield  # without polling nothing is revoked: partitions are lost only when the session or the poll times out
            placement.poll(timedelta())
            if losses.seen:
                raise BrokerUnavailable(f"group {self._group_id} took partitions away while they were written to")
        finally:
            placement.close(CLOSE_TIMEOUT)

    def _join(self, placement: KafkaPlacement, wanted: set[TopicPartition], losses: _Losses) -> None:
        placement.subscribe({p.topic for p in wanted}, losses)
        deadline = Deadline(self._within)
        while not wanted <= placement.assignment():
            if deadline.expired:
                assigned = ", ".join(map(str, sorted(placement.assignment()))) or "nothing"
                raise TargetError(
                    f"group {self._group_id} gave {assigned} of {', '.join(map(str, sorted(wanted)))} within "
                    f"{self._within}: has ingress been started meanwhile? Stop it first"
                )
            placement.poll(POLL_TIMEOUT)


class _Losses:
    """A listener that records only whether partitions were lost."""

    def __init__(self) -> None:
        self.seen = False

    def assigned(self, partitions: Collection[TopicPartition]) -> None: ...

    def revoked(self, partitions: Collection[TopicPartition]) -> None: ...

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        self.seen |= bool(partitions)
