"""The cluster that `replicator client …` asks, and how its topics are named: by the configuration file or without."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from formats.errors import ConfigError
from replicator.terminal.output import load_config, refused_by_client
from replicator.terminal.region_option import region_option

if TYPE_CHECKING:
    from formats.policies.names import ReplicationPolicy
    from replicator.client import MirrorClient
    from replicator.config import IngressSettings

Servers = Annotated[
    str | None,
    typer.Option("--bootstrap-server", metavar="HOST:PORT", help="Ask this cluster; no configuration file is read."),
]
Properties = Annotated[
    Path | None,
    typer.Option("--properties", metavar="FILE", help="The same, with the properties of MirrorMaker 2's MirrorClient."),
]
Naming = Annotated[
    str | None,
    typer.Option("--alias", metavar="NAME", help="Name topics as this source of the file; default: as all of them."),
]


def mirror_client(
    config: Path | None,
    servers: str | None,
    properties: Path | None,
    alias: str | None,
    *,
    by_source: bool = False,
) -> MirrorClient:
    """`by_source`: names have to say where topics come from. Raises ConfigError."""
    from replicator.client import MirrorClient
    from replicator.services.command_logs import set_up_logs

    if servers is None and properties is None:
        settings = load_config(config)
        set_up_logs(settings)
        ingress, client = settings.ingress, settings.cluster.properties("consumer")
        if ingress is None:
            return MirrorClient(client)
        policy = _policy(ingress, alias, settings.source, by_source)
        return MirrorClient(client, policy, own_topics=ingress.own_topics)
    if any(one is not None for one in (config, alias, region_option())):
        raise typer.BadParameter(
            "--config, --region and --alias are not for a cluster given by --bootstrap-server or --properties"
        )
    from replicator.config.client_properties import mirror_client_properties
    from replicator.config.load import read

    set_up_logs(None)
    source = "--bootstrap-server" if properties is None else str(properties)
    try:
        given = mirror_client_properties("" if properties is None else read(properties))
    except ValueError as error:
        raise ConfigError([str(error)], source=source) from error
    client = {**given.client, **({} if servers is None else {"bootstrap.servers": servers})}
    problems = [f"{name}: {why}" for name, why in refused_by_client(client)]
    if "bootstrap.servers" not in client:
        problems.append("bootstrap.servers: missing; set it there, or give --bootstrap-server")
    if problems:
        raise ConfigError(problems, source=source)
    return MirrorClient(client, given.policy)


def _policy(ingress: IngressSettings, alias: str | None, file: str, by_source: bool) -> ReplicationPolicy:
    """Raises ConfigError."""
    from formats.policies.names import DefaultReplicationPolicy

    named = [one for one in ingress.sources if alias in (None, one.source_alias)]
    if not named:
        known = ", ".join(sorted({one.source_alias for one in ingress.sources}))
        raise ConfigError([f"no source has the alias {alias}; there are: {known}"], source=file)
    policies = [_naming(one.policy, by_source) for one in named if one.policy is not None]
    if any(one != policies[0] for one in policies):
        several = ", ".join(sorted({one.source_alias for one in named}))
        raise ConfigError([f"its sources name topics in different ways: give --alias, one of {several}"], source=file)
    if policies:
        return policies[0]
    if by_source:
        raise ConfigError(
            [
                "ingress.replication_policy: missing, so the name of a topic does not say where it comes from; "
                "`replicator status` lists the destinations"
            ],
            source=file,
        )
    return DefaultReplicationPolicy(ingress.replication_policy_separator)


def _naming(policy: ReplicationPolicy, by_source: bool) -> ReplicationPolicy:
    """The identity policy names heartbeats and MirrorMaker 2's own topics as the default one, whatever its alias is."""
    from formats.policies.names import DefaultReplicationPolicy, IdentityReplicationPolicy

    if isinstance(policy, IdentityReplicationPolicy) and not by_source:
        return DefaultReplicationPolicy(policy.separator)
    return policy
