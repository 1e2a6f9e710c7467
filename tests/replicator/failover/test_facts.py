"""What a failover knows of its source: of a topic that was created again, before anything of it has arrived, and of the
groups."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from formats.control.group_snapshot import (
    CommittedOffset,
    GroupSnapshot,
    SnapshotGroup,
    TopicCommits,
    encode_group_snapshot,
)
from formats.control.keys import groups_prefix, watermarks_prefix
from formats.control.watermarks import SourceWatermarks, TopicWatermarks, encode_watermarks
from formats.errors import TargetError
from formats.incarnation import Incarnation
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.messages.ledger import Failover, FailoverPhase
from formats.segment import OffsetRange, SourcePartition
from infra.archive.generations import Generations
from infra.archive.source_reports import SourceReports
from ingress.routing.archived import ArchivedTopic
from ingress.routing.succession import ArchivedIncarnation
from replicator.failover.facts import FailoverSources
from replicator.failover.plan import ArrivingPartition, FailoverPlan
from replicator.status.ingress_partition import IngressPartition
from tests.fakes.surroundings import FailingStore, HandClock
from tests.ingress.world import source_settings


def partitions(
    claimed: str | None,
    reported: str,
    absent: tuple[OffsetRange, ...] = (),
    *,
    begun_at: int | None = None,
    forks: int = 0,
) -> list[ArrivingPartition]:
    """Of a source that had 100 delivered offsets, and reports 60, from 7 on."""
    clock = HandClock()
    objects = FailingStore(clock)
    topic = TopicWatermarks(topic_id=reported, low=(7,), high=(60,), stable=(60,), position=(0,))
    marks = SourceWatermarks(cluster_id="c", writer="w", observed_at=clock.at, topics={"orders": topic})
    assert Generations(objects, watermarks_prefix("data", "us")).put(1, encode_watermarks(marks))
    report = SourceReports(objects, "data").refresh(["us"])["us"]
    route = ArchivedTopic(
        region="us",
        incarnations=[
            ArchivedIncarnation(incarnation=Incarnation("orders", one)) for one in ("", "id-fork1")[: 1 + forks]
        ],
        settings=source_settings("orders", "us.orders", region="us"),
    )
    routing = SimpleNamespace(chosen={"us.orders": [route]}, withheld=(), refused=(), unnamed=())
    found: Any = SimpleNamespace(routing=routing, catalogs={})
    clients: Any = SimpleNamespace(objects=objects, config=SimpleNamespace(s3=SimpleNamespace(prefix="data")))
    delivered = IngressPartition(
        key=CheckpointKey(SourcePartition("us", "orders", 0, "id-fork1" if forks else ""), "us.orders"),
        configured=True,
        checkpoint=Checkpoint(100, "id", HandClock().at, begun_at=begun_at),
        archive_start=0,
        archive_end=100,
        parked=None,
        skipped=0,
        is_over=False,
        proof=None,
        problems=(),
        absent=absent,
    )
    sources = FailoverSources(clients=clients, region="us", ledger=cast("Any", None))
    return list(sources._partitions([delivered], report, found, lambda _region, _path: claimed))


def plan(found: list[ArrivingPartition]) -> FailoverPlan:
    now = HandClock().at
    return FailoverPlan(
        region="us",
        now=now,
        state=None,
        heartbeat_at=now,
        watermarks_at=now,
        snapshot_at=now,
        partitions=found,
        members=1,
    )


def test_records_of_a_topic_that_was_created_again_are_lost() -> None:
    found = partitions("old", "new")
    assert [(str(one.source), one.missing) for one in found] == [("us/orders/0", None), ("us/orders@new/0", 60)]
    assert any("us/orders@new/0: 60 offsets did not arrive" in one for one in plan(found).problems)


def test_a_topic_of_one_id_or_of_an_unknown_one_is_the_one_that_is_reported() -> None:
    for claimed, reported in (("old", "old"), (None, "new"), ("old", "")):
        found = partitions(claimed, reported)
        assert [(str(one.source), one.missing) for one in found] == [("us/orders/0", 0)]
        assert plan(found).problems == []


@pytest.mark.parametrize(
    ("begun_at", "expected"), [(None, None), (0, None), (7, None), (8, OffsetRange(7, 7)), (50, OffsetRange(7, 49))]
)
def test_what_the_source_holds_before_where_delivery_began_is_never_here(
    begun_at: int | None, expected: OffsetRange | None
) -> None:
    [one] = partitions("id", "id", begun_at=begun_at)
    assert one.never_here == expected
    [again] = partitions("id", "id", begun_at=begun_at, forks=1)
    assert again.never_here is None, "the path before the fork has it"


def test_what_lacks_a_segment_is_not_complete() -> None:
    [whole], [broken] = partitions("old", "old"), partitions("old", "old", (OffsetRange(40, 49),))
    assert (whole.missing, whole.complete_as_of) == (0, HandClock().at)
    assert (broken.missing, broken.complete_as_of) == (10, None)


def stored_snapshot(objects: FailingStore, number: int) -> None:
    commits = TopicCommits.of("id", {0: CommittedOffset(next_offset=5)})
    group = SnapshotGroup(kind="classic", state="empty", members=0, topics={"orders": commits})
    found = GroupSnapshot(cluster_id="c", writer="w", observed_at=HandClock().at, groups={"g": group})
    assert Generations(objects, groups_prefix("data", "us")).put(number, encode_group_snapshot(found))


def test_a_failover_that_is_done_needs_its_snapshot_no_more() -> None:
    """It is thinned once the source is back, and writes others: the plan and the failback go on."""
    objects = FailingStore(HandClock())
    clients: Any = SimpleNamespace(objects=objects, config=SimpleNamespace(s3=SimpleNamespace(prefix="data")))
    sources = FailoverSources(clients=clients, region="us", ledger=cast("Any", None))
    done = Failover(region="us", epoch=1, phase=FailoverPhase.ACTIVE, at=HandClock().at, snapshot=1)
    assert sources._snapshot(done) is None
    stored_snapshot(objects, 2)
    newest = sources._snapshot(done)
    assert newest is not None
    assert newest.generation == 2
    for under_way in (replace(done, left=("g",)), replace(done, phase=FailoverPhase.GROUPS)):
        with pytest.raises(TargetError, match="began with the group snapshot 1, which cannot be read any more"):
            sources._snapshot(under_way)
    stored_snapshot(objects, 1)
    chosen = sources._snapshot(done)
    assert chosen is not None
    assert chosen.generation == 1


def knows(objects: FailingStore) -> FailoverSources:
    clients: Any = SimpleNamespace(objects=objects, config=SimpleNamespace(s3=SimpleNamespace(prefix="data")))
    return FailoverSources(clients=clients, region="us", ledger=cast("Any", None))


def test_a_snapshot_before_the_newest_is_not_taken_for_the_newest() -> None:
    """Groups went on by it as if nothing had been committed since."""
    objects = FailingStore(HandClock())
    stored_snapshot(objects, 1)
    sources = knows(objects)
    assert sources._not_in(sources._snapshot(None)) == []
    assert Generations(objects, groups_prefix("data", "us")).put(2, b"of a newer program")
    for process in (sources, knows(objects)):
        found = process._snapshot(None)
        assert found is not None
        assert found.generation == 1
        [problem] = process._not_in(found)
        assert problem.startswith("the newest snapshot of consumer groups of us cannot be read")


def test_a_snapshot_that_cannot_be_read_is_not_one_that_has_not_arrived() -> None:
    objects = FailingStore(HandClock())
    assert Generations(objects, groups_prefix("data", "us")).put(1, b"of a newer program")
    sources = knows(objects)
    problems = sources._not_in(sources._snapshot(None))
    found = replace(plan([]), snapshot_at=None, not_in_snapshot=problems).problems
    assert any("cannot be read" in one for one in found)
    assert not any("has arrived" in one for one in found)


def test_what_a_snapshot_does_not_know_is_named() -> None:
    """A group whose offsets could not be read for a day went on where it stood the day before, and counted as exact."""
    objects = FailingStore(HandClock())
    stored_snapshot(objects, 1)
    sources = knows(objects)
    report = sources._snapshot(None)
    assert report is not None
    group = report.snapshot.groups["g"]
    earlier = HandClock().at - timedelta(days=1)
    stale = replace(group, topics={name: replace(one, as_of=earlier) for name, one in group.topics.items()})
    snapshot = replace(
        report.snapshot,
        groups={"g": stale},
        unreadable={"g": "no coordinator", "h": "no coordinator"},
        problems={"groups": "of 2 groups, first g: no coordinator", "listing": "a broker did not answer"},
    )
    assert sources._not_in(replace(report, snapshot=snapshot)) == [
        "groups of us are not known whole, listing: a broker did not answer",
        f"group g: its offsets are those of {earlier.isoformat(timespec='seconds')}, and could not be read since: no "
        "coordinator",
    ]
