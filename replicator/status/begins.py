"""Where the archive of each partition begins, as recorded: listings show no first segments that are gone."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from formats.control.archive_begin import ArchiveBegin
from formats.errors import MalformedEvent
from formats.segment import SourcePartition
from infra.archive.begins import BeginStore


@dataclass(frozen=True, slots=True)
class SeenBegin:
    """`first`: the first offset in a segment or a recorded gap; None: there is none. `committed`: where the archive
    begins by the metadata of the group's commit; None: not known."""

    first: int | None
    committed: int | None

    @property
    def is_certain(self) -> bool:
        """Whether the archive cannot begin earlier, unless an earlier begin was recorded since."""
        return self.first is not None and self.first == self.committed


@dataclass(frozen=True, slots=True)
class RecordedBegins:
    offsets: Mapping[SourcePartition, int]
    problems: Mapping[SourcePartition, str]  # of those whose begin cannot be decoded


def recorded_begins(begins: BeginStore, seen: Mapping[SourcePartition, SeenBegin], pool: Executor) -> RecordedBegins:
    """The recorded begins of those that may begin earlier than `seen`. One listing for each archive path whose
    partitions do not all begin at 0, and one or two requests for each partition that begins elsewhere than its commit
    says, or for which a backfill recorded an earlier begin. Raises StoreUnavailable."""
    open_ones = [source for source, one in seen.items() if one.first != 0]
    paths = list(dict.fromkeys((source.region, source.path) for source in open_ones))
    listed = dict(zip(paths, pool.map(lambda path: begins.of_path(*path), paths), strict=True))
    wanted: list[SourcePartition] = []
    for source in open_ones:
        there = listed[source.region, source.path]
        is_recorded = source.partition in there.partitions and not seen[source].is_certain
        if is_recorded or source.partition in there.lowered:
            wanted.append(source)

    def read(source: SourcePartition) -> ArchiveBegin | MalformedEvent | None:
        try:
            return begins.of(source)
        except MalformedEvent as error:  # of this partition alone
            return error

    found = dict(zip(wanted, pool.map(read, wanted), strict=True))
    return RecordedBegins(
        {source: begin.offset for source, begin in found.items() if isinstance(begin, ArchiveBegin)},
        {
            source: f"where its archive begins is not known: {error}"
            for source, error in found.items()
            if isinstance(error, MalformedEvent)
        },
    )
