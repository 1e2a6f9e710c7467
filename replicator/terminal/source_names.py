"""Source names as users write them: REGION/TOPIC/PARTITION; some commands accept them without the partition."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from formats.messages.delivery_checkpoint import CheckpointKey
    from formats.segment import OffsetRange, SourcePartition
    from replicator.config import IngressSettings
    from replicator.selection import SourceName


def source_name(text: str) -> SourceName:
    """Raises typer.BadParameter."""
    from formats.incarnation import parse_incarnation
    from replicator.selection import SourceName

    region, _, rest = text.partition("/")
    path, slash, number = rest.partition("/")
    try:
        if slash and not number.isdecimal():
            raise ValueError(f"not a partition number: {number!r}")
        name = SourceName(region=region, incarnation=parse_incarnation(path), partition=int(number) if slash else None)
        name.at(name.partition or 0)  # raises ValueError for an illegal name
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not REGION/TOPIC or REGION/TOPIC/PARTITION: {error}") from error
    return name


def one_partition(text: str) -> SourcePartition:
    """Raises typer.BadParameter."""
    name = source_name(text)
    if name.partition is None:
        raise typer.BadParameter(f"{text!r} names no partition: write {text}/0, or another number")
    return name.at(name.partition)


def offset_range(text: str) -> OffsetRange:
    """Raises typer.BadParameter."""
    from formats.segment import OffsetRange

    start, _, end = text.partition("-")
    try:
        return OffsetRange(int(start), int(end or start))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} are no offsets: write A-B, both included") from error


def destination_of(settings: IngressSettings, name: SourceName, given: str | None) -> str:
    """The destination topic. Raises typer.BadParameter when neither the user nor the configuration names it."""
    if given:
        return given
    source = settings.source_of(name.region, name.incarnation.topic)
    if source is None:
        topic = f"{name.region}/{name.incarnation.topic}"
        raise typer.BadParameter(f"no [[ingress.sources]] delivers {topic}: name a topic with --to")
    return source.destination(name.incarnation.topic, name.incarnation.id)


def key_of(settings: IngressSettings, source: SourcePartition, given: str | None) -> CheckpointKey:
    from formats.messages.delivery_checkpoint import CheckpointKey

    return CheckpointKey(source, destination_of(settings, source_name(str(source)), given))


def is_delivered(settings: IngressSettings, key: CheckpointKey) -> bool:
    """Whether the configuration delivers this source to this destination."""
    source = settings.source_of(key.source.region, key.source.topic)
    return source is not None and source.destination(key.source.topic, key.source.incarnation) == key.destination_topic


def of_another_region(what: str, region: str, here: str) -> str:
    """The message that `what` is archived by `region`, while the configuration is that of `here`."""
    return f"{what} is archived by region {region}, and this file is of {here}: run it with the file of that region"


def instant(text: str) -> datetime:
    """Raises typer.BadParameter."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time, such as 2026-01-31T12:00:00Z") from error
    if at.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no time zone: write {at.isoformat()}Z for UTC")
    return at
