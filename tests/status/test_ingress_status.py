from __future__ import annotations

from datetime import timedelta
from io import BytesIO

import pytest

from replicator.checkpoint import Checkpoint, CheckpointKey, Parked, Skipped
from replicator.control import RecordedGap
from replicator.control_store import ControlStore
from replicator.coverage import joined
from replicator.errors import StoreUnavailable
from replicator.protocols import TopicFacts
from replicator.segment import OffsetRange, SourcePartition
from replicator.status.ingress import IngressPartition, IngressSources, IngressStatus, judged
from tests.fakes.cluster_facts import FakeGroups
from tests.fakes.executors import HandExecutor
from tests.ingress.world import World, key, source_settings

GROUP = "replicator.ingress"


class Target:
    def __init__(self, *, members: int = 1, **source: object) -> None:
        self.world = World(source_settings(**source))  # type: ignore[arg-type]
        self.groups = FakeGroups(members={GROUP: members})
        self.control = ControlStore(self.world.objects, "data")
        self.world.broker.create("copy", partitions=2)

    def look(self) -> IngressStatus:
        world = self.world
        return IngressSources(
            settings=world.settings,
            own_topics=world.settings.own_topics,
            admin=world.admin,
            groups=self.groups,
            checkpoints=world.target.checkpoint_store(),
            store=world.store,
            control=self.control,
        ).look(HandExecutor())

    def rows(self) -> dict[str, tuple[int | None, int | None, int]]:
        """Checkpoint, archive end and lag by source."""
        return {
            str(p.key.source): (p.checkpoint.next_offset if p.checkpoint else None, p.archive_end, p.lag)
            for p in self.look().partitions
        }


def test_archive_and_checkpoints_side_by_side() -> None:
    target = Target()
    target.world.put(10, 19)
    target.world.put(0, 4, partition=1)
    target.world.put(0, 4, topic="unwanted")
    target.world.set_checkpoint(15)
    assert target.rows() == {"a/t/0": (15, 20, 5), "a/t/1": (None, 5, 5)}
    assert target.look().problems == []


def test_a_checkpoint_whose_archive_is_gone_is_still_shown() -> None:
    target = Target()
    target.world.set_checkpoint(15)
    assert target.rows() == {"a/t/0": (15, None, 0)}


def test_a_destination_that_the_file_does_not_name_any_more_has_no_lag() -> None:
    target = Target()
    target.world.put(0, 9)
    old = CheckpointKey(SourcePartition("a", "t", 0), "copy.old")
    target.world.target.checkpoints[old] = Checkpoint(2, "id", target.world.clock.at)
    status = target.look()
    assert [(p.key.destination_topic, p.configured, p.lag) for p in status.partitions] == [
        ("copy", True, 10),
        ("copy.old", False, 0),
    ]
    assert status.problems == []


def test_a_parked_partition_is_told_wherever_it_went() -> None:
    target = Target()
    target.world.put(0, 9)
    target.world.set_checkpoint(4)
    target.world.target.parked[key()] = Parked(4, "too large", target.world.clock.at)
    target.world.target.skipped += [Skipped(key=key(), offsets=OffsetRange(1, 2), reason="x", at=target.world.clock.at)]
    status = target.look()
    (parked,) = status.parked
    assert (parked.key, parked.skipped) == (key(), 2)
    assert status.problems == ["a/t/0 -> copy: parked at 4 since 2026-01-01T00:00:00+00:00: too large"]
    target.world.set_checkpoint(5)
    assert target.look().parked == []


def test_a_later_life_in_the_archive_is_no_lag_until_it_is_delivered() -> None:
    target = Target()
    life = CheckpointKey(SourcePartition("a", "t", 0, "life"), "copy")
    target.world.peek.objects.put_new(f"data/a/t@life/0/0/{0:020d}-{9:020d}", BytesIO(b""), 0)
    assert target.rows() == {"a/t@life/0": (None, 10, 0)}
    target.world.target.checkpoints[life] = Checkpoint(2, "id-copy", target.world.clock.at)
    assert target.rows() == {"a/t@life/0": (2, 10, 8)}


def test_a_refused_topic_is_told_when_everybody_is_dead() -> None:
    target = Target(members=0)
    target.world.put(0, 9)
    target.world.admin.hides["copy"] = "not authorised to see topic copy"
    process = target.world.process()
    process.turn(3)
    process.stop()
    (parked,) = target.look().parked
    assert (parked.key, parked.lag) == (key(), 10)
    assert "parked without a position" in parked.problems[0]
    assert "not authorised" in parked.problems[0]


def test_a_life_with_a_topic_of_its_own_is_delivered_there() -> None:
    """Nothing waits for a policy: the policy gave it a destination."""
    target = Target(on_recreate="new-topic")
    target.world.broker.create("copy.LifeLife", partitions=1)
    target.world.put(0, 4)
    target.world.put(0, 9, life="LifeLifeLife")
    life = CheckpointKey(SourcePartition("a", "t", 0, "LifeLifeLife"), "copy.LifeLife")
    assert [p.key for p in target.look().partitions] == [key(), life]
    assert target.rows() == {"a/t/0": (None, 5, 5), "a/t@LifeLifeLife/0": (None, 10, 10)}
    target.world.target.checkpoints[life] = Checkpoint(2, "id-copy.LifeLife", target.world.clock.at)
    assert target.rows()["a/t@LifeLifeLife/0"] == (2, 10, 8)
    assert [p.configured for p in target.look().partitions] == [True, True]


def test_recorded_gaps_are_no_missing_segments() -> None:
    target = Target()
    target.world.put(0, 4)
    target.world.put(8, 9)
    target.world.set_checkpoint(5)
    assert target.look().problems == [
        "a/t/0 -> copy: offsets [5,7] are in no segment, and no gap was recorded for them"
    ]
    target.control.record_gap(
        RecordedGap(
            source=SourcePartition("a", "t", 0),
            offsets=OffsetRange(5, 7),
            reason="retention",
            low=8,
            high=9,
            recorded_at=target.world.clock.at,
        )
    )
    assert target.look().problems == []


def test_nobody_at_work() -> None:
    target = Target(members=0)
    target.world.put(0, 9)
    assert target.look().problems == ["no ingress process is in group replicator.ingress, and 10 offsets wait"]


def test_what_cannot_be_read_is_no_answer() -> None:
    target = Target()
    target.world.objects.away.add("list")
    with pytest.raises(StoreUnavailable):
        target.look()


@pytest.mark.parametrize(
    ("checkpoint_id", "partitions", "partition", "wanted"),
    [
        ("id-copy", 2, 0, ""),
        ("", 2, 0, ""),
        ("earlier", 2, 0, "created again"),
        ("id-copy", 2, 2, "at least 3"),
    ],
)
def test_the_destination_is_looked_at(checkpoint_id: str, partitions: int, partition: int, wanted: str) -> None:
    world = World()
    found: IngressPartition = judged(
        key(partition),
        configured=True,
        checkpoint=Checkpoint(3, checkpoint_id, world.clock.at - timedelta(hours=1)),
        archived=joined([OffsetRange(0, 9)]),
        gaps=(),
        parked=None,
        skipped=(),
        target=TopicFacts("copy", "id-copy", partitions),
    )
    assert [wanted in p for p in found.problems] == ([True] if wanted else [])
