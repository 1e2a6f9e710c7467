"""The writer of a restore that keeps the source's offsets, and how long its process certainly owns the restore.

    take over: fences every earlier process ─> what it sent may arrive for a while ─> the end stands still ─> records
    each second: the owner record again, in a transaction ─> until it began, no other process had taken over

Records of this writer carry no fence, unlike those of a transaction. So a process sends only for `LASTS` after it has
proved that it owns the restore, each record expires after `EXPIRES_AFTER`, and the next process waits for longer than
both together. Where no process of this restore can have sent a record, it does not wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta

from infra.contracts.cluster import TopicPartition
from infra.kafka.client.properties import for_bounded_reads, lookup_properties
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.producer.preserve_failures import Remedies
from infra.kafka.producer.preserved_log import TargetLogs
from infra.kafka.producer.preserving import PreserveLimits, PreservingWriter
from replicator.config import Config
from replicator.restore.conflicts import ConflictKind

PROVED_EVERY, LASTS = timedelta(seconds=1), timedelta(seconds=5)
EXPIRES_AFTER = timedelta(seconds=10)
TAKE_OVER_WAIT = LASTS + EXPIRES_AFTER + timedelta(seconds=1)
UNLIMITED = 10**9  # holes a second: nothing falls behind in a restore, it only takes longer

REMEDIES = Remedies(
    broken="Delete the topic {topic} and restore it again with another --id; or restore into another topic (--rename) "
    "without --preserve-offsets",
    long_hole=f"give the same command again with --accept {ConflictKind.LONG_HOLES}",
)


@dataclass(slots=True)
class ProvenOwnership:
    """Whether this process owned its restore certainly a moment ago. Safe to call from several threads: a call into the
    client that waits for long asks on a thread of its own."""

    prove: Callable[[], None]  # raises OwnershipLost, BrokerUnavailable
    monotonic: Callable[[], float] = field(default=time.monotonic)
    _proved_at: float | None = None
    _proving: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self) -> bool:
        """False when the proof itself took too long: try again. Raises OwnershipLost, BrokerUnavailable."""
        with self._proving:
            if self._proved_at is None or self._lasts() > PROVED_EVERY:
                asked_at = self.monotonic()
                self.prove()
                self._proved_at = asked_at
            return self._lasts() <= LASTS

    def _lasts(self) -> timedelta:
        assert self._proved_at is not None
        return timedelta(seconds=self.monotonic() - self._proved_at)


def preserving_writer(
    config: Config,
    admin: KafkaAdmin,
    *,
    transactional_id: str,
    prove: Callable[[], None],
    new: Collection[TopicPartition],
    transaction_timeout: timedelta,
    hole_limit: int,
    checkpoint_topic: str,
    offset_map_topic: str,
    memory_bytes: int,
) -> PreservingWriter:
    """`transactional_id`: that of the restore, which was taken over; those of the partitions begin with it. `new`:
    partitions that no process of this restore can have sent a record to. Raises ConfigError."""
    consumer = config.cluster.properties("consumer")
    return PreservingWriter(
        config.cluster.properties("producer"),
        transactional_id=f"{transactional_id}.preserve",
        logs=TargetLogs(admin, for_bounded_reads(lookup_properties(consumer))),
        owns=ProvenOwnership(prove),
        limits=PreserveLimits(
            transaction_timeout=transaction_timeout,
            take_over_wait=TAKE_OVER_WAIT,
            expires_after=EXPIRES_AFTER,
            hole_limit=hole_limit,
            holes_per_second=UNLIMITED,
        ),
        checkpoint_topic=checkpoint_topic,
        offset_map_topic=offset_map_topic,
        memory_bytes=memory_bytes,
        is_new=frozenset(new).__contains__,
        remedies=REMEDIES,
    )
