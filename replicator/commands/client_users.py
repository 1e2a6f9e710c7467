"""`replicator client users`: the SCRAM users of a cluster, which do not cross."""

from __future__ import annotations

from replicator.commands.client_cluster import Properties, Servers, mirror_client
from replicator.terminal.interrupt import interruptible
from replicator.terminal.output import AsJson, ConfigFile, print_json, print_text


@interruptible()
def users(
    *,
    config: ConfigFile = None,
    servers: Servers = None,
    properties: Properties = None,
    as_json: AsJson = False,
) -> None:
    """List the SCRAM users of this cluster, which have to be created in the other one by hand.

    Names only: a broker gives out no password, and nothing of a credential is stored in a bucket.
    """
    found = sorted(mirror_client(config, servers, properties, None).scram_users())
    if as_json:
        print_json(found)
    else:
        print_text("\n".join(found) or "this cluster has no SCRAM users")
