"""The consumer groups of a source as they arrive, and as of when they are known."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from io import BytesIO

import pytest

from formats.control.group_snapshot import (
    CLASSIC,
    CommittedOffset,
    GroupSnapshot,
    SnapshotGroup,
    TopicCommits,
    encode_group_snapshot,
)
from formats.control.heartbeat import WriterHeartbeat, encode_heartbeat
from formats.control.keys import groups_prefix, heartbeat_prefix
from formats.errors import StoreUnavailable
from infra.archive.generations import Generations
from infra.archive.group_reports import GroupReport, GroupReports
from tests.fakes.surroundings import T0, FailingStore, HandClock

MINUTE = timedelta(minutes=1)


@dataclass
class Source:
    """Region a."""

    objects: FailingStore = field(default_factory=lambda: FailingStore(HandClock()))
    now: datetime = T0

    def publish(self, **offsets: int) -> int:
        """A snapshot with these groups, each with an offset in one partition; returns its number."""
        groups = {
            group_id: SnapshotGroup(
                kind=CLASSIC,
                state="empty",
                members=0,
                topics={"t": TopicCommits.of("id", {0: CommittedOffset(next_offset=offset)})},
            )
            for group_id, offset in offsets.items()
        }
        return self.put(GroupSnapshot(cluster_id="c", writer="w", observed_at=self.now, groups=groups))

    def put(self, snapshot: GroupSnapshot) -> int:
        generations = Generations(self.objects, groups_prefix("data", "a"))
        number = generations.newest() + 1
        assert generations.put(number, encode_group_snapshot(snapshot))
        return number

    def beat(self, groups: int, *, agrees: bool = True) -> None:
        generations = Generations(self.objects, heartbeat_prefix("data", "a"))
        at = self.now if agrees else None
        beat = WriterHeartbeat(writer="w", written_at=self.now, interval_ms=5000, groups=groups, groups_at=at)
        assert generations.put(generations.newest() + 1, encode_heartbeat(beat))

    def reports(self) -> GroupReports:
        return GroupReports(self.objects, "data")

    def report(self) -> GroupReport:
        return self.reports().refresh(["a"])["a"]


@pytest.fixture
def source() -> Source:
    return Source()


def test_a_region_without_a_snapshot_has_no_report(source: Source) -> None:
    source.beat(0)
    assert source.reports().refresh(["a", "b"]) == {}


def test_the_newest_counts_as_of_its_observation(source: Source) -> None:
    source.publish(g=1)
    source.now += MINUTE
    assert source.publish(g=2) == 2
    found = source.report()
    assert (found.generation, found.as_of, list(found.snapshot.groups)) == (2, source.now, ["g"])
    assert found.snapshot.groups["g"].topics["t"].next_offsets == (2,)


def test_heartbeats_say_that_nothing_has_changed_since(source: Source) -> None:
    number = source.publish(g=1)
    source.now += 5 * MINUTE
    source.beat(number)
    assert source.report().as_of == source.now


@pytest.mark.parametrize("what", ["of another generation", "without an observation", "of an earlier program"])
def test_a_heartbeat_that_says_nothing_of_the_snapshot(source: Source, what: str) -> None:
    number = source.publish(g=1)
    source.now += 5 * MINUTE
    source.beat(
        {"of an earlier program": 0}.get(what, number + (what == "of another generation")), agrees="without" not in what
    )
    assert source.report().as_of == T0


def test_offsets_that_are_older_have_their_own_time(source: Source) -> None:
    source.publish(g=1)
    kept = source.report().snapshot.groups["g"]
    kept = replace(kept, topics={"t": replace(kept.topics["t"], as_of=T0 - MINUTE)})
    source.put(GroupSnapshot(cluster_id="c", writer="w", observed_at=T0, groups={"g": kept, "h": replace(kept)}))
    number = source.put(
        GroupSnapshot(cluster_id="c", writer="w", observed_at=T0, groups={"g": kept}, unreadable={"g": "why"})
    )
    source.now += MINUTE
    source.beat(number)
    found = source.report()
    assert (found.as_of, found.as_of_group("g")) == (T0 + MINUTE, T0 - MINUTE)


def test_one_that_cannot_be_read_leaves_the_last_good_one_in_force(source: Source) -> None:
    source.publish(g=1)
    reports = source.reports()
    assert reports.refresh(["a"])["a"].generation == 1
    source.objects.put_new(f"{groups_prefix('data', 'a')}{2:020d}", BytesIO(b"rubbish"), 7)
    found = reports.refresh(["a"])["a"]
    assert (found.generation, list(found.snapshot.groups)) == (1, ["g"])
    assert "snapshot of consumer groups of a cannot be read" in reports.problems["a"]


def test_an_unchanged_snapshot_costs_two_listings(source: Source) -> None:
    source.beat(source.publish(g=1))
    reports = source.reports()
    reports.refresh(["a"])
    before = source.objects.calls.copy()
    reports.refresh(["a"])
    assert source.objects.calls - before == {"list": 2}


def test_a_store_that_fails_is_no_absence(source: Source) -> None:
    source.publish(g=1)
    reports = source.reports()
    reports.refresh(["a"])
    source.objects.away = {"list"}
    with pytest.raises(StoreUnavailable):
        reports.refresh(["a"])
