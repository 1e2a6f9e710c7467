"""Options that select records of the archive, and how they are parsed."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from replicator.terminal.region_option import region_option

T = TypeVar("T")

if TYPE_CHECKING:
    from formats.int_range import IntRange
    from replicator.config import Config
    from replicator.selection import Renaming, Selection

Topics = Annotated[list[str], typer.Argument(help="Names, or expressions that begin with ^.")]
AnyTopics = Annotated[list[str] | None, typer.Argument(help="Names, or expressions that begin with ^. Default: all.")]
Region = Annotated[
    str | None,
    typer.Option("--archive-region", metavar="NAME", help="Read this region's archive; default: the file's."),
]
Renames = Annotated[
    list[str] | None,
    typer.Option("--rename", metavar="OLD=NEW|TEMPLATE", help="Rename, such as a=b, or '{topic}.restored' for all."),
]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", metavar="N", help="Select only this partition; may be repeated.")
]
Offsets = Annotated[
    str | None, typer.Option("--offsets", metavar="A-B", help="Select only these, both included: 100-, -99.")
]
From = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="Select records with this timestamp or a later one.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Select records with an earlier timestamp.")]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Restore what the source held then, by its watermarks."),
]
Transactional = Annotated[
    bool,
    typer.Option("--transactional", help="With --at: at the nearest earlier moment that splits no transaction."),
]
PreserveOffsets = Annotated[
    bool,
    typer.Option("--preserve-offsets", help="Give each record the offset that it had at the source."),
]
IncarnationOption = Annotated[
    str | None,
    typer.Option("--incarnation", metavar="TOPIC_ID", help="Select an incarnation by topic id; default: the last."),
]


def selected(  # noqa: PLR0917
    settings: Config,
    topics: Sequence[str],
    region: str | None,
    rename: Sequence[str] | None,
    partitions: Sequence[int] | None,
    offsets: str | None,
    from_: str | None,
    until: str | None,
    incarnation: str | None,
    transforms: Sequence[str],
    at: str | None = None,
    *,
    is_transactional: bool = False,
    preserves_offsets: bool = False,
) -> Selection:
    """Without `region`, the archive of --region: this is the region of `settings`, unless their file has only another
    one, in whose bucket that archive lies."""
    from formats.int_range import IntRange
    from formats.records.milliseconds import first_ms_at_or_after
    from formats.topic_selection import TopicPattern
    from replicator.selection import Selection
    from replicator.terminal.source_names import instant

    try:
        return Selection(
            region=region or region_option() or settings.region,
            topics=[TopicPattern(topic) for topic in topics],
            incarnation=incarnation,
            partitions=frozenset(partitions) if partitions else None,
            offsets=parsed_offsets(offsets),
            timestamps=IntRange(
                IntRange().low if from_ is None else first_ms_at_or_after(instant(from_)),
                IntRange().high if until is None else first_ms_at_or_after(instant(until)) - 1,
            ),
            renaming=_renaming(rename or ()),
            transforms=transforms,
            at=None if at is None else instant(at),
            is_transactional=is_transactional,
            preserves_offsets=preserves_offsets,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def parsed_offsets(text: str | None) -> IntRange:
    from formats.int_range import ANY_OFFSET, IntRange

    if text is None:
        return ANY_OFFSET
    low, dash, high = text.partition("-")
    if not dash or not (low or "0").isdecimal() or not (high or "0").isdecimal():
        keep = " (to keep the source's offsets: --preserve-offsets)" if text == "preserve" else ""
        raise typer.BadParameter(f"{text!r} are no offsets: write A-B, A- or -B{keep}")
    span = IntRange(int(low or 0), int(high) if high else ANY_OFFSET.high)
    if span.low > span.high:
        raise typer.BadParameter(f"{text!r} are no offsets: the first lies behind the last")
    return span


def _renaming(texts: Sequence[str]) -> Renaming:
    from replicator.selection import TOPIC_SIGN, Renaming

    templates = [text for text in texts if "=" not in text]
    if len(templates) > 1:
        raise typer.BadParameter(f"--rename: one template, not {len(templates)}")
    names = dict(pair(text, "--rename") for text in texts if "=" in text)
    return Renaming(names, templates[0] if templates else TOPIC_SIGN)


def pair(text: str, option: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name or not value:
        raise typer.BadParameter(f"{option} {text!r}: write NAME=VALUE")
    return name, value


def parsed(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
