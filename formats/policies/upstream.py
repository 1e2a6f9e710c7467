"""What the names of a cluster's topics say about the clusters upstream of it: the answers of MirrorMaker 2's
`MirrorClient` and `RemoteClusterUtils`. Pure.

    us.heartbeats, eu.us.heartbeats, us.orders       upstream: us, eu; us is 1 hop away, and 2 by way of eu
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from formats.policies.names import ReplicationPolicy, hops
from formats.topic_selection import is_internal


def heartbeat_topics(policy: ReplicationPolicy, topics: Iterable[str]) -> frozenset[str]:
    """Of this cluster and of any upstream."""
    return frozenset(filter(policy.is_heartbeats_topic, topics))


def checkpoint_topics(policy: ReplicationPolicy, topics: Iterable[str]) -> frozenset[str]:
    return frozenset(filter(policy.is_checkpoints_topic, topics))


def offset_sync_topics(policy: ReplicationPolicy, topics: Iterable[str]) -> frozenset[str]:
    """Topics that hold which offset of a source is which one of a target."""
    return frozenset(one for one in topics if one.startswith("mm2-offset-syncs") and policy.is_mm2_internal_topic(one))


def remote_topics(
    policy: ReplicationPolicy, topics: Iterable[str], source: str | None = None, own: Collection[str] = ()
) -> frozenset[str]:
    """Topics that come from another cluster, or from the cluster `source`. Internal ones are left out, also those that
    no filter selects: `replicator.*`, and `own`, further topics of the replicator."""
    named = (topic for topic in topics if not policy.is_internal_topic(topic) and not is_internal(topic, own))
    found = {topic: policy.topic_source(topic) for topic in named}
    return frozenset(
        topic for topic, alias in found.items() if alias is not None and (source is None or alias == source)
    )


def upstream_clusters(policy: ReplicationPolicy, topics: Collection[str]) -> frozenset[str]:
    """Aliases of all clusters whose heartbeats arrive here, also by way of others."""
    return frozenset(alias for topic in heartbeat_topics(policy, topics) for alias in hops(policy, topic))


def replication_hops(policy: ReplicationPolicy, topics: Collection[str], upstream: str) -> int | None:
    """How many flows lie between the cluster `upstream` and this one, on the shortest way that heartbeats take; None:
    none of its heartbeats arrives."""
    ways = [list(hops(policy, topic)) for topic in heartbeat_topics(policy, topics)]
    return min((way.index(upstream) + 1 for way in ways if upstream in way), default=None)
