"""The destinations of a restore's plan: topics that are created, and topics that exist."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from formats.errors import CheckpointConflict
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.policies.topic_configs import CREATED_WITH
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from replicator.restore.conflicts import ConflictKind
from tests.ingress.world import REGION, World
from tests.replicator.restore.planned import begin, existing, only, plan, reasons, select

# --- a destination that is created ------------------------------------------------------------------------------------


def test_a_created_topic_has_as_many_partitions_as_the_source_had() -> None:
    world = World()
    world.put(0, 9, partition=0, partitions=3)
    world.put(0, 9, partition=2, partitions=7)  # written later
    topic = only(plan(world))
    assert (topic.facts, topic.partition_count, reasons(topic)) == (None, 7, {})
    assert topic.configs == CREATED_WITH


def test_a_created_topic_has_at_least_what_is_stored() -> None:
    world = World()
    world.put(0, 9, partition=5, partitions=3)
    assert only(plan(world)).partition_count == 6


def test_an_archive_without_a_partition_count_is_a_conflict() -> None:
    world = World()
    for p in (0, 3):
        world.put(0, 9, partition=p, partitions=None)
    topic = only(plan(world))
    assert set(reasons(topic)) == {ConflictKind.PARTITION_COUNT}
    assert "set it with --partition-count" in reasons(topic)[ConflictKind.PARTITION_COUNT]
    topic = only(plan(world, accept=[ConflictKind.PARTITION_COUNT]))
    assert (topic.refused, topic.partition_count) == (False, 4)
    topic = only(plan(world, partition_count=6))
    assert (reasons(topic), topic.partition_count) == ({}, 6)


def test_fewer_partitions_than_are_stored_are_a_conflict() -> None:
    world = World()
    world.put(0, 9, partition=3)
    topic = only(plan(world, partition_count=3))
    assert set(reasons(topic)) == {ConflictKind.FEWER_PARTITIONS}
    assert topic.partition_count == 3


def test_values_with_ids_of_schemas_are_warned_of() -> None:
    world = World()
    world.put(0, 0, value=b"plain")
    assert only(plan(world)).warnings == []
    world.put(1, 1, value=b"\0\0\0\0\x29x")
    [warning] = only(plan(world)).warnings
    assert warning.startswith("values of t look as if they carry ids of schemas (41): ")
    assert warning.endswith(f"`replicator schemas restore --archive-region {REGION}`")


def test_a_created_topic_has_room_for_the_largest_record() -> None:
    world = World()
    world.put(0, 0)
    world.put(1, 1, value=bytes(2_000_000))
    world.put(2, 2)
    room = int(only(plan(world)).configs["max.message.bytes"])
    assert 2_000_000 < room < 2_001_000
    topic_configs = {"max.message.bytes": "5000000", "retention.ms": "1"}
    assert only(plan(world, configs=topic_configs)).configs == {**CREATED_WITH, **topic_configs}


def test_a_destination_deleted_since_the_restore_began_is_not_complete() -> None:
    world = World()
    world.put(0, 9)
    begin(world, 10)
    found = plan(world, accept=list(ConflictKind))
    assert [c.kind for c in only(found).conflicts] == [ConflictKind.OTHER_TARGET]
    assert found.refused


# --- a destination that exists ----------------------------------------------------------------------------------------


def test_an_empty_topic_is_used_as_it_is() -> None:
    topic = only(plan(existing(partitions=4), partition_count=9))
    assert (reasons(topic), topic.configs, topic.partition_count) == ({}, {}, 4)
    assert topic.facts is not None


def test_settings_for_a_topic_that_exists_are_warned_of() -> None:
    world = existing(partitions=4)
    configs = {"retention.ms": "7"}
    found = only(plan(world, partition_count=9, replication_factor=3, configs=configs))
    assert found.warnings == [
        "t exists, and a restore changes no settings of such a topic: "
        "--topic-config retention.ms=7, --partition-count 9, --replication-factor 3 is ignored"
    ]
    assert only(plan(existing(partitions=4), partition_count=4)).warnings == []
    begin(world)
    assert only(plan(world, partition_count=9)).warnings == [], "by an earlier run of this restore"


def test_foreign_data_is_found() -> None:
    world = existing()
    world.broker.append(TopicPartition("t", 1), b"theirs")
    assert set(reasons(only(plan(world)))) == {ConflictKind.FOREIGN_DATA}
    world.broker.trim(TopicPartition("t", 1), 1)
    assert not reasons(only(plan(world))), "none is left"


def test_records_of_other_partitions_are_foreign_to_a_whole_topic_only() -> None:
    world = existing(partitions=2)
    world.broker.append(TopicPartition("t", 1), b"somebody else's")
    assert set(reasons(only(plan(world)))) == {ConflictKind.FOREIGN_DATA}
    assert not reasons(only(plan(world, select(partitions=[0]))))
    assert set(reasons(only(plan(world, select(partitions=[1]))))) == {ConflictKind.FOREIGN_DATA}


def test_records_of_this_restore_are_not_foreign() -> None:
    world = existing()
    world.broker.append(TopicPartition("t", 0), b"ours")
    begin(world)
    topic = only(plan(world))
    assert not reasons(topic)
    assert sorted((p.source.partition, p.next_offset) for p in topic.partitions) == [(0, 5), (1, 0)]


def test_a_restore_is_not_resumed_into_another_incarnation() -> None:
    world = existing()
    begin(world, topic_id="id-before")
    found = plan(world, accept=list(ConflictKind))
    assert [c.kind for c in only(found).conflicts] == [ConflictKind.OTHER_TARGET]
    assert found.refused


def test_conflicting_checkpoints_are_reported() -> None:
    world = existing()
    world.target.conflicts[CheckpointKey(SourcePartition(REGION, "t", 0), "t")] = CheckpointConflict("both")
    with pytest.raises(CheckpointConflict):
        plan(world)


def test_fewer_partitions_are_found() -> None:
    assert set(reasons(only(plan(existing(partitions=1))))) == {ConflictKind.FEWER_PARTITIONS}


NOW_MS = 1_767_225_600_000  # of the clock that tests have
YEAR_MS = 365 * 24 * 3_600_000


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"max.message.bytes": "1000"}, ConflictKind.LARGE_RECORDS),
        ({"message.timestamp.type": "LogAppendTime"}, ConflictKind.TIMESTAMPS),
        ({"message.timestamp.before.max.ms": "1000"}, ConflictKind.TIMESTAMPS),
        ({"message.timestamp.difference.max.ms": "1000"}, ConflictKind.TIMESTAMPS),
        ({"retention.ms": str(YEAR_MS // 2)}, ConflictKind.RETENTION),
    ],
)
def test_configs_that_reject_the_records_are_found(settings: Mapping[str, str], what: ConflictKind) -> None:
    world = existing(settings=settings, stamp=NOW_MS - YEAR_MS)
    assert set(reasons(only(plan(world)))) == {what}
    topic = only(plan(world, accept=[what]))
    assert not topic.refused
    assert topic.clamps == (what is ConflictKind.TIMESTAMPS)


def test_timestamps_are_changed_only_if_that_is_accepted_known_beforehand_or_not() -> None:
    """Footers are read of a few segments."""
    world = existing(settings={"message.timestamp.before.max.ms": "1000"}, stamp=NOW_MS - YEAR_MS)
    assert not only(plan(world)).clamps
    assert only(plan(existing(), accept=[ConflictKind.TIMESTAMPS])).clamps


def test_limits_of_years_are_enough() -> None:
    settings = {"retention.ms": str(2 * YEAR_MS), "message.timestamp.before.max.ms": str(2 * YEAR_MS)}
    assert not reasons(only(plan(existing(settings=settings, stamp=NOW_MS - YEAR_MS))))


def test_a_topic_that_may_not_be_described_is_a_conflict() -> None:
    world = existing()
    world.admin.hides["t"] = "not authorised to describe t"
    found = plan(world, accept=list(ConflictKind), partition_count=2)
    assert [(c.kind, c.reason) for c in only(found).conflicts] == [
        (ConflictKind.NOT_ALLOWED, "not authorised to describe t")
    ]
    assert found.refused


def test_a_topic_that_the_cluster_would_not_create_is_a_conflict() -> None:
    world = World()
    world.put(0, 9)
    world.admin.refuses["t"] = "create topic t: INVALID_CONFIG (Unknown topic config name: retention)"
    assert reasons(only(plan(world)))[ConflictKind.NOT_ALLOWED] == world.admin.refuses["t"]
