"""Writes positions into the topic of another replicator in this cluster: Kafka Connect's offsets, or the Go
replicator's checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from formats.coverage import end_of
from formats.errors import TargetError
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey, still_parked
from formats.messages.foreign_positions import Record
from formats.segment import SourcePartition
from infra.archive.forward_listing import covered
from infra.runtime.crash_points import Step, durable
from replicator.services.clients import Clients
from replicator.services.export_plan import Export, ancestor_exports, connect_exports, due_records
from replicator.services.foreign_kind import ForeignKind

WITHIN = timedelta(seconds=30)
MEMORY_BYTES = 8 << 20


_PARTITIONS: Mapping[ForeignKind, int] = {ForeignKind.CONNECT_OFFSETS: 25, ForeignKind.ANCESTOR: 1}
"""Of a topic that is created; 25 is Kafka Connect's default."""
_PARTITIONERS: Mapping[ForeignKind, str] = {
    ForeignKind.CONNECT_OFFSETS: "murmur2_random",
    ForeignKind.ANCESTOR: "consistent_random",
}
"""By which each program distributes its keys: compaction removes its earlier record only in the same partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTopic:
    """`alias`: of the source cluster in MirrorMaker 2. `connector`: None: the one that the topic names. `group_id`: of
    the other program's processes."""

    kind: ForeignKind
    topic: str
    group_id: str
    alias: str = ""
    connector: str | None = None


def planned(
    clients: Clients, foreign: ForeignTopic, positions: Mapping[CheckpointKey, Checkpoint], now: datetime
) -> list[Export]:
    """Reads the topic, if it exists. Raises TargetError, MalformedEvent, and what store and cluster raise."""
    present = _present(clients, foreign.topic)
    if foreign.kind is ForeignKind.CONNECT_OFFSETS:
        return connect_exports(positions, present, alias=foreign.alias, connector=foreign.connector)

    def archive_end(source: SourcePartition) -> int:
        return end_of(covered(clients.store, source).runs)

    return ancestor_exports(positions, present, archive_end, now)


def refuse_running(clients: Clients, foreign: ForeignTopic, positions: Mapping[CheckpointKey, Checkpoint]) -> None:
    """Raises TargetError while either program runs: ours would deliver on, and the other has read its position."""
    parked = clients.checkpoints.parked()
    moving = [key for key, one in positions.items() if key not in parked or not still_parked(parked[key], one)]
    own = clients.ingress.group_id
    if moving and (members := clients.groups.facts(own).members):
        raise TargetError(
            f"group {own} has {members} member(s), and {moving[0].source} is not parked: its position would be behind "
            "what is delivered, and the other program repeat that. Stop ingress first"
        )
    if members := clients.groups.member_count(foreign.group_id):
        raise TargetError(
            f"group {foreign.group_id} has {members} member(s): the other program runs, reads its positions when it "
            "starts, and writes its own over them. Stop it first"
        )


def write(clients: Clients, foreign: ForeignTopic, exports: Sequence[Export]) -> None:
    """After an exception any of them may be written; repeating all is harmless. Creates the topic if there is none."""
    from infra.kafka.client.acknowledged_writer import AcknowledgedWriter  # noqa: PLC0415 -- loads the Kafka client
    from infra.kafka.client.idempotent_producer import producer_properties  # noqa: PLC0415 -- likewise

    records = due_records(exports)
    if not records:
        return
    if foreign.topic not in clients.admin.describe([foreign.topic]):
        with durable(Step.CREATE_INTERNAL_TOPIC):
            clients.admin.create_topic(
                foreign.topic,
                partitions=_PARTITIONS[foreign.kind],
                replication_factor=clients.ingress.internal_replication_factor,
                configs={"cleanup.policy": "compact"},
            )
    properties = producer_properties(clients.config.cluster.properties("producer"), memory_bytes=MEMORY_BYTES)
    writer = AcknowledgedWriter({**properties, "partitioner": _PARTITIONERS[foreign.kind]}, foreign.topic, WITHIN)
    try:
        with durable(Step.EXPORT_POSITIONS):
            writer.write([(key or b"", value) for key, value in records])
    finally:
        writer.close()


def _present(clients: Clients, topic: str) -> Sequence[Record]:
    from infra.kafka.internal_topics.whole_topic import read_whole  # noqa: PLC0415 -- loads the Kafka client

    if topic not in clients.admin.describe([topic]):
        return ()
    return read_whole(clients.config.cluster.properties("consumer"), topic)
