"""The ownership ledger on a compacted topic: read whole when something is to change, written record by record."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta

from formats.messages.ledger import LedgerEntry, Ownership, acl_key, encode, encode_key, ownership
from formats.policies.acls import AclBinding
from infra.kafka.client.acknowledged_writer import AcknowledgedWriter
from infra.kafka.client.idempotent_producer import producer_properties
from infra.kafka.internal_topics.whole_topic import read_whole
from infra.runtime.crash_points import Step, durable
from infra.runtime.log_fields import ERROR, NEXT, TOPIC

LEDGER_PARTITION = 0  # the only one that is written, as of the checkpoint topic
MEMORY_BYTES = 1 << 20

log = logging.getLogger(__name__)


class KafkaLedger:
    """A Ledger. Calls from several threads are serialised."""

    def __init__(
        self,
        topic: str,
        *,
        consumer: Mapping[str, object],
        producer: Mapping[str, object],
        within: timedelta = timedelta(seconds=30),
    ) -> None:
        """`within`: limit of a read, and of a write. Connects on first use. Raises ConfigError."""
        self._topic, self._consumer, self._within = topic, consumer, within
        unbatched = {**producer_properties(producer, memory_bytes=MEMORY_BYTES), "linger.ms": 0}
        self._writer = AcknowledgedWriter(unbatched, topic, within, partition=LEDGER_PARTITION)
        self._lock = threading.Lock()
        self._problem = ""

    def read(self) -> Ownership:
        found, problem = ownership(read_whole(self._consumer, self._topic, within=self._within))
        if problem and problem != self._problem:
            log.warning(
                "malformed_ledger_entry",
                extra={TOPIC: self._topic, ERROR: problem, NEXT: "skipped; find out what else writes to this topic"},
            )
        self._problem = problem
        return found

    def write(self, entries: Sequence[LedgerEntry]) -> None:
        with self._lock, durable(Step.RECORD_OWNERSHIP):
            self._writer.write([(encode_key(entry), encode(entry)) for entry in entries])

    def remove_acls(self, bindings: Sequence[AclBinding]) -> None:
        with self._lock, durable(Step.RECORD_OWNERSHIP):
            self._writer.write([(acl_key(binding), None) for binding in bindings])

    def close(self) -> None:
        """May be called twice."""
        with self._lock:
            self._writer.close()
