"""`replicator client …`: what a cluster says about the clusters upstream of it, as MirrorMaker 2's client and its
formatters say it. All but `lag` ask Kafka only."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from formats.errors import MalformedEvent, TargetError
from replicator.commands.client_cluster import Naming, Properties, Servers, mirror_client
from replicator.commands.client_users import users
from replicator.terminal.interrupt import interruptible
from replicator.terminal.output import (
    DIFFERENCES,
    AsJson,
    ConfigFile,
    complain,
    count_text,
    group,
    load_config,
    print_json,
    print_text,
    table,
)

if TYPE_CHECKING:
    from infra.contracts.cluster import Committed, TopicPartition

client_app = group("Ask a cluster what is mirrored to it.")
client_app.command()(users)

Topic = Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Default: the only one of its kind.")]
Follow = Annotated[bool, typer.Option("--follow", help="Wait for further records, until Ctrl-C.")]


@client_app.command()
@interruptible()
def hops(
    cluster: Annotated[str, typer.Argument(metavar="ALIAS", help="The cluster whose heartbeats are searched for.")],
    *,
    config: ConfigFile = None,
    servers: Servers = None,
    properties: Properties = None,
    alias: Naming = None,
    as_json: AsJson = False,
) -> None:
    """Print how many flows lie between an upstream cluster and this one.

    By the names of heartbeat topics, on the shortest way. Exit code 3 when no heartbeats of it arrive.
    """
    found = mirror_client(config, servers, properties, alias).replication_hops(cluster)
    if as_json:
        print_json({"cluster": cluster, "hops": found})
    else:
        print_text(f"no heartbeats of {cluster} arrive here" if found is None else str(found))
    if found is None:
        raise typer.Exit(DIFFERENCES)


@client_app.command()
@interruptible()
def upstream(
    *,
    config: ConfigFile = None,
    servers: Servers = None,
    properties: Properties = None,
    alias: Naming = None,
    as_json: AsJson = False,
) -> None:
    """List the upstream clusters whose heartbeats arrive here, with their hops."""
    from formats.policies.upstream import replication_hops, upstream_clusters

    client = mirror_client(config, servers, properties, alias)
    topics = client.topics()
    rows = [(one, replication_hops(client.policy, topics, one)) for one in upstream_clusters(client.policy, topics)]
    rows.sort(key=lambda row: (row[1] or 0, row[0]))
    if as_json:
        print_json([{"cluster": one, "hops": count} for one, count in rows])
    else:
        print_text(table(("cluster", "hops"), rows) if rows else "no heartbeats of another cluster arrive here")


@client_app.command()
@interruptible()
def topics(
    source: Annotated[
        str | None, typer.Option("--source", metavar="ALIAS", help="List only remote topics of this cluster.")
    ] = None,
    heartbeats: Annotated[bool, typer.Option("--heartbeats", help="List heartbeat topics instead.")] = False,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="List checkpoint topics instead.")] = False,
    *,
    config: ConfigFile = None,
    servers: Servers = None,
    properties: Properties = None,
    alias: Naming = None,
    as_json: AsJson = False,
) -> None:
    """List the topics that come from other clusters, by their names."""
    if sum((source is not None, heartbeats, checkpoints)) > 1:
        raise typer.BadParameter("give one of --source, --heartbeats and --checkpoints")
    client = mirror_client(config, servers, properties, alias, by_source=not (heartbeats or checkpoints))
    if heartbeats:
        found = client.heartbeat_topics()
    elif checkpoints:
        found = client.checkpoint_topics()
    else:
        found = client.remote_topics(source)
    policy = client.policy
    rows = [
        {
            "topic": name,
            "source": None if checkpoints else policy.topic_source(name),
            "original": None if checkpoints else policy.original_topic(name),
        }
        for name in sorted(found)
    ]
    if as_json:
        print_json(rows)
    elif checkpoints:
        print_text("\n".join(sorted(found)) or "no such topic is visible")
    else:
        head = ("topic", "source", "original")
        print_text(table(head, [[row[name] for name in head] for row in rows]) if rows else "no such topic is visible")


@client_app.command()
@interruptible()
def heartbeats(
    topic: Topic = None,
    follow: Follow = False,
    *,
    config: ConfigFile = None,
    servers: Servers = None,
    properties: Properties = None,
    alias: Naming = None,
    as_json: AsJson = False,
) -> None:
    """Print heartbeats as MirrorMaker 2's HeartbeatFormatter does.

    From the topic's begin to its end; JSON has one object in a line. Exit code 3 when records were left out, since they
    are no heartbeats.
    """
    client = mirror_client(config, servers, properties, alias)
    name = topic or _only(client.heartbeat_topics(), "heartbeat topic")
    _print_records(name, lambda left_out: client.heartbeats(name, follow=follow, on_malformed=left_out), as_json)


@client_app.command()
@interruptible()
def checkpoints(
    topic: Topic = None,
    follow: Follow = False,
    *,
    config: ConfigFile = None,
    servers: Servers = None,
    properties: Properties = None,
    alias: Naming = None,
    as_json: AsJson = False,
) -> None:
    """Print checkpoints of consumer groups as MirrorMaker 2's CheckpointFormatter does.

    From the topic's begin to its end; JSON has one object in a line. Exit code 3 when records were left out, since they
    are no checkpoints.
    """
    client = mirror_client(config, servers, properties, alias)
    name = topic or _only(client.checkpoint_topics(), "checkpoint topic")
    _print_records(name, lambda left_out: client.checkpoints(name, follow=follow, on_malformed=left_out), as_json)


@client_app.command()
@interruptible()
def offset_syncs(
    topic: Topic = None,
    follow: Follow = False,
    *,
    config: ConfigFile = None,
    servers: Servers = None,
    properties: Properties = None,
    alias: Naming = None,
    as_json: AsJson = False,
) -> None:
    """Print offset syncs as MirrorMaker 2's OffsetSyncFormatter does.

    From the topic's begin to its end; JSON has one object in a line. Exit code 3 when records were left out, since they
    are no offset syncs.
    """
    client = mirror_client(config, servers, properties, alias)
    name = topic or _only(client.offset_sync_topics(), "topic of offset syncs")
    _print_records(name, lambda left_out: client.offset_syncs(name, follow=follow, on_malformed=left_out), as_json)


@client_app.command()
@interruptible()
def offsets(
    cluster: Annotated[str, typer.Argument(metavar="ALIAS", help="The cluster that the consumer groups come from.")],
    consumer_group: Annotated[
        str | None,
        typer.Option("--group", metavar="NAME", help="A name, or an expression that begins with ^; default: all."),
    ] = None,
    *,
    config: ConfigFile = None,
    servers: Servers = None,
    properties: Properties = None,
    alias: Naming = None,
    as_json: AsJson = False,
) -> None:
    """Print where consumer groups of an upstream cluster stand here.

    By its checkpoints: of each remote partition the offset from which the group would go on in this cluster.
    """
    pattern = ".*" if consumer_group is None else consumer_group
    if consumer_group is not None and not consumer_group.startswith("^"):
        pattern = re.escape(consumer_group)
    try:
        re.compile(pattern)
    except re.error as error:
        raise typer.BadParameter(f"--group {consumer_group}: no expression: {error}") from error
    found = mirror_client(config, servers, properties, alias).remote_offsets_of_groups(cluster, pattern)
    rows = [
        {
            "group": name,
            "topic": at.topic,
            "partition": at.partition,
            "offset": one.next_offset,
            "metadata": one.metadata,
        }
        for name, at, one in _sorted(found)
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_text(table(tuple(rows[0]), [tuple(row.values()) for row in rows]))
    else:
        print_text(f"no such group has a checkpoint of {cluster}")


@client_app.command()
@interruptible()
def lag(
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Print a line for each partition, not each topic.")
    ] = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Print how far delivery is behind the sources' logs, in records, bytes and seconds.

    Reads the bucket and the checkpoints of ingress, so it needs the configuration file of ingress; the source region
    may be gone. A dash stands for what is not known: no watermarks, or nothing of a partition, have arrived. Exit code
    3 when nothing of a source region has ever arrived.
    """
    from infra.runtime.lifecycle import SystemClock
    from replicator.commands.client_lag import lag_json, lag_table
    from replicator.services.clients import Clients
    from replicator.services.ingress_status import partition_lags
    from replicator.status.empty_sources import empty_sources

    with Clients(load_config(config)) as reach:
        found = partition_lags(reach, SystemClock().now())
        problems = empty_sources(reach.store, reach.ingress.regions, reach.config.region)
    if as_json:
        print_json([lag_json(one) for one in found])
    else:
        print_text(lag_table(found, by_partition=partitions))
    for problem in problems.values():
        complain(problem)
    if problems:
        raise typer.Exit(DIFFERENCES)


