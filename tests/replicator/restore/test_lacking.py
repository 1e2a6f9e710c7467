"""A restore names what egress reported as archived and the archive does not hold."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from formats.control.claim import TopicClaim
from formats.control.keys import watermarks_prefix
from formats.int_range import IntRange
from formats.segment import OffsetRange
from formats.topic_selection import TopicPattern
from infra.archive.control import ControlStore
from replicator.config import from_mapping
from replicator.restore.conflicts import ConflictKind
from replicator.restore.plan import RestorePlan
from replicator.restore.restore import Options, Restore, Selection, TargetOptions
from tests.ingress.world import REGION, World
from tests.replicator.restore.history import Archive, History, Stored
from tests.replicator.restore.place import Commands, Place
from tests.replicator.restore.published import publish_watermarks, watermarks
from tests.replicator.restore.restoring import without_clients

CONFIG = from_mapping({"region": REGION, "kafka": {"bootstrap.servers": "b:1"}, "s3": {"bucket": "b"}})
ALL = IntRange(0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Of three partitions: the first lost its end, the second has nothing left, the third is whole."""
    world = World()
    for partition in (0, 2):
        world.put(0, 9, partition=partition, partitions=3)
    without_clients(world, monkeypatch)
    return world


def report(world: World, *, age: timedelta, ends: Sequence[int] = (20, 20, 10)) -> None:
    publish_watermarks(world.objects.memory, 1, watermarks(datetime.now(UTC) - age, {"t": ends}))


def planned(
    *accept: ConflictKind, offsets: IntRange = ALL, partitions: Sequence[int] | None = None, follow: bool = False
) -> RestorePlan:
    selection = Selection(region=REGION, topics=[TopicPattern("^.*")], offsets=offsets, partitions=partitions)
    options = Options(restore_id="r", follow=timedelta(seconds=1) if follow else None)
    with Restore(CONFIG, selection, TargetOptions(accept=list(accept)), options) as restore:
        return restore.plan()


def lacking(plan: RestorePlan) -> list[str]:
    return [f"{source} {offsets}" for source, offsets in plan.lacking]


def warned(plan: RestorePlan) -> list[str]:
    return [warning for warning in plan.warnings if warning.startswith("egress reported")]


def test_a_lost_end_and_a_lost_partition_are_named(world: World) -> None:
    report(world, age=timedelta(hours=2))
    plan = planned()
    assert lacking(plan) == ["a/t/0 [10,19]", "a/t/1 [0,19]"]
    (warning,) = warned(plan)
    assert warning.startswith("egress reported a/t/0 [10,19], a/t/1 [0,19] as archived an hour ago or earlier, and no ")
    assert lacking(planned(partitions=[2])) == []
    assert lacking(planned(offsets=IntRange(5, 14))) == ["a/t/0 [10,14]", "a/t/1 [5,14]"]


def test_accepted_it_is_a_warning_alone(world: World) -> None:
    report(world, age=timedelta(hours=2))
    plan = planned(ConflictKind.NOT_ARCHIVED)
    assert (lacking(plan), len(warned(plan))) == ([], 1)


def test_what_is_explained_is_not_lacking(world: World) -> None:
    report(world, age=timedelta(hours=2))
    world.record_gap(10, 19)
    world.record_begin(5, partition=1)
    world.record_gap(5, 14, partition=1)
    assert lacking(planned()) == ["a/t/1 [15,19]"]


@pytest.mark.parametrize("age", [None, timedelta(minutes=50)], ids=["no report", "of the last hour"])
def test_without_an_old_report_nothing_is_known(world: World, age: timedelta | None) -> None:
    """Between buckets, watermarks may be copied before the segments that they speak of."""
    if age is not None:
        report(world, age=age)
    plan = planned()
    assert (lacking(plan), warned(plan)) == ([], [])


def test_a_restore_that_goes_on_waits_for_it(world: World) -> None:
    report(world, age=timedelta(hours=2))
    assert lacking(planned(follow=True)) == []


def test_the_report_is_not_of_a_topic_created_again(world: World) -> None:
    """The last incarnation is restored, which is younger than the report."""
    report(world, age=timedelta(hours=2))
    then = datetime.now(UTC) - timedelta(hours=3)
    control = ControlStore(world.objects.memory, "data")
    first = TopicClaim(topic_id="id-t", cluster_id="source", number=0, claimed_at=then)
    control.claims.record(REGION, "t", first)
    again = TopicClaim(topic_id="id-again", cluster_id="source", number=1, claimed_at=datetime.now(UTC))
    control.claims.record(REGION, "t@id-again", again)
    world.put(0, 4, incarnation="id-again", partitions=3)
    selection = Selection(region=REGION, topics=[TopicPattern("t")], incarnation="id-again")
    with Restore(CONFIG, selection, TargetOptions(), Options(restore_id="r")) as restore:
        assert lacking(restore.plan()) == []


@pytest.mark.integration
def test_the_command_ends_with_3(place: Place, commands: Commands) -> None:
    topic = place.unique("orders")
    Archive([History(0, "", [Stored(OffsetRange(0, 59), 0)], [], set())], has_second_life=False).write(
        place.objects, topic
    )
    found = watermarks(datetime.now(UTC) - timedelta(hours=2), {topic: (100,)})
    ours = replace(found.topics[topic], topic_id="first-life-of-this-topic")
    publish_watermarks(place.objects, 1, replace(found, topics={topic: ours}))
    code, text = commands.run("restore", topic, "--dry-run")
    assert (code, f"warning: egress reported a/{topic}/0 [60,99] as archived" in text) == (3, True), text
    code, text = commands.run("restore", topic)
    assert (code, f"missing: a/{topic}/0 [60,99], which egress reported as archived" in text) == (3, True), text
    code, text = commands.run(
        "restore", topic, "--accept", "not-archived", "--id", "again", "--rename", f"{topic}={topic}.2"
    )
    assert code == 0, text


def test_a_report_that_cannot_be_read_is_a_warning_and_what_is_stored_is_restored(world: World) -> None:
    report(world, age=timedelta(hours=2))
    (key,) = [one.key for one in world.objects.memory.list(watermarks_prefix("data", REGION))]
    world.objects.memory.delete_many([key])
    world.objects.memory.put_new(key, io.BytesIO(b"{"), 1)
    plan = planned()
    assert len(plan.partitions) == 2
    assert any(warning.startswith("how far egress of a had archived is not known") for warning in plan.warnings)
