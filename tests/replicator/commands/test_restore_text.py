"""The output of `replicator restore` for given plans and outcomes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from formats.control.gap import RecordedGap
from formats.policies.acls import AclBinding
from formats.segment import OffsetRange, SourcePartition
from infra.archive.control import ControlStore
from infra.contracts.cluster import TopicPartition
from replicator.commands.restore_destination import destination_lines
from replicator.commands.restore_moment import moment_lines
from replicator.commands.restore_output import plan_json, print_plan, print_result
from replicator.restore.progress import RestoreOutcome
from tests.fakes.kafka_catalog import FakeCatalogAdmin
from tests.ingress.world import REGION, World, source_topic
from tests.replicator.restore.planned import existing, plan, select
from tests.replicator.restore.published import publish_watermarks, watermarks
from tests.replicator.restore.restoring import Restoring, restorable


def test_one_style_of_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    world = restorable()
    world.put(0, 9)
    outcome = RestoreOutcome(
        source="a/t/0", target="copy/0", records=113_420, size_bytes=2048, next_offset=113_420, is_done=True
    )
    print_result(Restoring(world).plan, [outcome, outcome], (), timedelta(seconds=2), {})
    assert capsys.readouterr().out.splitlines() == [
        "from   to      records  size     next offset  state",
        *["a/t/0  copy/0  113,420  2.0 KiB       113420  done"] * 2,
        "226,840 records, 4.0 KiB in 2.0 s, 2.0 KiB a second",
    ]


def test_counts_without_those_of_an_earlier_attempt_are_at_least(capsys: pytest.CaptureFixture[str]) -> None:
    world = restorable()
    world.put(0, 9)
    outcome = RestoreOutcome(
        source="a/t/0", target="copy/0", records=5, size_bytes=2048, next_offset=10, is_done=True, is_partial=True
    )
    print_result(Restoring(world).plan, [outcome], (), timedelta(seconds=2), {})
    _, _, total, why = capsys.readouterr().out.splitlines()
    assert total.startswith("at least 5 records, 2.0 KiB")
    assert why.startswith("an earlier attempt of its Spark task restored a part: a/t/0: ")


@pytest.mark.parametrize(
    ("changes", "is_none"),
    [({}, True), ({"is_partial": True}, False), ({"expired": ((0, 9),)}, False), ({"missing": ((0, 9),)}, False)],
    ids=["done before", "by an earlier attempt", "expired", "missing"],
)
def test_nothing_was_left_to_do_where_all_was_there_before(
    capsys: pytest.CaptureFixture[str], changes: dict[str, Any], *, is_none: bool
) -> None:
    world = restorable()
    world.put(0, 9)
    outcome = RestoreOutcome(
        source="a/t/0", target="copy/0", records=0, size_bytes=0, next_offset=10, is_done=True, **changes
    )
    print_result(Restoring(world).plan, [outcome], (), timedelta(seconds=2), {})
    assert ("nothing was left to do" in capsys.readouterr().out) == is_none


def test_what_a_plan_says_of_its_moment() -> None:
    world, at = World(), datetime(2026, 3, 4, 12, tzinfo=UTC)
    for partition in (0, 1):
        world.put(0, 9, partition=partition)
    for number, ends, settled in ((1, (5, 7), True), (2, (6, 7), {"t": {1}})):  # a record came to t/0 meanwhile
        found = watermarks(at + (number - 1) * timedelta(minutes=1), {"t": ends}, settled=settled)
        publish_watermarks(world.objects.memory, number, found)
    wanted = at + timedelta(minutes=1, seconds=12)
    made = plan(world, select(at=wanted))
    assert list(moment_lines(made)) == [
        "as a was at 2026-03-04T12:01:12+00:00",
        "  watermarks 2, observed 12.0 s before 2026-03-04T12:01:12+00:00; none is newer",
        "  transactions over several partitions may be split that wrote to t/0; --transactional takes an earlier "
        "moment that splits none",
    ]
    made = plan(world, select(at=wanted, is_transactional=True))
    assert list(moment_lines(made)) == [
        "as a was at 2026-03-04T12:00:01+00:00, 71.0 s before 2026-03-04T12:01:12+00:00",
        "  watermarks 1, observed 72.0 s before 2026-03-04T12:01:12+00:00; the next ones 12.0 s before it",
        "  no transaction is split: every partition was settled at 2026-03-04T12:00:01+00:00",
    ]
    assert plan_json(made, None)["moment"] == {
        "wanted_at": "2026-03-04T12:01:12+00:00",
        "moment": "2026-03-04T12:00:01+00:00",
        "watermarks": {
            "generation": 1,
            "observed_at": "2026-03-04T12:00:00+00:00",
            "settled_at": "2026-03-04T12:00:01+00:00",
            "next_observed_at": "2026-03-04T12:01:00+00:00",
        },
        "transactional": True,
        "unsettled": [],
        "groups": None,
    }


def test_missing_is_counted_in_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    world = restorable()
    for start, end in ((0, 9), (2000, 2009), (3108, 3117)):
        world.put(start, end)
    for offsets in (OffsetRange(10, 19), OffsetRange(15, 1999)):  # retention joins them while it is planned
        gap = RecordedGap(
            source=SourcePartition(REGION, "t", 0),
            offsets=offsets,
            reason="retention",
            low=0,
            high=0,
            recorded_at=world.clock.now(),
        )
        ControlStore(world.objects, "data").gaps.record(gap)
    print_plan(Restoring(world).plan, None)
    head, row = capsys.readouterr().out.splitlines()[1:3]
    assert head.endswith("  in recorded gaps  missing")
    assert row.split()[-2:] == ["1,990", "1,098"]


def test_a_destination_that_is_created_as_its_source_was(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.put(0, 9)
    read, denied = (acl_of("alice", "READ"), acl_of("*", "DESCRIBE", "DENY"))
    world.publish_catalog(
        source_topic(configs={"segment.bytes": "1000", "retention.ms": "5", "min.insync.replicas": "2", "x": "y"}),
        acls=[read, denied, acl_of("bob", "READ")],
    )
    world.admin.refuses_config = "x"
    cluster = FakeCatalogAdmin(world.admin, bindings={acl_of("bob", "READ")})
    found = plan(world, configs_from="archive", acls="archive", acl_admin=cluster)
    [topic] = found.topics
    assert list(destination_lines(topic)) == [
        "t is created: 2 partitions, retention.ms=-1, segment.bytes=1000, message.timestamp.type=CreateTime, "
        "message.timestamp.before.max.ms=9223372036854775807, message.timestamp.after.max.ms=9223372036854775807, "
        "retention.bytes=-1",
        "  the source's topic is t in catalogue 1, observed at 2026-01-01T00:00:00+00:00",
        "  of the source's topic: segment.bytes=1000",
        "  retention.ms=-1 (the source has 5)",
        "  set at the source, and not taken: min.insync.replicas=2",
        "  x of the source's topic is left out: unknown config x",
        "  ACL is created: ALLOW READ on topic t to User:alice from *",
        "  ACL exists: ALLOW READ on topic t to User:bob from *",
        "  ACL is left out, as it denies this restore its destination: DENY DESCRIBE on topic t to User:* from *",
    ]
    print_plan(found, None)
    assert "retention.ms=-1 (the source has 5)" in capsys.readouterr().out
    [shown] = json.loads(json.dumps(plan_json(found, None)))["topics"]
    assert shown["configs"] == dict(topic.configs)
    assert shown["catalog"] == {"generation": 1, "observed_at": "2026-01-01T00:00:00+00:00"}
    assert shown["source_configs"] == {
        "taken": {"segment.bytes": "1000"},
        "held": {"retention.ms": "5"},
        "excluded": {"min.insync.replicas": "2"},
        "refused": {"x": "unknown config x"},
    }
    assert [len(shown["acls"][what]) for what in ("created", "existing", "left_out")] == [1, 1, 1]
    assert shown["purged"] == []


def test_a_destination_that_is_emptied() -> None:
    world = existing()
    world.broker.append(TopicPartition("t", 1), b"theirs", b"theirs")
    found = plan(world, purge=True)
    [topic] = found.topics
    assert list(destination_lines(topic)) == ["t/1 is emptied: offsets 0-1 are deleted"]
    [shown] = json.loads(json.dumps(plan_json(found, None)))["topics"]
    assert shown["purged"] == [{"partition": 1, "offsets": [0, 1]}]
    assert (shown["catalog"], shown["acls"], shown["objections"][0]["what"]) == (None, None, "purge")


def test_acls_that_cannot_be_restored() -> None:
    world = World()
    world.put(0, 9)
    [topic] = plan(world, acls="archive").topics
    assert list(destination_lines(topic))[1:] == ["  no ACLs are created: the archive has no catalogue of a"]


def acl_of(principal: str, operation: str, permission: str = "ALLOW") -> AclBinding:
    return AclBinding(
        resource_type="TOPIC",
        resource_name="t",
        pattern_type="LITERAL",
        principal=f"User:{principal}",
        host="*",
        operation=operation,
        permission=permission,
    )