def _sorted(
    found: Mapping[str, Mapping[TopicPartition, Committed]],
) -> Iterable[tuple[str, TopicPartition, Committed]]:
    return ((name, at, offsets[at]) for name, offsets in sorted(found.items()) for at in sorted(offsets))


def _print_records(
    topic: str, records: Callable[[Callable[[MalformedEvent], None]], Iterable[Any]], as_json: bool
) -> None:
    count = 0

    def left_out(error: MalformedEvent) -> None:
        nonlocal count
        count += 1
        if count == 1:  # at once: a topic that is followed has no end
            complain(f"left out of {topic}, as are others of its kind: {error}")

    for one in records(left_out):
        print_text(json.dumps(asdict(one), ensure_ascii=False) if as_json else str(one))
    if count:
        complain(f"{count_text(count)} records of {topic} were left out")
        raise typer.Exit(DIFFERENCES)


def _only(found: Collection[str], what: str) -> str:
    """Raises TargetError unless there is one."""
    if not found:
        ours = "" if "heartbeat" in what else " (ingress writes it for groups of a source with a replication policy)"
        raise TargetError(f"no {what} is visible in this cluster{ours}: name the topic")
    if len(found) > 1:
        raise TargetError(f"there is more than one {what}; name one of: {', '.join(sorted(found))}")
    return next(iter(found))
