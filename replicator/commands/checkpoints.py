"""`replicator checkpoints show|seed|export`: show and set the delivery position of source partitions."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from formats.errors import CheckpointConflict, TargetError
from replicator.commands.checkpoints_export import ConnectCluster, export
from replicator.terminal.changes import Written, print_changes
from replicator.terminal.interrupt import WRITES_ONCE, interruptible
from replicator.terminal.output import (
    DIFFERENCES,
    AsJson,
    ConfigFile,
    Yes,
    group,
    load_config,
    load_other_config,
    print_json,
    print_text,
    table,
)

if TYPE_CHECKING:
    from formats.messages.delivery_checkpoint import (
        Checkpoint,
        CheckpointKey,
        Parked,
        Waiting,
    )
    from ingress.repair import Seed
    from replicator.selection import SourceName
    from replicator.services.seeding import (
        PositionOrigin,
    )

checkpoints_app = group("Show or set how far each source partition is delivered.")
checkpoints_app.command()(export)


@checkpoints_app.command()
@interruptible()
def show(
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="REGION/TOPIC[/PARTITION]", help="Show only this topic or partition."),
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show every checkpoint, and the group that the topic belongs to.

    A checkpoint is the source offset of the next record wanted; who wrote it when is shown, too. Exit code 3 when two
    of them cannot both be true.
    """
    from formats.messages.delivery_checkpoint import Checkpoint, still_waiting
    from formats.messages.group_claim import current_claim
    from replicator.services.clients import Clients
    from replicator.terminal.source_names import source_name

    wanted = source_name(source) if source else None
    with Clients(load_config(config)) as reach:
        values = reach.checkpoints.read()
        parked, waiting = reach.checkpoints.parked(), reach.checkpoints.waiting()
        owner = current_claim(reach.checkpoints.claims())
        topic = reach.ingress.checkpoint_topic
    known = {key: entry for key, entry in values.items() if isinstance(entry, Checkpoint)}
    conflicts = {key: str(entry) for key, entry in values.items() if isinstance(entry, CheckpointConflict)}
    waiting = {key: one for key, one in waiting.items() if still_waiting(one, known.get(key))}
    keys = sorted(k for k in {*values, *parked, *waiting} if wanted is None or k.source in wanted)
    if as_json:
        print_json(
            {
                "topic": topic,
                "group": None if owner is None else owner.group_id,
                "checkpoints": [
                    {**_json(k, known.get(k), parked.get(k), waiting.get(k)), "conflict": conflicts.get(k)}
                    for k in keys
                ],
            }
        )
    else:
        print_text(f"{topic} belongs to {'no group yet' if owner is None else f'group {owner.group_id}'}")
        _print(keys, known, parked, waiting)
        for key in keys:
            if key in conflicts:
                print_text(f"! {conflicts[key]}")
    if any(key in conflicts for key in keys):
        raise typer.Exit(DIFFERENCES)


def _print(
    keys: Sequence[CheckpointKey],
    known: Mapping[CheckpointKey, Checkpoint],
    parked: Mapping[CheckpointKey, Parked],
    waiting: Mapping[CheckpointKey, Waiting],
) -> None:
    from formats.messages.delivery_checkpoint import still_parked

    rows = []
    for key in keys:
        c, p, w = known.get(key), parked.get(key), waiting.get(key)
        at = c.at.isoformat(timespec="seconds") if c else ""
        values = (c.next_offset, c.begun_at, c.author, at, c.destination_topic_id) if c else (None, None, "", "", "")
        waits = w.since.isoformat(timespec="seconds") if w else ""
        rows.append((key.source, key.destination_topic, *values, waits, "yes" if p and still_parked(p, c) else ""))
    head = ("source", "destination", "next offset", "began at", "by", "at", "destination's id", "waits since", "parked")
    print_text(table(head, rows) if rows else "no checkpoints")


