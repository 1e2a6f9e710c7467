"""The examples of docs/formats.md, by the program's own encoders."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from egress.start.commit_metadata import CommitMetadata
from formats.control import catalog, group_snapshot, heartbeat, restore_cut, schemas, watermarks
from formats.control.archive_begin import ArchiveBegin, encode_begin
from formats.control.claim import TopicClaim, encode_topic_claim
from formats.control.fork import LogFork, encode_fork
from formats.control.gap import RecordedGap, encode_gap
from formats.control.lease import Lease, encode_lease
from formats.control.quarantine import Quarantined, encode_quarantined
from formats.footer import SegmentFooter, SegmentOrigin
from formats.messages import delivery_checkpoint, departure, group_claim, ledger, segment_events
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey, Parked, Skipped, Waiting
from formats.messages.map_key import MapKey, encode_map_key
from formats.parquet.footer_json import RowGroup, encode
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import ConfigSource, ConfigValue
from formats.records.digest import digest_of
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition, format_key
from infra.archive import compaction_runs, job_heartbeats, proofs
from tests.formats.sample_records import Row, batch_of

AT = datetime(2026, 11, 21, 16, 21, 43, tzinfo=UTC)
TOPIC_ID, CLUSTER_ID = "bR1uYcXNQ6yUZqv1DmYw5A", "5L6g3nShT-eMCtK--X86sw"
WRITER = "host-1:4711:8a3f00c1"
REFUSED = "describe group mails: GROUP_AUTHORIZATION_FAILED; allow DESCRIBE on the group"
SOURCE = SourcePartition("us-east-1", "orders", 3)
SEGMENT = Segment(SOURCE, 0, OffsetRange(1000, 1199))
KEY_OF_CHECKPOINT = CheckpointKey(SOURCE, "us.orders")


def _footer() -> str:
    """Of a segment with two records, indented for people. What it says of stored bytes is made up: real ones depend on
    the version of the compressor."""
    rows: list[Row] = [
        {"offset": 1000, "timestamp": 1_763_742_103_000, "key": b"a", "value": b"first", "headers": None},
        {"offset": 1199, "timestamp": 1_763_742_104_000, "key": None, "value": None, "headers": [("h", b"x")]},
    ]
    batch = batch_of([{"timestamp_type": 0, **row} for row in rows])
    digest = digest_of([batch])
    footer = SegmentFooter(
        segment=SEGMENT,
        origin=SegmentOrigin(
            topic_id=TOPIC_ID,
            cluster_id=CLUSTER_ID,
            source_partition_count=6,
            last_leader_epoch=4,
            created_at=AT,
            writer="kafka-segment-replicator 0.1.0",
            role="egress",
            created_by="example_app",
        ),
        count=2,
        first_offset=1000,
        last_offset=1199,
        raw_bytes=8,
        largest_record_bytes=6,
        min_timestamp_ms=1_763_742_103_000,
        max_timestamp_ms=1_763_742_104_000,
        digest=digest,
        keyless_count=1,
    )
    group = RowGroup(
        first_offset=1000, last_offset=1199, stored_bytes=430, stored_crc=0x0123456789ABCDEF, digest=digest
    )
    return json.dumps(json.loads(encode(footer, [group.pack()])), indent=2)


def _indented(packed: bytes) -> str:
    """Unpacked, and in lines of people's length: one for each member, and one for each topic or group."""
    message = json.loads(gzip.decompress(packed))
    lines = []
    for name, value in sorted(message.items()):
        if name == "topics" and isinstance(value, list):
            inner = ",\n".join(f"    {json.dumps(one, sort_keys=True)}" for one in value)
            lines.append(f'  "topics": [\n{inner}\n  ]')
        elif name == "groups":
            inner = ",\n".join(
                f"    {json.dumps(one)}: {json.dumps(group, sort_keys=True)}" for one, group in value.items()
            )
            lines.append(f'  "groups": {{\n{inner}\n  }}')
        else:
            lines.append(f"  {json.dumps(name)}: {json.dumps(value, sort_keys=True)}")
    return "{\n" + ",\n".join(lines) + "\n}"


