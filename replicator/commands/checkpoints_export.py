"""`replicator checkpoints export`: give the delivery positions to MirrorMaker 2 or the Go replicator."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.services.foreign_kind import ForeignKind
from replicator.terminal.interrupt import WRITES_ONCE, interruptible
from replicator.terminal.output import AsJson, ConfigFile, Yes, load_config, print_json, print_text

if TYPE_CHECKING:
    from formats.messages.delivery_checkpoint import CheckpointKey
    from replicator.services.export_plan import Export
    from replicator.services.exporting import ForeignTopic

ANCESTOR_GROUP = "replicator.ingress"  # its default

ConnectCluster = Annotated[
    str | None,
    typer.Option(
        "--connect-cluster", metavar="ALIAS", help="Set MirrorMaker 2's alias of the source; default: REGION."
    ),
]


@interruptible(WRITES_ONCE)
def export(
    source: Annotated[
        str,
        typer.Argument(metavar="REGION[/TOPIC[/PARTITION]]", help="The source partitions; a region's are all."),
    ],
    *,
    to: Annotated[ForeignKind, typer.Option("--to", help="The program that is to continue, by its topic.")],
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="Write to this topic of this cluster; default of connect-offsets: mm2-offsets.ALIAS.internal.",
        ),
    ] = None,
    destination: Annotated[
        str | None, typer.Option("--destination", metavar="TOPIC", help="Of several destinations, this one's position.")
    ] = None,
    connect_cluster: ConnectCluster = None,
    connector: Annotated[
        str | None,
        typer.Option(
            "--connector",
            metavar="NAME",
            help="Set the connector's name; default: the one that the topic names, or else MirrorSourceConnector.",
        ),
    ] = None,
    group_id: Annotated[
        str | None,
        typer.Option(
            "--group", metavar="GROUP", help="Set the other program's group; default: ALIAS-mm2 or replicator.ingress."
        ),
    ] = None,
    config: ConfigFile = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let MirrorMaker 2 or the Go replicator continue where delivery has stopped.

    The inverse of `checkpoints seed`. Refused while ingress or the other program runs. A topic that does not exist is
    created, compacted.
    """
    from infra.runtime.lifecycle import SystemClock
    from replicator.services.clients import Clients
    from replicator.services.export_plan import chosen
    from replicator.services.exporting import planned, refuse_running, write
    from replicator.terminal.source_names import is_delivered, source_name

    region, _, rest = source.partition("/")
    name = source_name(source) if rest else None
    foreign = _foreign(to, region, topic=topic, connect_cluster=connect_cluster, connector=connector, group_id=group_id)
    with Clients(load_config(config)) as reach:
        ingress = reach.ingress

        def is_wanted(key: CheckpointKey) -> bool:
            return key.destination_topic == destination if destination else is_delivered(ingress, key)

        positions = chosen(reach.checkpoints.read(), region, name, is_wanted)
        if not positions:
            raise typer.BadParameter(f"{source}: nothing of it is delivered here, so there is no position to export")
        refuse_running(reach, foreign, positions)
        exports = planned(reach, foreign, positions, SystemClock().now())
        if yes:
            write(reach, foreign, exports)
    _print(exports, foreign, done=yes, as_json=as_json)


def _foreign(
    to: ForeignKind,
    region: str,
    *,
    topic: str | None,
    connect_cluster: str | None,
    connector: str | None,
    group_id: str | None,
) -> ForeignTopic:
    """Raises typer.BadParameter."""
    from replicator.services.exporting import ForeignTopic

    if to is ForeignKind.ANCESTOR:
        if connect_cluster is not None or connector is not None:
            raise typer.BadParameter("--connect-cluster and --connector are of --to connect-offsets")
        if topic is None:
            raise typer.BadParameter("--to ancestor needs --topic: the checkpoint topic that its program names")
        return ForeignTopic(kind=to, topic=topic, group_id=group_id or ANCESTOR_GROUP)
    alias = connect_cluster or region
    return ForeignTopic(
        kind=to,
        topic=topic or f"mm2-offsets.{alias}.internal",
        group_id=group_id or f"{alias}-mm2",
        alias=alias,
        connector=connector,
    )


def change_text(one: Export) -> str:
    """One line for a position, to be checked before --yes."""
    what = f"{one.source}, delivered to {one.key.destination_topic}"
    if not one.is_written:
        return f"{what}: {one.next_offset}, as it is" if one.next_offset else f"{what}: from the first record"
    return f"{what}: {'none' if one.before is None else one.before} -> {one.next_offset}"


def _print(exports: Sequence[Export], foreign: ForeignTopic, *, done: bool, as_json: bool) -> None:
    written = [one for one in exports if one.is_written]
    if as_json:
        rows = [
            {
                "source": str(one.source),
                "destination": one.key.destination_topic,
                "before": one.before,
                "next_offset": one.next_offset,
                "changes": one.is_written,
            }
            for one in exports
        ]
        print_json({"written": done, "topic": foreign.topic, "positions": rows})
        return
    for one in exports:
        print_text(change_text(one))
    records = f"{len(written)} record{'s' * (len(written) != 1)}"
    print_text(f"{records} {'written' if done else 'would be written'} to {foreign.topic}")
    if written and not done:
        print_text("nothing was written; to write it, add --yes")
