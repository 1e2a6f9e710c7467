"""`replicator offsets`: where consumer groups and records of a source are in this cluster."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from formats.errors import TargetError
from replicator.terminal.interrupt import WRITES_ONCE, interruptible
from replicator.terminal.output import (
    DIFFERENCES,
    AsJson,
    ConfigFile,
    complain,
    group,
    load_config,
    print_json,
    print_text,
    table,
)

if TYPE_CHECKING:
    from infra.contracts.cluster import TopicPartition
    from replicator.offsets import TranslatedOffset, TranslatedOffsets
    from replicator.services.clients import Clients

offsets_app = group("Show where groups and records of a source are here.")


@offsets_app.command(short_help="Translate offsets of a group, or of records, between a source and this cluster.")
@interruptible(WRITES_ONCE)
def translate(
    *,
    from_: Annotated[
        str, typer.Option("--from", metavar="REGION", help="The region whose offsets are given, or this one.")
    ],
    to: Annotated[
        str | None, typer.Option("--to", metavar="REGION", help="The other region; default: this one.")
    ] = None,
    group_id: Annotated[
        str | None, typer.Option("--group", metavar="NAME", help="Translate the offsets of this group.")
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option("--offset", metavar="TOPIC/PARTITION=N", help="Translate this offset; may be repeated."),
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Where the group stood then; default: now.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Commit the offsets for the group here; default: show them only.")
    ] = False,
    rewind: Annotated[
        bool, typer.Option("--rewind", help="With --apply: also move the group back where it is further here.")
    ] = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Translate offsets, exactly.

    With --from a source region, its offsets to those of this cluster; with --from this region and --to a source, back.
    --apply commits for a group that is inactive here. With --rewind or --at the group is then held: groups.sync does
    not move it until `replicator offsets release`. Exit code 3 when an offset is not known, is of an earlier
    time, or was not committed.
    """
    from replicator.offsets import TranslatedOffsets
    from replicator.services.clients import Clients
    from replicator.terminal.source_names import instant

    if (group_id is None) == (not offset):
        raise typer.BadParameter("give either --group, or one --offset or several")
    if group_id is None and (apply or at is not None):
        raise typer.BadParameter("--apply and --at are about a group: give --group")
    moment = None if at is None else instant(at)
    problems: list[str] = []
    with Clients(load_config(config)) as clients:
        here, other = clients.config.region, to if from_ == clients.config.region else from_
        if other is None or here not in (from_, to or here):
            raise typer.BadParameter(f"this file is of {here}: give it as --from or as --to, and a source as the other")
        translated = TranslatedOffsets.open(clients, other)
        if from_ == here:
            if apply or moment is not None:
                raise typer.BadParameter("--apply and --at need --from a source region")
            found = _from_here(clients, translated, group_id, offset or [])
        elif group_id is not None:
            found = translated.of_group(group_id, moment, on_problem=problems.append)
        else:
            found = [one for topic, n, at_ in map(_given, offset or []) for one in translated.to_here(topic, n, at_)]
        found = translated.with_times(found)
        hold = rewind or moment is not None  # what the next round would choose differently
        outcomes: Mapping[TopicPartition, str] = {}
        if apply and group_id is not None:
            outcomes = translated.commit(group_id, found, rewind=rewind, hold=hold)
    if as_json:
        print_json([{**_json(one), "outcome": outcomes.get(one.target)} for one in found])
    else:
        print_text(_table(found, outcomes, to_source=from_ == here))
        for one in found:
            if one.reason:
                print_text(f"! {one.source}: {one.reason}")
        if group_id is not None and from_ != here and not apply:
            print_text("nothing was committed: --apply does that")
        if hold and any(map(_is_done, outcomes.values())):
            print_text(f"held: groups.sync leaves it here until `replicator offsets release --group {group_id}`")
    for problem in problems:
        complain(f"! group {group_id} may have stood elsewhere: {problem}")
    if problems or any(not one.is_known for one in found) or any(not _is_done(one) for one in outcomes.values()):
        raise typer.Exit(DIFFERENCES)


@offsets_app.command(short_help="Let a group follow its sources again after --apply with --rewind or --at.")
@interruptible(WRITES_ONCE)
def release(
    *,
    group_id: Annotated[str, typer.Option("--group", metavar="NAME", help="The group that is held.")],
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Let groups.sync move a group again whose offsets were chosen by --apply with --rewind or --at."""
    from replicator.offsets import release as release_group
    from replicator.services.clients import Clients
    from replicator.services.ledger import ledger_in

    with Clients(load_config(config)) as clients:
        topics = release_group(ledger_in(clients, create=True), group_id)
    if as_json:
        print_json({"group": group_id, "topics": topics})
    else:
        print_text(f"released on {', '.join(topics)}" if topics else f"{group_id} was not held")


def _from_here(
    clients: Clients, translated: TranslatedOffsets, group_id: str | None, given: Sequence[str]
) -> Sequence[TranslatedOffset]:
    if group_id is None:
        return [translated.to_source(*one) for one in map(_given, given)]
    partitions = [one for one in translated.lookup.ends if one.topic in translated.routes]
    committed = clients.groups.committed(group_id, partitions)
    if not committed:
        raise TargetError(f"group {group_id} has no offset here in a topic that comes from {translated.region}")
    return [translated.of_commit(p, one.next_offset) for p, one in sorted(committed.items())]


def _given(text: str) -> tuple[str, int, int]:
    """Raises typer.BadParameter."""
    where, _, offset = text.rpartition("=")
    topic, _, partition = where.rpartition("/")
    try:
        if not topic:
            raise ValueError(text)
        return topic, int(partition), int(offset)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no offset of a partition: write orders/0=1200") from error


def _is_done(outcome: str) -> bool:
    return outcome in ("write", "same")


def _table(found: Sequence[TranslatedOffset], outcomes: Mapping[TopicPartition, str], *, to_source: bool) -> str:
    sides = ("here", "offset", "source", "offset") if to_source else ("source", "offset", "here", "offset")
    rows = []
    for one in found:
        source, target = (one.source, one.source_offset), (str(one.target), one.target_offset)
        first, second = (target, source) if to_source else (source, target)
        at = None if one.timestamp is None else one.timestamp.isoformat(timespec="milliseconds")
        outcome = [outcomes.get(one.target)] if outcomes else []
        rows.append((*first, *second, one.exactness.value, at, one.lag, *outcome))
    return table((*sides, "", "timestamp", "lag here", *(["outcome"] if outcomes else [])), rows)


def _json(one: TranslatedOffset) -> Mapping[str, object]:
    return {
        "group": one.group or None,
        "source": one.source,
        "source_offset": one.source_offset,
        "topic": one.target.topic,
        "partition": one.target.partition,
        "offset": one.target_offset,
        "exactness": one.exactness.value,
        "timestamp": None if one.timestamp is None else one.timestamp.isoformat(timespec="milliseconds"),
        "lag": one.lag,
        "metadata": one.metadata or None,
        "reason": one.reason or None,
    }
