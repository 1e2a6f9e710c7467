"""Proving an archive that changes meanwhile, that holds two truths, or of which nothing is asked for."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ingress.report import report
from ingress.verification import ArchiveVerdict, Proven, Verifier
from replicator.protocols import TopicPartition
from replicator.segment import OffsetRange, Segment, SourcePartition
from tests.ingress.world import FORMAT, REGION, World

SOURCE = SourcePartition(REGION, "t", 0)
MONTH = timedelta(days=30)


def verifier(world: World) -> Verifier:
    return Verifier(store=world.store, control=world.control, format=FORMAT, clock=world.clock)


def look(world: World, proven: dict[Segment, Proven] | None = None) -> ArchiveVerdict:
    return verifier(world).archive(SOURCE, proven or {}, read_again_after=MONTH)


def test_segments_that_are_merged_meanwhile_are_not_missing() -> None:
    world = World()
    small = [world.put(10 * n, 10 * n + 9) for n in range(3)]

    def merge(_: str) -> None:
        world.put(0, 29, level=1)
        world.remove(*small, notify=False)

    world.objects.before["open"] = merge
    verdict = look(world)
    assert (verdict.is_whole, verdict.offsets, verdict.objects) == (True, OffsetRange(0, 29), 1)


def test_what_retention_removes_meanwhile_is_a_recorded_gap() -> None:
    world = World()
    small = [world.put(10 * n, 10 * n + 9) for n in range(3)]

    def expire(_: str) -> None:
        world.record_gap(10, 19)
        world.remove(small[1], notify=False)

    world.objects.before["open"] = expire
    verdict = look(world)
    assert (verdict.is_whole, len(verdict.recorded)) == (True, 1)


def test_what_is_gone_for_good_is_missing() -> None:
    world = World()
    small = [world.put(10 * n, 10 * n + 9) for n in range(3)]
    world.remove(small[1], notify=False)
    assert look(world).missing == [OffsetRange(10, 19)]


def test_two_truths_are_told_again_and_again() -> None:
    world = World()
    world.put(0, 9)
    world.put(0, 9, level=1, value=b"another")
    other = world.put(10, 19)
    first = look(world)
    assert (len(first.disagreeing), set(first.read)) == (1, {other})
    assert len(look(world, dict(first.read)).disagreeing) == 1
    assert world.store.stat(other) is not None


def test_a_pair_of_which_one_was_proven_before_is_compared_with_what_is_new() -> None:
    world = World()
    world.put(0, 9)
    before = look(world)
    world.put(0, 9, level=1, value=b"another")
    after = look(world, dict(before.read))
    assert (after.skipped, len(after.disagreeing), len(after.unsettled)) == (1, 1, 2)


def test_a_topic_that_is_not_there_is_not_equal() -> None:
    world = World()
    world.put(0, 9)
    topic = TopicPartition("t", 0)
    verdict = verifier(world).beside_source(SOURCE, topic, None, iter(()), may_thin=False, unreadable="not there")
    assert not verdict.is_equal
    assert verifier(world).beside_source(SOURCE, topic, None, iter(()), may_thin=False).is_equal


@pytest.mark.parametrize(("entries", "equal"), [([], False), ([{"equal": True}], True), ([{"equal": False}], False)])
def test_a_report_of_nothing_says_nothing(entries: list[dict[str, bool]], equal: bool) -> None:
    assert report(entries, World().clock.at, program="test")["equal"] == equal