def _catalog() -> catalog.Catalog:
    kept, compacted = (ConfigValue(one, ConfigSource.DEFAULT) for one in ("604800000", "delete"))
    shared = {"cleanup.policy": compacted, "retention.ms": kept}
    own = {**shared, "retention.ms": ConfigValue("86400000", ConfigSource.TOPIC)}
    topics = [
        catalog.CatalogTopic(name=name, topic_id=id_, partitions=count, replication_factor=3, configs=configs)
        for name, id_, count, configs in (
            ("invoices", "9sJx0OZ1T6uZy2o1r5mF2A", 3, shared),
            ("orders", TOPIC_ID, 6, own),
            ("payments", "w3Qb0pVbT2a1yB1s7F0k4g", 1, shared),
        )
    ]
    binding = AclBinding(
        resource_type="TOPIC",
        resource_name="orders",
        pattern_type="LITERAL",
        principal="User:shop",
        host="*",
        operation="WRITE",
        permission="ALLOW",
    )
    return catalog.Catalog(
        cluster_id=CLUSTER_ID,
        writer=WRITER,
        observed_at=AT,
        topics={one.name: one for one in topics},
        removed=(
            catalog.RemovedTopic(
                name="carts", topic_id="Zk1lqk2kQ1mN4l7x3sJ8aQ", removed_at=AT, lineage=("b2Vtq1ZJQ0y8n4k7Rr6w1A",)
            ),
        ),
        acls=frozenset({binding}),
    )


def _watermarks() -> watermarks.SourceWatermarks:
    topic = watermarks.TopicWatermarks(
        topic_id=TOPIC_ID,
        low=(0, 500),
        high=(1200, 900),
        stable=(1200, 890),
        position=(1200, None),
        settled=frozenset({0}),
    )
    return watermarks.SourceWatermarks(
        cluster_id=CLUSTER_ID,
        writer=WRITER,
        observed_at=AT,
        topics={"orders": topic},
        settled_at=AT + timedelta(milliseconds=40),
    )


def _cut() -> restore_cut.Cut:
    return restore_cut.Cut(
        region="us-east-1",
        wanted_at=AT + timedelta(seconds=12),
        generation=4711,
        observed_at=AT,
        settled_at=AT + timedelta(milliseconds=40),
        next_observed_at=AT + timedelta(seconds=30),
        is_transactional=False,
        topics={"orders": restore_cut.CutTopic(topic_id=TOPIC_ID, ends=(1200, 890), settled=frozenset({0}))},
    )


def _groups() -> group_snapshot.GroupSnapshot:
    def committed(topic_id: str, **offsets: int) -> group_snapshot.TopicCommits:
        found = {int(name[1:]): group_snapshot.CommittedOffset(next_offset=offset) for name, offset in offsets.items()}
        return group_snapshot.TopicCommits.of(topic_id, found)

    orders = replace(committed(TOPIC_ID, p0=1200, p1=890), leader_epochs=(4, 4))
    carts = committed("Zk1lqk2kQ1mN4l7x3sJ8aQ", p3=7)
    carts = replace(carts, metadata=("host-2",), as_of=AT - timedelta(minutes=7))
    return group_snapshot.GroupSnapshot(
        cluster_id=CLUSTER_ID,
        writer=WRITER,
        observed_at=AT,
        read_until=AT + timedelta(seconds=2),
        groups={
            "billing": group_snapshot.SnapshotGroup(
                kind=group_snapshot.CONSUMER, state="stable", members=2, topics={"orders": orders}
            ),
            "mails": group_snapshot.SnapshotGroup(
                kind=group_snapshot.CLASSIC, state="empty", members=0, topics={"carts": carts}
            ),
        },
        unsupported={"alerts": "other"},
        unreadable={"mails": REFUSED},
        problems={"groups": f"of 1 groups, first mails: {REFUSED}"},
    )


