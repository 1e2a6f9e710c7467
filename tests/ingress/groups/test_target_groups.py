"""Offsets of groups are committed in this cluster: what is recorded, what races, what fails alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from formats.errors import BrokerUnavailable
from formats.messages.ledger import Failover, FailoverPhase, GroupHold, WrittenOffset, encode_key
from infra.contracts.cluster import Committed, TopicPartition
from ingress.groups.positions import GroupPosition
from ingress.groups.sync_plan import SyncDecision, SyncOutcome
from ingress.groups.target_groups import TargetGroups, group_writes
from ingress.groups.translation import Exactness
from replicator.offsets import release
from tests.fakes.kafka_ledger import FakeLedger
from tests.fakes.target_groups import MemoryGroups

NOW = datetime(2026, 3, 4, tzinfo=UTC)
FIRST, SECOND = TopicPartition("us.orders", 0), TopicPartition("us.orders", 1)


def position(group: str, target: TopicPartition, downstream: int) -> GroupPosition:
    return GroupPosition(
        group=group,
        source=f"us/orders/{target.partition}",
        target=target,
        upstream=downstream + 100,
        downstream=downstream,
        exactness=Exactness.EXACT,
        metadata="of the source",
    )


class World:
    def __init__(self, *, allow_rewind: bool = False) -> None:
        self.groups, self.ledger = MemoryGroups(), FakeLedger()
        self._pool = ThreadPoolExecutor(2)
        self.target = TargetGroups(
            groups=self.groups, writer=self.groups, ledger=self.ledger, pool=self._pool, allow_rewind=allow_rewind
        )

    def sync(self, *positions: GroupPosition, dry_run: bool = False) -> Mapping[str, Sequence[SyncDecision]]:
        by_group: dict[str, list[GroupPosition]] = {}
        for one in positions:
            by_group.setdefault(one.group, []).append(one)
        return self.target.sync(by_group, NOW, dry_run=dry_run)

    def hold(self, group: str, target: TopicPartition, offset: int) -> None:
        """As an operator does: recorded, then committed."""
        entries = group_writes(group, {target: (offset, offset + 100)}, self.ledger.read().groups, NOW)
        self.ledger.write([*entries, GroupHold(group=group, topic=target.topic, is_held=True, at=NOW)])
        self.groups.offsets[group][target] = Committed(offset, "")

    def outcomes(self, *positions: GroupPosition) -> list[SyncOutcome]:
        return [one.outcome for some in self.sync(*positions).values() for one in some]


def test_offsets_with_the_metadata_of_the_source() -> None:
    world = World()
    assert world.outcomes(position("g", FIRST, 5), position("g", SECOND, 0)) == [SyncOutcome.WRITE] * 2
    assert world.groups.offsets == {"g": {FIRST: Committed(5, "of the source"), SECOND: Committed(0, "of the source")}}
    assert world.outcomes(position("g", FIRST, 5), position("g", SECOND, 0)) == [SyncOutcome.SAME] * 2
    assert len(world.groups.commits) == 1


def test_a_group_is_held_until_it_is_released() -> None:
    world = World()
    world.sync(position("g", FIRST, 5), position("h", FIRST, 5))
    world.hold("g", FIRST, 2)
    assert world.outcomes(position("g", FIRST, 9), position("h", FIRST, 9)) == [SyncOutcome.HELD, SyncOutcome.WRITE]
    assert world.groups.offsets["g"][FIRST].next_offset == 2
    assert release(world.ledger, "g") == ["us.orders"]
    assert release(world.ledger, "h") == []
    assert world.outcomes(position("g", FIRST, 9)) == [SyncOutcome.WRITE]


@pytest.mark.parametrize("offset", [2, 5])
def test_a_group_that_is_held_while_a_round_runs_stays(offset: int) -> None:
    """After the round has read the ledger, before it reads the group's offsets."""
    world = World(allow_rewind=True)
    world.sync(position("g", FIRST, 5))
    world.groups.on_facts = lambda: world.hold("g", FIRST, offset)
    assert world.outcomes(position("g", FIRST, 9)) == [SyncOutcome.HELD]
    assert world.groups.offsets["g"][FIRST].next_offset == offset
    assert world.ledger.read().held == {("g", FIRST.topic)}


def test_a_dry_run_writes_nothing() -> None:
    world = World()
    found = world.sync(position("g", FIRST, 5), dry_run=True)
    assert [one.outcome for one in found["g"]] == [SyncOutcome.WRITE]
    assert (world.groups.offsets, world.ledger.records) == ({}, [])


def test_the_ledger_has_every_offset_that_was_ever_written() -> None:
    world = World()
    world.sync(position("g", FIRST, 5))
    world.sync(position("g", SECOND, 7))
    written = world.ledger.read().groups["g", "us.orders"]
    assert written.by_partition() == {0: WrittenOffset(5, 105), 1: WrittenOffset(7, 107)}


def test_a_reset_is_followed_until_somebody_uses_the_group_here() -> None:
    world = World(allow_rewind=True)
    world.sync(position("g", FIRST, 5))
    assert world.outcomes(position("g", FIRST, 2)) == [SyncOutcome.WRITE]
    assert world.groups.offsets["g"][FIRST].next_offset == 2
    world.groups.offsets["g"][FIRST] = Committed(9, "")
    assert world.outcomes(position("g", FIRST, 2)) == [SyncOutcome.MOVED]


