"""The lag of delivered partitions as text and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import TypeVar

from infra.settings.units import format_age
from replicator.status.lag import PartitionLag
from replicator.terminal.output import count_text, size_text, table

N = TypeVar("N", int, float)


def lag_table(found: Sequence[PartitionLag], *, by_partition: bool) -> str:
    """A line for each source topic and its destination, or for each partition."""
    if not found:
        return "nothing is delivered here yet"
    tail = ("behind", "of them here", "stored", "complete as of")
    if by_partition:
        head = ("source", "destination", "delivered", "source's end", *tail)
        rows = [(str(p.source), p.destination, p.next_offset, p.source_end, *_cells([p])) for p in found]
        return table(head, rows)

    def where(p: PartitionLag) -> tuple[str, str]:
        return f"{p.source.region}/{p.source.path}", p.destination

    topics = [(key, list(some)) for key, some in groupby(sorted(found, key=where), where)]
    return table(("source", "destination", "partitions", *tail), [(*key, len(p), *_cells(p)) for key, p in topics])


def _cells(some: Sequence[PartitionLag]) -> Sequence[str | None]:
    """A value that is not known of one partition is not known of them all."""
    records, seconds = _all(some, lambda p: p.records), _all(some, lambda p: p.seconds)
    return (
        None if records is None else count_text(sum(records)),
        count_text(sum(p.stored_records for p in some)),
        size_text(sum(p.stored_bytes for p in some)),
        None if seconds is None else f"{format_age(timedelta(seconds=max(seconds)))} ago",
    )


def _all(some: Sequence[PartitionLag], value: Callable[[PartitionLag], N | None]) -> Sequence[N] | None:
    found = [one for one in map(value, some) if one is not None]
    return found if len(found) == len(some) else None


def lag_json(one: PartitionLag) -> Mapping[str, object]:
    return {
        "source": str(one.source),
        "destination": one.destination,
        "next_offset": one.next_offset,
        "source_end": one.source_end,
        "records": one.records,
        "stored_records": one.stored_records,
        "stored_bytes": one.stored_bytes,
        "complete_as_of": one.complete_as_of and one.complete_as_of.isoformat(),
        "seconds": one.seconds,
    }
