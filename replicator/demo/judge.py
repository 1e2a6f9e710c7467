"""Compares source, archive and target of each partition, as `replicator verify` does.

    archive alone         every object is decoded; no offset is missing
    archive = topic a     the same records at the same offsets
    topic a = topic b     the same records, at any offsets

Records are compared, and their digests are computed from the records that were read: no checkpoint and no footer of the
services is trusted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats.footer import STREAMS, Digest
from formats.records.align import StreamRead
from formats.records.digest import digest_of
from formats.segment import SourcePartition

if TYPE_CHECKING:
    from replicator.config import Config
    from replicator.verify.verifier import ArchiveVerdict, TargetVerdict
    from replicator.verify.verify import Verification

UNREAD = StreamRead(digest=digest_of(()), first_offset=None, last_offset=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionVerdict:
    """One partition in source, archive and target."""

    partition: int
    alone: ArchiveVerdict
    archived: TargetVerdict  # the archive, and the source topic
    delivered: TargetVerdict  # the source topic, and the target topic

    @property
    def source(self) -> StreamRead:
        if self.delivered.result is not None:
            return self.delivered.result.first
        return self.archived.result.second if self.archived.result is not None else UNREAD

    @property
    def archive(self) -> StreamRead:
        return self.archived.result.first if self.archived.result is not None else UNREAD

    @property
    def target(self) -> StreamRead:
        return self.delivered.result.second if self.delivered.result is not None else UNREAD

    @property
    def differences(self) -> tuple[str, ...]:
        """Differences from the source, the most informative first. Offsets may differ in the target, but not in the
        archive."""
        return (
            *(f"archive: {what}" for what in self._archive_differences()),
            *(f"target: {what}" for what in self._target_differences()),
        )

    @property
    def equal(self) -> bool:
        return not self.differences

    def _archive_differences(self) -> Iterator[str]:
        yield from (f"offsets {gap} missing" for gap in self.alone.missing)
        yield from (f"corrupt segment {segment}: {why}" for segment, why in self.alone.corrupt.items())
        yield from self.alone.disagreeing
        yield from (f"the source's log forked at {fork.contested}" for fork in self.alone.forks)
        if (result := self.archived.result) is None:
            yield self.archived.unreadable
        else:
            yield from differences(result.second, result.first)

    def _target_differences(self) -> Iterator[str]:
        if (result := self.delivered.result) is None:
            yield self.delivered.unreadable
        else:
            yield from differences(result.first, result.second, ignored="offset")


def differences(wanted: StreamRead, found: StreamRead, *, ignored: str = "") -> Iterator[str]:
    """How `found` differs from `wanted`. `ignored`: a column stream that may differ."""
    if found.count != wanted.count:
        missing = wanted.count - found.count
        yield f"{abs(missing):,} record(s) {'missing' if missing > 0 else 'too many'}"
    elif streams := [name for name in differing(wanted.digest, found.digest) if name != ignored]:
        yield f"{', '.join(streams)} differ"


def differing(wanted: Digest, found: Digest) -> list[str]:
    """Names (of `STREAMS`) of the column streams that are not equal."""
    return [name for name, a, b in zip(STREAMS, wanted.streams, found.streams, strict=True) if a != b]


def judge(
    verification: Verification, sources: Collection[SourcePartition], source: Config, target: Config, copy: str
) -> tuple[PartitionVerdict, ...]:
    """One verdict for each of `sources`. `source` and `target`: the configurations with the two clusters; `copy`: the
    topic's name in the target. Raises StoreUnavailable, BrokerUnavailable."""

    def verdict(partition: SourcePartition) -> PartitionVerdict:
        return PartitionVerdict(
            partition=partition.partition,
            alone=verification.archived_whole(partition, {}, None),
            archived=verification.same_as_target(partition, source, partition.topic),
            delivered=verification.source_as_target(partition, source, target, copy),
        )

    return tuple(verification.each(verdict, of=sources))
