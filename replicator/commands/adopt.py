"""`replicator adopt`: claim an archive path for the current incarnation of a topic."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from formats.errors import TargetError
from replicator.terminal.output import AsJson, ConfigFile, load_config, print_json, print_text

if TYPE_CHECKING:
    from infra.archive.control import ControlStore
    from infra.contracts.cluster import ClusterAdmin
    from replicator.config import Config


def adopt(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic of this region.")],
    fork: Annotated[
        bool, typer.Option("--fork", help="Continue in a new archive path: the topic's log has forked.")
    ] = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Claim a topic's archive path for its current incarnation.

    Egress continues behind the archived segments. If the path is claimed for an earlier incarnation, the current one
    gets a path of its own. A repeated call changes nothing, except with brokers that have no topic ids: there it begins
    the next incarnation. It writes at once.

    With --fork: the source's log lost records that were archived, and egress holds the partition. The archive continues
    in a new path, which begins where the two logs differ; partitions whose log did not fork continue there, too.
    Ingress delivers it according to `on_recreate`, like a topic that was created again.
    """
    from egress.topics.claims import adopt as adopt_claim
    from egress.topics.fork_adoption import adopt_fork
    from infra.runtime.lifecycle import SystemClock
    from replicator.services.clients import Clients

    settings = load_config(config)
    with Clients(settings) as reach:
        refuse_foreign(reach.control, reach.admin, settings, topic)
        reach.require_conditional_writes()
        if fork:
            claimed = adopt_fork(reach.store, reach.control, reach.admin, settings.region, topic, clock=SystemClock())
        else:
            claimed = adopt_claim(reach.control, reach.admin, settings.region, topic, SystemClock())
    path = claimed.source(settings.region, 0).path
    if as_json:
        print_json({"topic": topic, "place": path, "topic_id": claimed.topic_id, "cluster_id": claimed.cluster_id})
    else:
        print_text(f"{settings.region}/{path} is of topic id {claimed.topic_id} in cluster {claimed.cluster_id}")


def refuse_foreign(control: ControlStore, admin: ClusterAdmin, settings: Config, topic: str) -> None:
    """Raise TargetError if the topic is not in this cluster, but in the archive of another region that is delivered
    here."""
    from replicator.terminal.source_names import of_another_region

    if settings.ingress is None or topic in admin.describe([topic]):
        return
    for region in sorted({*settings.ingress.regions} - {settings.region}):
        if control.claims.of(region, topic) is not None or control.claims.has_objects(region, topic):
            raise TargetError(f"adopt {topic}: {of_another_region(f'{region}/{topic}', region, settings.region)}")
