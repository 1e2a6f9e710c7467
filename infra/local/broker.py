"""One Kafka broker of the embedded stack: broker and controller in one Java process (KRaft), or one of several brokers
(`cluster.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.local.data_folder import new_id
from infra.local.errors import LocalStackError
from infra.local.kafka_process import KafkaProcess, KafkaRuntime
from infra.local.ports import HOST
from infra.local.server import START_TIMEOUT, Server

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence
    from datetime import timedelta
    from pathlib import Path

    from infra.local.process import Process, Supervisor

ASK_SECONDS = 2.0
NODE_ID = 1

DEFAULTS: Mapping[str, str] = {
    # one broker has to be enough
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    # groups and transactions that time out within a test
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # a killed broker can start again once the session of its previous process has ended
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # half of what an idle broker costs is a record of the controller every 500 ms
    "metadata.max.idle.interval.ms": "30000",
    # records of years ago are produced into topics with the default retention: every five minutes, the default, the
    # broker would delete them between a write and its read
    "log.retention.check.interval.ms": "86400000",
    # topics are created explicitly
    "auto.create.topics.enable": "false",
    # small: the default takes 128 MiB of the heap at once
    "log.cleaner.dedupe.buffer.size": "16777216",
}
_AUTHORISED: Mapping[str, str] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # every connection to a listener without SASL: tests, controller and broker
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A further address of a broker. `config`: the broker's properties of this listener alone, without the prefix
    `listener.name.{name}.`."""

    name: str  # in capital letters
    protocol: str
    config: Mapping[str, str] = field(default_factory=dict)


