"""The cluster that a drill restores into: a disposable one, and at the end without what the drill created."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from formats.errors import BrokerUnavailable, ReplicatorError, TargetError
from infra.archive.claims import ClaimStore
from infra.contracts.catalog import CatalogAdmin
from infra.contracts.cluster import ClusterAdmin
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from replicator.config import Config, KafkaSettings


@dataclass(frozen=True, slots=True)
class ScratchCluster:
    admin: ClusterAdmin
    catalog: CatalogAdmin
    name: str

    def require_none_of(self, clusters: Mapping[str, str]) -> None:
        """Raises TargetError when it is one of `clusters`: by cluster id what it is. Raises BrokerUnavailable."""
        own = self.admin.cluster_id()
        if own and own in clusters:
            raise TargetError(
                f"a drill creates and deletes topics, and {self.name} is cluster {own}, {clusters[own]}: give the file "
                "of a disposable cluster"
            )

    def delete(self, topics: Collection[str]) -> Sequence[str]:
        """Delete those of `topics` that exist. Returns which of them are left, each with the reason."""
        try:
            there = self.admin.describe(topics)
        except ReplicatorError as error:
            return [f"topics of the drill may be left in {self.name}: {error}"]
        left: list[str] = []
        for topic in sorted(there):
            try:
                self.catalog.delete_topic(topic)
            except ReplicatorError as error:
                left.append(f"topic {topic} is left in {self.name}: {error}")
        return left


def open_scratch(settings: KafkaSettings, source: str) -> ScratchCluster:
    """`source`: the file that names the cluster."""
    admin = KafkaAdmin(settings.properties("admin"))
    return ScratchCluster(admin, KafkaCatalogAdmin(admin.connection), f"the cluster of {source} ({settings.servers})")


def cluster_id_of(config: Config) -> str:
    """Empty when `config` names no cluster, or while that does not answer."""
    if config.kafka is None:
        return ""
    try:
        return KafkaAdmin(config.kafka.properties("admin")).cluster_id()
    except BrokerUnavailable:
        return ""


def claimed_from(claims: ClaimStore, region: str, paths: Collection[str], pool: Executor) -> Collection[str]:
    """The ids of the clusters that the segments below archive paths are of. A request for each. Raises
    StoreUnavailable, MalformedEvent."""
    found = pool.map(lambda path: claims.of(region, path), paths)
    return {claim.cluster_id for claim in found if claim is not None and claim.cluster_id}
