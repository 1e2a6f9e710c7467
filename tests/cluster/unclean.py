"""An unclean leader election, made on purpose: a partition's log loses its end, and its offsets go to other records.

leave_behind    one replica stops: its log ends here        1 2 3      ─> 1 2
(records are acknowledged by the others)
elect_behind    the others die, it comes back and leads          3     ─> 3 leads, 1 and 2 follow, and truncate
"""

from __future__ import annotations

from datetime import timedelta

from infra.local.cluster import BrokerCluster
from infra.local.waiting import wait_until

PATIENCE = timedelta(seconds=30)


def leave_behind(cluster: BrokerCluster, topic: str, partition: int) -> int:
    """Stops a follower of the partition. Its node id, once it is not in sync any more."""
    leader = cluster.leader(topic, partition)
    behind = next(node_id for node_id in cluster.brokers if node_id != leader)
    cluster.brokers[behind].stop()
    cluster.wait_until_in_sync(cluster.brokers.keys() - {behind}, [topic])
    return behind


def elect_behind(cluster: BrokerCluster, topic: str, partition: int, behind: int) -> None:
    """Records that only the others have are gone for good when this returns; all brokers run, and are in sync. Other
    partitions lose nothing: they wait for a replica that is in sync."""
    others = cluster.brokers.keys() - {behind}
    for node_id in others:
        cluster.brokers[node_id].kill()
    cluster.brokers[behind].start()
    # the controller takes the dead for alive until their sessions end
    assert wait_until(lambda: cluster.leader(topic, partition) is None, PATIENCE), "a dead broker still leads"
    cluster.elect(topic, partition, unclean=True)
    assert cluster.leader(topic, partition) == behind
    for node_id in others:
        cluster.brokers[node_id].start()
    cluster.wait_until_in_sync(cluster.brokers)
