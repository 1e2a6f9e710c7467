"""What all control objects have in common: how one is read, and which partitions have one of a kind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from formats.control.keys import control_prefix
from formats.errors import MalformedEvent, MalformedKey
from formats.incarnation import parse_incarnation
from formats.segment import SourcePartition, partition_number
from infra.contracts.storage import ObjectStore


def read_object(objects: ObjectStore, key: str) -> bytes:
    """Raises SegmentNotFound, and the store's other errors."""
    with closing(objects.open(key)) as file:
        return file.read()


def sources_of(
    objects: ObjectStore, prefix: str, region: str, kind: str, path: str | None
) -> Sequence[SourcePartition]:
    """Partitions of `region`, or of one archive path in it, with a control object of this kind, by one listing; foreign
    keys are left out."""
    folder = f"{control_prefix(prefix, region)}{kind}/"
    listed = objects.list(folder if path is None else f"{folder}{path}/")
    return _sources(region, (item.key[len(folder) :] for item in listed))


def few_sources(
    objects: ObjectStore, prefix: str, region: str, kind: str, most: int
) -> frozenset[SourcePartition] | None:
    """As `sources_of` of all archive paths; None when the listing has `most` objects or more."""
    folder = f"{control_prefix(prefix, region)}{kind}/"
    names = [item.key[len(folder) :] for item in objects.list(folder, limit=most)]
    return None if len(names) == most else frozenset(_sources(region, names))


@contextlib.contextmanager
def naming(key: str) -> Iterator[None]:
    """Adds the object's key to MalformedEvent: an operator who restores the object needs it."""
    try:
        yield
    except MalformedEvent as error:
        raise MalformedEvent(f"{key}: {error}") from error


def _sources(region: str, names: Iterable[str]) -> Sequence[SourcePartition]:
    """The partitions of control objects, by their names below the folder of a kind; foreign ones are left out."""
    found = {tuple(name.split("/")[:2]) for name in names}
    sources = []
    for parts in sorted(found):
        if len(parts) == 2 and (number := partition_number(parts[1])) is not None:
            with contextlib.suppress(MalformedKey):
                sources.append(SourcePartition.of(region, parse_incarnation(parts[0]), number))
    return sources
