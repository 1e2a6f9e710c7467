"""A Kafka cluster of several brokers, for tests of replication while brokers stop and start.

    controller (a process of its own, which is never disturbed) ──> broker 1, 2, 3

By default every topic has a replica on each broker, and accepts records with acks=all as long as all but one of them
are in sync. Therefore any one broker may be down; when two are down, records wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from infra.local.broker import DEFAULTS, Broker, ClusterMembership
from infra.local.data_folder import new_id
from infra.local.errors import LocalStackError
from infra.local.kafka_process import KafkaProcess, KafkaRuntime
from infra.local.ports import HOST, listens
from infra.local.server import START_TIMEOUT, Server
from infra.local.waiting import wait_until

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable
    from pathlib import Path

    from confluent_kafka.admin import PartitionMetadata, TopicMetadata  # type: ignore[attr-defined]

    from infra.local.process import Process, Supervisor

BROKERS = 3
CONTROLLER_ID = 100
REQUEST_SECONDS = 5.0
IN_SYNC_WITHIN = timedelta(seconds=60)
ELECTED_WITHIN = timedelta(seconds=30)
RETRY_INTERVAL = timedelta(milliseconds=200)


def _replicated(brokers: int) -> Mapping[str, str]:
    copies, least = str(brokers), str(brokers - 1)
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": least,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": least,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": least,
    }


class BrokerCluster:
    """Brokers by node id, from 1. Not safe to start and stop from two threads at once."""

    def __init__(
        self,
        *,
        region: str,
        folder: Path,
        log_dir: Path,
        runtime: KafkaRuntime,
        owner: Supervisor,
        abort: threading.Event,
        config: Mapping[str, str],
        java_options: tuple[str, ...] = (),
        size: int = BROKERS,
    ) -> None:
        """`config` overrides the defaults of every broker. `abort`: set it to end every wait."""
        self.region = region
        self._folder, self._log_dir, self._size = folder, log_dir, size
        self._cluster_id = new_id()
        settings = {**_replicated(size), **config}
        self._controller = _Controller(
            region=region,
            folder=folder / "controller",
            log=log_dir / f"controller-{region}.log",
            runtime=runtime,
            owner=owner,
            abort=abort,
            config={**DEFAULTS, **settings},
            cluster_id=self._cluster_id,
        )
        self._make_broker = partial(
            Broker, runtime=runtime, owner=owner, config=settings, abort=abort, java_options=java_options
        )
        self._brokers: dict[int, Broker] = {}
        self._client: AdminClient | None = None

    @property
    def brokers(self) -> Mapping[int, Broker]:
        return MappingProxyType(self._brokers)

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` with every broker, also those that are down. Raises LocalStackError before the start."""
        if not self._brokers:
            raise LocalStackError(f"cluster {self.region} was never started: it has no ports yet")
        return ",".join(broker.bootstrap for broker in self._brokers.values())

    def start(self, timeout: timedelta = START_TIMEOUT) -> None:
        """Every broker answers clients when this returns. No error if all run. Raises LocalStackError."""
        self._controller.start(timeout)
        if not self._brokers:
            self._brokers = {node_id: self._broker(node_id) for node_id in range(1, self._size + 1)}
        with ThreadPoolExecutor(self._size, thread_name_prefix="cluster") as pool:
            for started in [pool.submit(broker.start, timeout) for broker in self._brokers.values()]:
                started.result()

    def restore(self) -> None:
        """Thaw or start every process that was frozen, stopped or killed."""
        self._controller.restore()
        for broker in self._brokers.values():
            broker.restore()

    def check(self) -> None:
        """Raises LocalStackError if a process should run and has died."""
        self._controller.check()
        for broker in self._brokers.values():
            broker.check()

    # --- replication

    def leader(self, topic: str, partition: int) -> int | None:
        """Node id; None while the partition has no leader, or no broker answers."""
        found = self._partition(topic, partition)
        return found.leader if found is not None and found.leader >= 0 else None

    def in_sync(self, topic: str, partition: int) -> frozenset[int]:
        """Node ids of the replicas that have every acknowledged record; empty while no broker answers."""
        found = self._partition(topic, partition)
        return frozenset(found.isrs if found is not None else ())

    def wait_until_in_sync(self, node_ids: Iterable[int], topics: Iterable[str] = ()) -> None:
        """Wait until of every partition exactly the replicas on these brokers are in sync, and one of them leads.
        `topics`: only those; empty: all topics. Raises LocalStackError."""
        wanted, names = frozenset(node_ids), frozenset(topics)
        behind: list[str] = []

        def are_in_sync() -> bool:
            found = self._topics()
            if found is None:
                behind[:] = ["no broker answers"]
                return False
            behind[:] = [f"{name}: missing" for name in sorted(names - found.keys())]
            behind.extend(
                f"{name}/{each.id}: replicas {each.replicas}, in sync {each.isrs}, leader {each.leader}"
                for name, topic in found.items()
                if not names or name in names
                for each in topic.partitions.values()
                if set(each.isrs) != wanted & set(each.replicas) or each.leader not in wanted
            )
            return not behind

        if not wait_until(are_in_sync, IN_SYNC_WITHIN, interval=RETRY_INTERVAL):
            raise LocalStackError(
                f"the replicas on brokers {sorted(wanted)} were not in sync within {IN_SYNC_WITHIN}: "
                + "; ".join(behind[:10])
            )

    def elect(self, topic: str, partition: int, *, unclean: bool = False) -> None:
        """Elect the partition's preferred replica; `unclean`: if no in-sync replica is alive, elect any live replica,
        even if it lacks records. Returns once there is a leader. No error when no election is needed. Raises
        KafkaException."""
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        # without a timeout: the client raises SystemError when it is given one (confluent-kafka 2.16.1)
        election = self._admin().elect_leaders(kind, [TopicPartition(topic, partition)])

        def answered() -> bool:
            if not election.done():
                self._topics()  # the client may wait for a dead broker until it has newer metadata
            return election.done()

        if not wait_until(answered, ELECTED_WITHIN, interval=RETRY_INTERVAL):
            raise LocalStackError(f"no answer to an election of {topic}/{partition} within {ELECTED_WITHIN}")
        for error in election.result().values():
            if error is not None and error.code() != KafkaError.ELECTION_NOT_NEEDED:
                raise KafkaException(error)
        if not wait_until(lambda: self.leader(topic, partition) is not None, IN_SYNC_WITHIN, interval=RETRY_INTERVAL):
            raise LocalStackError(f"{topic}/{partition} has no leader {IN_SYNC_WITHIN} after an election")

    def _partition(self, topic: str, partition: int) -> PartitionMetadata | None:
        found = self._topics()
        return found[topic].partitions[partition] if found is not None and topic in found else None

    def _topics(self) -> Mapping[str, TopicMetadata] | None:
        """Metadata of all topics; None while no broker answers."""
        try:
            return self._admin().list_topics(timeout=REQUEST_SECONDS).topics
        except KafkaException:
            return None

    def _broker(self, node_id: int) -> Broker:
        """Called once the controller has its port."""
        name = f"{self.region}{node_id}"
        return self._make_broker(
            region=name,
            folder=self._folder / f"broker-{node_id}",
            log=self._log_dir / f"broker-{name}.log",
            membership=ClusterMembership(cluster_id=self._cluster_id, node_id=node_id, voter=self._controller.voter),
        )

    def _admin(self) -> AdminClient:
        """The client for all requests. It keeps connections to all brokers: otherwise it would wait busily for a dead
        one (librdkafka 2.16)."""
        if self._client is None:
            properties: dict[str, str | int | float | bool] = {
                "bootstrap.servers": self.bootstrap,
                "enable.sparse.connections": "false",
                "log_level": 0,
            }
            self._client = AdminClient(properties)
        return self._client


