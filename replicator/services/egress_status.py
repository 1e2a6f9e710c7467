"""What the state of the archive is read from, of one configuration."""

from __future__ import annotations

from replicator.services.clients import Clients
from replicator.status.egress import EgressSources


def egress_sources(reach: Clients) -> EgressSources:
    """Raises ConfigError without [egress]."""
    config = reach.config
    if config.egress is None:
        raise config.without("egress", "; this command needs the topics that are archived")
    return EgressSources(
        region=config.region,
        settings=config.egress,
        own_topics=config.own_topics,
        admin=reach.admin,
        cluster_id=reach.cluster_id,
        groups=reach.groups,
        probe=reach.probe,
        store=reach.store,
        control=reach.control,
        proofs=reach.proofs,
    )