def _schemas() -> schemas.SchemaSnapshot:
    referred = schemas.SchemaReference(name="Line", subject="lines", version=1)
    return schemas.SchemaSnapshot(
        writer=WRITER,
        observed_at=AT,
        schemas={
            7: schemas.Schema(text='{"name":"Line","size":4,"type":"fixed"}'),
            12: schemas.Schema(text='{"items":"Line","type":"array"}', references=(referred,)),
        },
        versions=(
            schemas.SubjectVersion(subject="lines", version=1, id=7),
            schemas.SubjectVersion(subject="orders-value", version=3, id=12, is_deleted=True),
        ),
        compatibility="BACKWARD",
        subject_compatibility={"orders-value": "NONE"},
    )


def examples() -> Mapping[str, str]:
    """By the name that stands in the comment before the block."""
    gap = RecordedGap(
        source=SOURCE,
        offsets=OffsetRange(400, 499),
        reason="the source dropped them before they were archived",
        low=500,
        high=1200,
        recorded_at=AT,
    )
    accepted = RecordedGap(
        source=SOURCE,
        offsets=OffsetRange(700, 709),
        reason="object lost in both buckets",
        low=500,
        high=1200,
        recorded_at=AT,
        is_accepted=True,
    )
    claim = TopicClaim(topic_id=TOPIC_ID, cluster_id=CLUSTER_ID, number=0, claimed_at=AT)
    behind_fork = TopicClaim(
        topic_id=TOPIC_ID, cluster_id=CLUSTER_ID, number=1, claimed_at=AT, fork=1, forked_from="orders"
    )
    fork = LogFork(
        source=SOURCE,
        next_offset=1200,
        leader_epoch=4,
        end_offset=1150,
        found_at=AT,
        evidence="the broker has leader epoch 4 up to 1150",
    )
    intent = ledger.CreationIntent(name="us.orders", at=AT)
    owned_topic = ledger.OwnedTopic(
        name="us.orders", topic_id="Vd0iJ2bDSQeHnCqZBfSb4w", source="us-east-1/orders", at=AT, lineage=(CLUSTER_ID,)
    )
    group_write = ledger.GroupWrite(
        group="shop.billing", topic="us.orders", partitions=(0, 1), offsets=(1200, 1180), at=AT, upstream=(1310, 1290)
    )
    group_hold = ledger.GroupHold(group="shop.billing", topic="us.orders", is_held=True, at=AT)
    failover = ledger.Failover(
        region="us-east-1",
        epoch=1,
        phase=ledger.FailoverPhase.ACTIVE,
        at=AT,
        snapshot=311,
        left=("shop.billing",),
    )
    taken_back = ledger.TakenBack(region="eu-west-1", handover=1, at=AT, made_at=AT)
    owned_acl = ledger.OwnedAcl(
        binding=AclBinding(
            resource_type="TOPIC",
            resource_name="us.orders",
            pattern_type="LITERAL",
            principal="User:billing",
            host="*",
            operation="READ",
            permission="ALLOW",
        ),
        at=AT,
    )
    group = group_claim.GroupClaim(
        id="9f1c2e6a", number=1, group_id="replicator.ingress", cluster_id=CLUSTER_ID, over="", at=AT
    )
    skipped = Skipped(key=KEY_OF_CHECKPOINT, offsets=OffsetRange(4, 4), reason="larger than any consumer takes", at=AT)
    owned = "replicator.restore.b4e6c912eb.0"
    encoded: dict[str, bytes] = {
        "claim": encode_topic_claim(claim),
        "claim behind a fork": encode_topic_claim(behind_fork),
        "begin": encode_begin(ArchiveBegin(offset=500, reason="earliest", recorded_at=AT)),
        "gap": encode_gap(gap),
        "accepted gap": encode_gap(accepted),
        "fork": encode_fork(fork),
        "quarantine": encode_quarantined(
            Quarantined(
                stored_at=AT,
                reason="row group 0: found stored bytes with CRC 4f81975b351495f2, wanted 04d31bcb55a7b438",
                found_at=AT + timedelta(hours=9),
            )
        ),
        "lease": encode_lease(Lease(token=7, owner="host-1:4711:8a3f00c1", until=AT + timedelta(minutes=1))),
        "compaction-runs": compaction_runs.encode(
            {
                "nightly": compaction_runs.CompletedRun(
                    began_at=datetime(2026, 11, 21, 1, tzinfo=UTC),
                    ended_at=datetime(2026, 11, 21, 1, 20, 11, tzinfo=UTC),
                    failed_plans=0,
                    quarantined=0,
                )
            }
        ),
        "proven": proofs.encode({3: proofs.Proof(at=AT, next_offset=1200, is_whole=True)}),
        "heartbeat": job_heartbeats.encode(
            job_heartbeats.Heartbeat(owner="host-1:4711:8a3f00c1", jobs=("nightly",), until=AT + timedelta(minutes=10))
        ),
        "writer heartbeat": heartbeat.encode_heartbeat(
            heartbeat.WriterHeartbeat(writer=WRITER, written_at=AT, interval_ms=5000, catalog=7, watermarks=4711)
        ),
        "created event": segment_events.encode(segment_events.Created(SegmentInfo(SEGMENT, 104_857, AT))),
        "removed event": segment_events.encode(segment_events.Removed(SEGMENT, AT)),
        "checkpoint key": delivery_checkpoint.encode_key(KEY_OF_CHECKPOINT),
        "checkpoint": delivery_checkpoint.encode(
            Checkpoint(1200, "Vd0iJ2bDSQeHnCqZBfSb4w", AT, Author.EXACTLY_ONCE, begun_at=500)
        ),
        "parked key": delivery_checkpoint.encode_parked_key(KEY_OF_CHECKPOINT),
        "parked": delivery_checkpoint.encode_parked(
            Parked(4, "Broker: Message size too large; raise the topic's max.message.bytes", AT)
        ),
        "waiting": delivery_checkpoint.encode_waiting(Waiting(1200, AT)),
        "skipped key": delivery_checkpoint.encode_skipped_key(skipped),
        "skipped": delivery_checkpoint.encode_skipped(skipped),
        "group claim key": group_claim.encode_claim_key(group),
        "group claim": group_claim.encode_claim(group),
        "offset map key": encode_map_key(MapKey(KEY_OF_CHECKPOINT, "Vd0iJ2bDSQeHnCqZBfSb4w"), 977),
        "group write key": ledger.encode_key(group_write),
        "group write": ledger.encode(group_write),
        "group hold key": ledger.encode_key(group_hold),
        "group hold": ledger.encode(group_hold),
        "failover key": ledger.encode_key(failover),
        "failover": ledger.encode(failover),
        "taken back key": ledger.encode_key(taken_back),
        "taken back": ledger.encode(taken_back),
        "intent key": ledger.encode_key(intent),
        "intent": ledger.encode(intent),
        "owned topic key": ledger.encode_key(owned_topic),
        "owned topic": ledger.encode(owned_topic),
        "owned acl key": ledger.encode_key(owned_acl),
        "owned acl": ledger.encode(owned_acl),
        "cut key": delivery_checkpoint.CUT_KEY,
        "owner key": delivery_checkpoint.encode_owner_key(owned),
        "owner": delivery_checkpoint.encode_owner("host-1:4711:8a3f00c1"),
        "departure key": departure.encode_departure_key("replicator.ingress.preserve.us.orders.3"),
        "departure": departure.encode_departure(departure.Departure("host-1:4711:8a3f00c1", 1200)),
    }
    texts = {
        "segment key": format_key("data", SEGMENT),
        "footer": _footer(),
        "catalogue": _indented(catalog.encode_catalog(_catalog())),
        "watermarks": _indented(watermarks.encode_watermarks(_watermarks())),
        "cut": _indented(restore_cut.encode_cut(_cut())),
        "groups": _indented(group_snapshot.encode_group_snapshot(_groups())),
        "schemas": _indented(schemas.encode_schemas(_schemas())),
        "commit metadata": str(CommitMetadata(1000, 6, TOPIC_ID)),
    }
    return {**texts, **{name: data.decode() for name, data in encoded.items()}}