class _Controller:
    """The cluster's only controller: a process that is not a broker, so that any broker may stop."""

    def __init__(
        self,
        *,
        region: str,
        folder: Path,
        log: Path,
        runtime: KafkaRuntime,
        owner: Supervisor,
        abort: threading.Event,
        config: Mapping[str, str],
        cluster_id: str,
    ) -> None:
        """`config` overrides the controller's own settings: it decides on topic defaults and broker liveness."""
        self._config = dict(config)
        self._cluster_id = cluster_id
        self._kafka = KafkaProcess(
            name=f"controller-{region}", folder=folder, log=log, runtime=runtime, owner=owner, abort=abort
        )
        self._server = Server(
            name=self._kafka.name, log=log, port_count=1, launch=self._launch, answers=self._answers, abort=abort
        )

    @property
    def voter(self) -> str:
        return f"{CONTROLLER_ID}@{self._server.address}"

    def start(self, timeout: timedelta) -> None:
        self._server.start(timeout)

    def restore(self) -> None:
        self._server.restore()

    def check(self) -> None:
        self._server.check()

    def _launch(self, ports: tuple[int, ...]) -> Process:
        (port,) = ports
        settings = {
            "process.roles": "controller",
            "node.id": str(CONTROLLER_ID),
            "controller.quorum.voters": f"{CONTROLLER_ID}@{HOST}:{port}",
            "listeners": f"CONTROLLER://{HOST}:{port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            **self._config,
        }
        return self._kafka.launch(settings, self._cluster_id)

    def _answers(self) -> bool:
        """No client can connect to it, so its own log line counts."""
        return "Kafka Server started" in self._server.logged() and listens(self._server.port)