SECURED = Listener(
    name="SECURED",
    protocol="SASL_PLAINTEXT",
    config={
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",  # allows new principals while it runs; each test has its own
        "scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMembership:
    """A broker's membership of a cluster of several brokers, whose controller is another process."""

    cluster_id: str
    node_id: int
    voter: str  # the controller, as `controller.quorum.voters` names it


class Broker:
    """A broker with its ports and its data. Not safe to start and stop from two threads at once."""

    def __init__(
        self,
        *,
        region: str,
        folder: Path,
        log: Path,
        runtime: KafkaRuntime,
        owner: Supervisor,
        config: Mapping[str, str],
        abort: threading.Event,
        java_options: tuple[str, ...] = (),
        proxy_ports: tuple[int, int] | None = None,
        secured: bool = False,
        listeners: Sequence[Listener] = (),
        membership: ClusterMembership | None = None,
    ) -> None:
        """`config` overrides DEFAULTS, `java_options` (heap) override ours. `abort`: set it to end every wait.
        `proxy_ports`: the broker also listens on the first one, and advertises the second one, a proxy, to clients
        that connect there. `secured`: adds a listener whose principals have the permissions that ACLs give; see
        `secured_bootstrap`. `listeners`: further ones; see `bootstrap_of`. With either, principals have the
        permissions that ACLs give, and clients of `bootstrap` all of them. `membership`: in a cluster of
        several brokers; None: a cluster of its own."""
        self.region = region
        self.log = log
        self._config = dict(config)
        self._proxy_ports = proxy_ports
        self._further = (*((SECURED,) if secured else ()), *listeners)
        self._membership = membership
        self._kafka = KafkaProcess(
            name=f"broker-{region}",
            folder=folder,
            log=log,
            runtime=runtime,
            owner=owner,
            abort=abort,
            java_options=java_options,
        )
        self._server = Server(
            name=self._kafka.name,
            log=log,
            port_count=2 + len(self._further),
            launch=self._launch,
            answers=self._answers,
            abort=abort,
        )

    @property
    def name(self) -> str:
        return self._server.name

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` for a client. Fixed by the first start; raises LocalStackError before it."""
        return self._server.address

    @property
    def data_dir(self) -> Path:
        """Logs, in a folder `{topic}-{partition}` for each partition. Must not be changed while the broker runs."""
        return self._kafka.data_dir

    @property
    def secured_bootstrap(self) -> str:
        """`bootstrap.servers` of the listener with SASL_PLAINTEXT and SCRAM-SHA-256. Its principals have only the
        permissions that ACLs give; a client of `bootstrap` is anonymous, and a super user. Raises LocalStackError
        before the first start, and for a broker that is not secured."""
        if SECURED not in self._further:
            raise LocalStackError(f"{self.name} has no secured listener: start it with secured=True")
        return self.bootstrap_of(SECURED.name)

    def bootstrap_of(self, name: str) -> str:
        """`bootstrap.servers` of one of the further listeners. Raises LocalStackError before the first start."""
        names = [one.name for one in self._further]
        return f"{HOST}:{self._server.ports[2 + names.index(name)]}"

    def start(self, timeout: timedelta = START_TIMEOUT) -> None:
        """Start the broker; it answers clients when this returns. The first start chooses ports; later starts keep them
        and the data.

        No error if it runs. Raises LocalStackError with the log's path and last lines.
        """
        self._server.start(timeout)

    def stop(self) -> None:
        """SIGTERM: a clean shutdown. The data stays. No error if it does not run."""
        self._server.stop()

    def kill(self) -> None:
        """SIGKILL. The data stays as it was at that moment."""
        self._server.kill()

    def burn(self) -> None:
        """SIGKILL, and delete the data. The next start makes another cluster at the same address, or a cluster member
        that has to copy everything from the others."""
        self._server.kill()
        self._kafka.erase_data()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, until `thaw`."""
        self._server.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self._server.thaw()

    def restore(self) -> None:
        """Thaw or start it, if it was frozen, stopped or killed."""
        self._server.restore()

    def check(self) -> None:
        """Raises LocalStackError if it should run and has died."""
        self._server.check()

    def _launch(self, ports: tuple[int, ...]) -> Process:
        port, controller_port, *further = ports
        member = self._membership
        cluster_id = new_id() if member is None else member.cluster_id
        return self._kafka.launch(
            {**DEFAULTS, **self._role(controller_port), **self._listeners(port, controller_port, further)}
            | self._config,
            cluster_id,
        )

    def _role(self, controller_port: int) -> Mapping[str, str]:
        if self._membership is not None:
            return {
                "process.roles": "broker",
                "node.id": str(self._membership.node_id),
                "controller.quorum.voters": self._membership.voter,
            }
        return {
            "process.roles": "broker,controller",
            "node.id": str(NODE_ID),
            "controller.quorum.voters": f"{NODE_ID}@{HOST}:{controller_port}",
        }

    def _listeners(self, port: int, controller_port: int, further: Sequence[int]) -> Mapping[str, str]:
        clients = [f"PLAINTEXT://{HOST}:{port}"]
        advertised, protocols = list(clients), ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"]
        if self._proxy_ports is not None:
            own_port, proxy_port = self._proxy_ports
            clients.append(f"PROXIED://{HOST}:{own_port}")
            advertised.append(f"PROXIED://{HOST}:{proxy_port}")
            protocols.append("PROXIED:PLAINTEXT")
        configs: dict[str, str] = {}
        for one, own_port in zip(self._further, further, strict=True):
            clients.append(f"{one.name}://{HOST}:{own_port}")
            advertised.append(clients[-1])
            protocols.append(f"{one.name}:{one.protocol}")
            configs |= {f"listener.name.{one.name.lower()}.{name}": value for name, value in one.config.items()}
        ours = [f"CONTROLLER://{HOST}:{controller_port}"] if self._membership is None else []
        return {
            "listeners": ",".join([*clients, *ours]),
            "advertised.listeners": ",".join(advertised),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(protocols),
            "controller.listener.names": "CONTROLLER",
            **(_AUTHORISED if self._further else {}),
            **configs,
        }

    def _answers(self) -> bool:
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            found = client.list_topics(timeout=ASK_SECONDS)
        except KafkaException:
            return False
        if not self._kafka.is_of_cluster(str(found.cluster_id)):
            return False  # another process has its port
        if self._membership is None:
            return len(found.brokers) == 1
        return self._membership.node_id in found.brokers  # the controller has unfenced it
