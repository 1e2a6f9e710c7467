"""Builds the writer of destinations that keep the source's offsets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from formats.errors import ConfigError
from infra.kafka.client.properties import for_bounded_reads, lookup_properties
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.consumer.placement import KafkaPlacement
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore
from infra.kafka.producer.departure_log import DepartureLog
from infra.kafka.producer.preserved_log import TargetLogs
from infra.kafka.producer.preserving import PreserveLimits, PreservingWriter
from infra.runtime.poll_record import LONGEST
from ingress.settings import IngressSettings
from replicator.config import Config

SESSION = "session.timeout.ms"
DEFAULT_SESSION = timedelta(seconds=45)  # of the client, and of brokers that decide it
READ_WITHIN = timedelta(seconds=1)  # of what the last owner left: not to know costs a wait
PRODUCER_BYTES = 32 << 20  # records in flight: bounded, since none of them carries a fence


def preserving_writer(
    config: Config, settings: IngressSettings, admin: KafkaAdmin, placement: KafkaPlacement
) -> PreservingWriter:
    """Connects on first use: a source that keeps its offsets may be added by a reload. Raises ConfigError."""
    consumer = config.cluster.properties("consumer")
    check_preserving(config)
    return PreservingWriter(
        config.cluster.properties("producer"),
        transactional_id=f"{settings.group_id}.preserve",
        logs=TargetLogs(admin, for_bounded_reads(lookup_properties(consumer))),
        handover=DepartureLog(
            KafkaCheckpointStore(for_bounded_reads(consumer), settings.checkpoint_topic, read_within=READ_WITHIN)
        ),
        owns=placement.is_kept_up,
        limits=PreserveLimits(
            transaction_timeout=settings.transaction_timeout,
            take_over_wait=settings.preserve_wait,
            expires_after=settings.preserve_wait,
            hole_limit=settings.preserve_hole_limit,
            holes_per_second=settings.preserve_holes_per_second,
        ),
        checkpoint_topic=settings.checkpoint_topic,
        offset_map_topic=settings.offset_map_topic,
        memory_bytes=PRODUCER_BYTES,
    )


def check_preserving(config: Config) -> None:
    """At the start, and before a reload is applied: it may add the first source that keeps its offsets. Raises
    ConfigError."""
    if config.ingress is not None and config.ingress.preserves_offsets:
        check_session(config.ingress.preserve_wait, config.cluster.properties("consumer"))


def check_session(wait: timedelta, consumer: Mapping[str, str]) -> None:
    """Raises ConfigError when the group could give the partitions of a frozen process away before its records have
    expired."""
    given = consumer.get(SESSION)
    session = DEFAULT_SESSION if given is None else timedelta(milliseconds=int(given))
    if wait + LONGEST >= session:
        raise ConfigError(
            [
                f"ingress.preserve_wait: {wait.total_seconds():.0f} s must be shorter, by more than "
                f'{LONGEST.total_seconds():.0f} s, than kafka.consumer."{SESSION}", {session.total_seconds():.0f} s: '
                "else a frozen process could write to partitions that another one has taken over"
            ],
            source="offsets = 'preserve'",
        )