@checkpoints_app.command()
@interruptible(WRITES_ONCE)
def seed(
    source: Annotated[
        str,
        typer.Argument(metavar="REGION/TOPIC[/PARTITION]", help="A source partition, or all partitions of a topic."),
    ],
    *,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="Destination topic; default: by the file.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", metavar="N", min=0, help="Deliver from this source offset.")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            "--timestamp",
            metavar="TIME",
            help="Deliver from the first record with this or a later timestamp (ISO 8601, with a zone).",
        ),
    ] = None,
    group_id: Annotated[
        str | None,
        typer.Option("--group", metavar="GROUP", help="Deliver from the committed offsets of this source group."),
    ] = None,
    source_config: Annotated[
        Path | None,
        typer.Option("--source-config", metavar="FILE", help="With --group: read the source region's configuration."),
    ] = None,
    ancestor_topic: Annotated[
        str | None,
        typer.Option(
            "--ancestor-topic", metavar="TOPIC", help="Read the Go replicator's checkpoint topic in this cluster."
        ),
    ] = None,
    connect_offsets: Annotated[
        str | None,
        typer.Option(
            "--connect-offsets", metavar="TOPIC", help="Read MirrorMaker 2's Connect offsets topic in this cluster."
        ),
    ] = None,
    connect_cluster: ConnectCluster = None,
    force: Annotated[bool, typer.Option("--force", help="Write even while ingress runs.")] = False,
    config: ConfigFile = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Set the offset from which a source partition is delivered.

    Takes exactly one of the options that name a position. Records between the old and the new position are skipped, or
    delivered again. Refused while the ingress group has members, unless the partition is parked. An --offset beyond the
    end of the archive is always refused.
    """
    from formats.messages.delivery_checkpoint import encode, encode_key
    from infra.runtime.lifecycle import SystemClock
    from replicator.commands.repair import operator_of
    from replicator.services.clients import Clients
    from replicator.services.seeding import may_lead, positions
    from replicator.terminal.source_names import destination_of, source_name

    name = source_name(source)
    option, origin = _origin(
        name,
        offset=offset,
        timestamp=timestamp,
        group_id=group_id,
        source_config=source_config,
        ancestor_topic=ancestor_topic,
        connect_offsets=connect_offsets,
        connect_cluster=connect_cluster,
    )
    with Clients(load_config(config)) as reach:
        destination = destination_of(reach.ingress, name, to)
        found = positions(reach, name, origin)
        if not found:
            raise TargetError(f"{option} has no position of {name}: nothing to seed")
        operator = operator_of(reach)
        seeds = operator.plan_seeds(found, destination, SystemClock().now(), force=force, may_lead=may_lead(origin))
        if yes:
            operator.seed(seeds)
    changes = [change_text(one) for one in seeds]
    written = [Written(key=encode_key(one.key), value=encode(one.after)) for one in seeds]
    print_changes(changes, written, topic=reach.ingress.checkpoint_topic, done=yes, as_json=as_json)


def _origin(
    name: SourceName,
    *,
    offset: int | None,
    timestamp: str | None,
    group_id: str | None,
    source_config: Path | None,
    ancestor_topic: str | None,
    connect_offsets: str | None,
    connect_cluster: str | None,
) -> tuple[str, PositionOrigin]:
    """The given option and its origin. Raises typer.BadParameter, ConfigError."""
    from replicator.services.seeding import AtOffset, AtTime, OfAncestor, OfConnect, OfGroup
    from replicator.terminal.source_names import instant

    options = {
        "--offset": offset,
        "--timestamp": timestamp,
        "--group": group_id,
        "--ancestor-topic": ancestor_topic,
        "--connect-offsets": connect_offsets,
    }
    given = [option for option, value in options.items() if value is not None]
    if len(given) != 1:
        named = " and ".join(given) or "none was given"
        raise typer.BadParameter(f"one of {', '.join(options)}, and only one: {named}")
    if (group_id is None) != (source_config is None):
        raise typer.BadParameter(
            "--group and --source-config go together: a group's offsets are source offsets only in the source's cluster"
        )
    [option] = given
    if offset is not None:
        return option, AtOffset(offset)
    if timestamp is not None:
        return option, AtTime(instant(timestamp))
    if group_id is not None:
        return option, OfGroup(group_id, load_other_config(source_config))
    if ancestor_topic is not None:
        return option, OfAncestor(ancestor_topic)
    return option, OfConnect(connect_offsets or "", connect_cluster or name.region)


def change_text(one: Seed) -> str:
    """One line for a seed, with the offsets it passes over, to be checked before --yes."""
    next_offset = one.after.next_offset
    text = f"{one.key.source} to {one.key.destination_topic}: {_position_text(one.before)} -> {next_offset}"
    if one.passed_over:
        text += f"; passes over {one.passed_over} archived offsets, which are not delivered"
    if next_offset > one.archive_end:
        text += (
            f"; lies beyond the end of its archive, {one.archive_end}: what is archived up to {next_offset} later is "
            "not delivered"
        )
    return text


def _position_text(entry: Checkpoint | CheckpointConflict | None) -> str:
    from formats.messages.delivery_checkpoint import Checkpoint

    if isinstance(entry, Checkpoint):
        return str(entry.next_offset)
    return "none" if entry is None else "a conflict"


def _json(
    key: CheckpointKey, checkpoint: Checkpoint | None, parked: Parked | None, waiting: Waiting | None
) -> dict[str, object]:
    from formats.messages.delivery_checkpoint import still_parked

    current = parked if parked is not None and still_parked(parked, checkpoint) else None
    return {
        "source": str(key.source),
        "destination": key.destination_topic,
        "next_offset": checkpoint and checkpoint.next_offset,
        "begun_at": checkpoint and checkpoint.begun_at,
        "author": checkpoint and str(checkpoint.author),
        "at": checkpoint and checkpoint.at.isoformat(),
        "destination_topic_id": checkpoint and checkpoint.destination_topic_id,
        "waiting": waiting
        and {"offset": waiting.offset, "since": waiting.since.isoformat(), "is_beginning": waiting.is_beginning},
        "parked": current
        and {"next_offset": current.next_offset, "since": current.since.isoformat(), "reason": current.reason},
    }
