"""The ledger of this cluster."""

from __future__ import annotations

from formats.messages.ledger import DEFAULT_LEDGER
from infra.contracts.internal_topics import Ledger
from infra.kafka.internal_topics.ensure import ensure_checkpoint_topic
from infra.kafka.internal_topics.ledger import KafkaLedger
from ingress.catalog.ownership import DryLedger
from replicator.config import Config
from replicator.services.clients import Clients

BROKERS_DEFAULT = -1  # replication factor


def ledger_of(config: Config, topic: str) -> KafkaLedger:
    """To be closed. Raises ConfigError."""
    return KafkaLedger(
        topic, consumer=config.cluster.properties("consumer"), producer=config.cluster.properties("producer")
    )


def ledger_in(clients: Clients, *, create: bool) -> Ledger:
    """The ledger of this cluster, closed with the clients. Without `create` one that is only read, and that may not
    exist. Raises BrokerUnavailable, TargetError."""
    config, settings = clients.config, clients.config.ingress
    topic = DEFAULT_LEDGER if settings is None else settings.ledger_topic
    if create:
        factor = BROKERS_DEFAULT if settings is None else settings.internal_replication_factor
        ensure_checkpoint_topic(clients.admin, topic, replication_factor=factor)
    elif topic not in clients.admin.describe([topic]):
        return DryLedger(None)
    ledger = ledger_of(config, topic)
    clients.close_later(ledger.close)
    return ledger if create else DryLedger(ledger)