def test_what_is_recorded_and_not_written_is_not_moved_back_later() -> None:
    """As after a crash between the two."""
    world = World(allow_rewind=True)
    world.sync(position("g", FIRST, 5))

    def crash() -> None:
        raise KeyboardInterrupt

    world.groups.before_commit = crash
    with pytest.raises(KeyboardInterrupt):
        world.sync(position("g", FIRST, 8))
    world.groups.before_commit = lambda: None
    assert world.outcomes(position("g", FIRST, 3)) == [SyncOutcome.MOVED]


def test_a_consumer_that_joins_before_the_commit_is_left_alone() -> None:
    world = World()

    def join() -> None:
        world.groups.members["g"] = 1
        world.groups.offsets["g"] = {FIRST: Committed(3, "")}

    world.groups.before_commit = join
    assert world.outcomes(position("g", FIRST, 5)) == [SyncOutcome.ACTIVE]
    assert world.groups.offsets == {"g": {FIRST: Committed(3, "")}}


def test_a_consumer_that_came_and_went_before_the_commit_keeps_its_offset() -> None:
    """It committed after the group's offsets were read, and has no members any more: Kafka would take the commit."""
    world = World()

    def use() -> None:
        world.groups.offsets["g"] = {FIRST: Committed(3, "mine")}

    world.groups.on_facts = nth(2, use)  # right before the commit
    assert world.outcomes(position("g", FIRST, 5), position("g", SECOND, 7)) == [SyncOutcome.MOVED, SyncOutcome.WRITE]
    assert world.groups.offsets == {"g": {FIRST: Committed(3, "mine"), SECOND: Committed(7, "of the source")}}


def test_a_group_that_has_members_right_before_the_commit_is_left_alone() -> None:
    world = World()
    world.groups.on_facts = nth(2, lambda: world.groups.members.update(g=1))
    [decision] = world.sync(position("g", FIRST, 5))["g"]
    assert (decision.outcome, decision.reason) == (SyncOutcome.ACTIVE, "it is stable here by now, with 1 members")
    assert world.groups.offsets == {}


def nth(wanted: int, act: Callable[[], None]) -> Callable[[], None]:
    """Acts in this call, counted from 1."""
    calls = itertools.count(1)

    def hook() -> None:
        if next(calls) == wanted:
            act()

    return hook


def test_a_group_that_does_not_answer_does_not_hold_up_the_others() -> None:
    world = World()
    world.groups.away.add("a")
    found = world.sync(position("a", FIRST, 5), position("b", FIRST, 5))
    assert [one.outcome for one in found["a"]] == [SyncOutcome.UNKNOWN_STATE]
    assert found["a"][0].reason == "group a: planned"
    assert world.groups.offsets == {"b": {FIRST: Committed(5, "of the source")}}


def test_without_the_ledger_nothing_is_written() -> None:
    world = World()
    world.ledger.away = True
    with pytest.raises(BrokerUnavailable):
        world.sync(position("g", FIRST, 5))
    assert world.groups.offsets == {}


def test_a_source_moves_no_group_while_its_failover_cannot_be_read() -> None:
    world = World()
    entry = Failover(region="us", epoch=1, phase=FailoverPhase.ACTIVE, at=NOW)
    world.ledger.records.append((encode_key(entry), b"of a newer program"))
    [decided] = world.target.sync({"g": [position("g", FIRST, 5)]}, NOW, region="us")["g"]
    assert (decided.outcome, world.groups.offsets) == (SyncOutcome.FAILED_OVER, {})
    assert "is not known" in decided.reason


@pytest.mark.parametrize("phase", FailoverPhase)
def test_a_source_moves_no_group_between_failover_and_failback(phase: FailoverPhase) -> None:
    world = World(allow_rewind=True)
    world.ledger.write([Failover(region="us", epoch=1, phase=phase, at=NOW)])
    decided = world.target.sync({"g": [position("g", FIRST, 5)]}, NOW, region="us")
    held = phase is not FailoverPhase.FAILED_BACK
    assert [one.outcome for one in decided["g"]] == [SyncOutcome.FAILED_OVER if held else SyncOutcome.WRITE]
    assert ("g" in world.groups.offsets) is not held
    only_asked = world.target.sync({"g": [position("g", FIRST, 8)]}, NOW, region="us", dry_run=True)
    assert [one.outcome for one in only_asked["g"]] == [SyncOutcome.FAILED_OVER if held else SyncOutcome.WRITE]
    assert [one.outcome for one in world.target.sync({"g": [position("g", FIRST, 6)]}, NOW, region="eu")["g"]] == [
        SyncOutcome.WRITE
    ]
    assert [one.outcome for one in world.target.sync({"g": [position("g", FIRST, 7)]}, NOW)["g"]] == [SyncOutcome.WRITE]


def test_a_group_that_was_used_while_the_coordinator_was_away_is_not_moved_back() -> None:
    """It came, committed and left between two attempts."""
    world = World()
    world.groups.offsets["g"] = {FIRST: Committed(5, "")}

    def used() -> None:
        world.groups.offsets["g"][FIRST] = Committed(900, "of the job")

    world.groups.busy = [lambda: None, used]
    assert world.outcomes(position("g", FIRST, 7)) == [SyncOutcome.ACTIVE]
    assert world.groups.offsets["g"][FIRST].next_offset == 900


def test_an_attempt_whose_answer_was_lost_is_through() -> None:
    world = World()
    world.groups.offsets["g"] = {FIRST: Committed(5, "")}

    def done() -> None:
        world.groups.offsets["g"][FIRST] = Committed(7, "of the source")

    world.groups.busy = [done, lambda: None]
    assert world.outcomes(position("g", FIRST, 7)) == [SyncOutcome.WRITE]
