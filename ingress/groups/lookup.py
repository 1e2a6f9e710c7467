"""Translates offsets of deliveries by the offset map, as far as it is read and the destinations are known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from formats.errors import CheckpointConflict, ReplicatorError
from formats.incarnation import Incarnation
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.messages.map_key import MapKey
from formats.messages.offset_map import MapPage
from formats.messages.offset_map_index import PageIndex
from formats.segment import SourcePartition
from infra.contracts.catalog import LogEndReader
from infra.contracts.cluster import ClusterAdmin, LogEnds, TopicPartition, describe_each
from infra.contracts.internal_topics import OffsetMapLog, PartitionPages
from ingress.groups.forked import ForkedMap
from ingress.groups.preserved import PreservedOffsets
from ingress.groups.translation import DeliveredRange, PartitionMap, Translation

DeliveryPositions = Mapping[CheckpointKey, Checkpoint | CheckpointConflict]
OpenedMap = PartitionMap | PreservedOffsets | ForkedMap


class NotKnownNow(str):
    """Why nothing is known of a delivery, where a later question may be answered."""

    __slots__ = ()


class NoPages:
    """A PartitionPages of a partition without any record yet."""

    def __init__(self) -> None:
        self.index = PageIndex()

    def page(self, number: int) -> MapPage:
        raise IndexError(number)

    def record(self, number: int) -> tuple[bytes, bytes]:
        raise IndexError(number)


@dataclass(slots=True)
class MapLookup:
    """For one thread, and one round: what it was given does not change. `maps` is read after `ends` and `positions`, so
    it has every record that they know of."""

    maps: Mapping[MapKey, PartitionPages]
    positions: DeliveryPositions
    ends: Mapping[TopicPartition, LogEnds | ReplicatorError]
    topic_ids: Mapping[str, str]  # of the destinations, by name; empty where brokers have none
    preserved: Collection[str] = frozenset()  # destinations that keep the source's offsets
    hidden: Mapping[str, str] = field(default_factory=dict)  # destinations that are not known to be there, and why
    forked: Mapping[tuple[str, str], Incarnation] = field(default_factory=dict)  # see `archived.forked_from`
    _partitions: dict[CheckpointKey, OpenedMap | str] = field(default_factory=dict)

    def target_of(self, key: CheckpointKey, source: int) -> Translation | str:
        """Where a source offset of this delivery is; or why nothing is known of the delivery."""
        found = self.partition(key)
        return found if isinstance(found, str) else found.target_of(source)

    def targets_of(self, key: CheckpointKey, sources: Iterable[int]) -> Sequence[Translation] | str:
        """The same for many; ascending is quickest by far."""
        found = self.partition(key)
        return found if isinstance(found, str) else found.targets_of(sources)

    def ends_before(self, target: TopicPartition, offset: int) -> bool:
        """Whether its log is known to end before `offset`: what had that offset was in another incarnation of it."""
        ends = self.ends.get(target)
        return isinstance(ends, LogEnds) and ends.high < offset

    def partition(self, key: CheckpointKey) -> OpenedMap | str:
        if key not in self._partitions:
            self._partitions[key] = self._opened(key)
        return self._partitions[key]

    def path_of(self, key: CheckpointKey, source: int) -> CheckpointKey:
        """The delivery that has this source offset: `key`, or that of a path before a fork."""
        before, opened = self._forked_from(key), self.partition(key)
        if before is None or (isinstance(opened, ForkedMap) and opened.is_after(source)):
            return key
        return self.path_of(before, source)

    def last_record(self, key: CheckpointKey) -> tuple[int, int] | None:
        """Offsets at source and target of the last record that was delivered; None when the map has none."""
        pages = self._pages(key)
        if pages is None or not len(pages.index):
            return None
        runs = pages.page(len(pages.index) - 1).runs
        count = runs.count[-1].as_py()
        return runs.source[-1].as_py() + count - 1, runs.target[-1].as_py() + count - 1

    def _pages(self, key: CheckpointKey) -> PartitionPages | None:
        checkpoint = self.positions.get(key)
        if not isinstance(checkpoint, Checkpoint):
            return None
        return self.maps.get(MapKey(key, checkpoint.destination_topic_id))

    def _opened(self, key: CheckpointKey) -> OpenedMap | str:
        """With the path before the fork, where this one begins after one, and both were delivered there."""
        before = self._forked_from(key)
        if before is None:
            return self._of_path(key)
        earlier = self.partition(before)
        if key not in self.positions:
            return earlier
        own, checkpoint = self._of_path(key), self.positions[key]
        if not isinstance(own, PartitionMap) or not isinstance(checkpoint, Checkpoint):
            return own
        return earlier if isinstance(earlier, str) else self._across_fork(before, earlier, own, checkpoint)

    def _forked_from(self, key: CheckpointKey) -> CheckpointKey | None:
        """What is in this incarnation of the destination of the path before the fork; None: nothing, or no fork."""
        source = key.source
        incarnation = self.forked.get((source.region, source.path))
        if incarnation is None:
            return None
        before = CheckpointKey(SourcePartition.of(source.region, incarnation, source.partition), key.destination_topic)
        found = self.positions.get(before)
        if found is None or (isinstance(found, Checkpoint) and self._is_of_another(found, key.destination_topic)):
            return None
        return before

    def _across_fork(
        self, before: CheckpointKey, earlier: OpenedMap, own: PartitionMap, checkpoint: Checkpoint
    ) -> ForkedMap:
        last = self.positions[before]
        begins = [one for one in (checkpoint.begun_at, own.first_position) if one is not None]
        begin = min(begins, default=checkpoint.next_offset)
        return ForkedMap(
            before=earlier,
            after=own,
            begin=begin,
            first_target=own.first_target,
            has_contested=isinstance(last, Checkpoint) and last.next_offset > begin,
        )

    def _is_of_another(self, checkpoint: Checkpoint, destination: str) -> bool:
        """Whether it is about another incarnation of its destination."""
        here = self.topic_ids.get(destination, "")
        return bool(here) and checkpoint.destination_topic_id not in ("", here)

    def _of_path(self, key: CheckpointKey) -> PartitionMap | PreservedOffsets | str:
        if key.destination_topic in self.hidden:
            return NotKnownNow(f"{key.destination_topic}: {self.hidden[key.destination_topic]}")
        checkpoint = self.positions.get(key)
        if checkpoint is None:
            return "nothing of the partition was delivered yet"
        if isinstance(checkpoint, CheckpointConflict):
            return str(checkpoint)
        if self._is_of_another(checkpoint, key.destination_topic):
            return NotKnownNow(
                f"{key.destination_topic} was created again, and nothing of the partition was delivered to it yet"
            )
        target = TopicPartition(key.destination_topic, key.source.partition)
        ends = self.ends.get(target)
        if not isinstance(ends, LogEnds) or ends.low > ends.high:  # cut between two requests
            why = f" ({ends})" if isinstance(ends, ReplicatorError) else ""
            return NotKnownNow(f"{target}: its offsets are not known{why}")
        pages = self._pages(key) or NoPages()
        delivered = DeliveredRange(
            log_start=ends.low, log_end=ends.high, applied=checkpoint.next_offset, begun_at=checkpoint.begun_at
        )
        if key.destination_topic not in self.preserved:
            return PartitionMap(pages, delivered)
        if _has_other_offsets(pages):
            return (
                f"{target} was filled before offsets = 'preserve' was set, and its records have other offsets than at "
                "the source. Set it back to 'map', or deliver to another topic"
            )
        return PreservedOffsets(delivered)


def _has_other_offsets(pages: PartitionPages) -> bool:
    """Whether the map of a destination says so, by its first page, which has what was there before the setting, or its
    last one."""
    numbers = {0, len(pages.index) - 1} if len(pages.index) else set()
    runs = (pages.page(number).runs for number in numbers)
    return any(not one.source.equals(one.target) for one in runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapReader:
    """Opens a lookup as of now. Use from one thread."""

    offset_map: OffsetMapLog
    ends: LogEndReader
    admin: ClusterAdmin

    def open(
        self,
        destinations: Collection[str],
        positions: DeliveryPositions,
        *,
        preserved: Collection[str] = (),
        forked: Mapping[tuple[str, str], Incarnation] = MappingProxyType({}),
    ) -> MapLookup:
        """Of the destinations that exist. `positions`: all checkpoints. `preserved`: destinations that keep the
        source's offsets. `forked`: see `ingress.routing.archived.forked_from`. Raises BrokerUnavailable, and
        TargetError when the map may not be read."""
        here = {key: one for key, one in positions.items() if key.destination_topic in destinations}
        ends = log_ends_of(self.ends, here.keys())
        maps = self.offset_map.read()  # after the ends: it has all that they know of
        # last: what was read of a destination that was created again meanwhile is not taken for the new one's
        names = {key.destination_topic for key in here}
        facts, refused = describe_each(self.admin, sorted(names))
        known = {key: one for key, one in here.items() if key.destination_topic in facts}
        ids = {name: one.topic_id for name, one in facts.items()}
        hidden = {name: str(refused.get(name, "it does not exist now")) for name in names - facts.keys()}
        return MapLookup(maps, known, ends, ids, frozenset(preserved), hidden, forked)


def log_ends_of(
    reader: LogEndReader, keys: Collection[CheckpointKey]
) -> Mapping[TopicPartition, LogEnds | ReplicatorError]:
    """Of the destinations of these deliveries. Raises BrokerUnavailable."""
    return reader.log_ends(sorted({TopicPartition(key.destination_topic, key.source.partition) for key in keys}))
