"""Requests of egress that keep failing: they are retried, and reported to an operator within a minute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from formats.errors import TargetError
from formats.segment import OffsetRange, Segment
from infra.contracts.cluster import Committed, TopicPartition
from tests.egress.two_partitions import Make
from tests.egress.world import Process, World, rule, source
from tests.fakes.kafka_consumer import FakeSourceConsumer

P = TopicPartition("t", 0)


class RefusesCommits(FakeSourceConsumer):
    """Those that are only sent; the answer comes by itself."""

    refusing = True

    def commit_answers(self) -> Mapping[TopicPartition, str]:
        answers = super().commit_answers()
        if self.refusing:
            self.fail_commits(P, reason="GROUP_AUTHORIZATION_FAILED")
        return answers


@pytest.fixture
def world(make: Make) -> World:
    return make(partitions=1)


def problems(process: Process) -> Mapping[str, str]:
    return process.health.snapshot().problems


def later(process: Process, seconds: int) -> None:
    for _ in range(seconds):
        process.later(1)


def test_commits_that_are_refused_for_a_minute_are_a_problem_until_one_is_taken(world: World) -> None:
    consumer = RefusesCommits(world.broker)
    consumer.fail_commits(P, reason="GROUP_AUTHORIZATION_FAILED")
    process = world.process(consumer=consumer)
    process.join()
    world.produce(P, 5)
    later(process, 50)
    assert world.ranges(P) == [(0, 4)]
    assert problems(process) == {}, "it may be the network, for a moment"
    later(process, 30)
    ((subject, what),) = problems(process).items()
    assert subject.startswith("a/t/0")
    assert "every attempt to commit the position has failed since" in what
    assert what.endswith("GROUP_AUTHORIZATION_FAILED")
    consumer.refusing = False
    later(process, 5)
    assert problems(process) == {}
    assert world.position(P) == 5


def test_a_position_that_is_not_known_for_a_minute_is_a_problem(world: World) -> None:
    process = world.process()
    process.turn(2)
    process.consumer.unavailable = True
    process.join()
    later(process, 50)
    assert problems(process) == {}
    later(process, 30)
    assert "every attempt to read the position has failed since" in problems(process)["a/t/0 attempts"]
    process.consumer.unavailable = False
    world.produce(P, 5)
    later(process, 20)
    assert problems(process) == {}
    world.expect(P)


def test_it_is_no_problem_of_a_process_that_gave_the_partition_away(world: World) -> None:
    process = world.process()
    process.turn(2)
    process.consumer.unavailable = True
    process.join()
    later(process, 80)
    assert problems(process) != {}
    process.consumer.revoke(P)
    process.turn(2)
    assert problems(process) == {}


def test_topics_that_are_not_seen_for_a_minute_are_a_problem(world: World) -> None:
    process = world.process()
    process.join()
    world.admin.away = True
    later(process, 150)
    assert "every attempt to list the source topics has failed since" in problems(process)["topics"]
    world.admin.away = False
    later(process, 40)
    assert problems(process) == {}


def test_a_problem_ends_with_its_cause_also_when_the_archive_continues_in_another_path(world: World) -> None:
    process = world.process()
    process.join()
    world.produce(P, 5)
    later(process, 20)
    process.stop()
    world.broker.recreate("t", partitions=1)
    process = world.process()
    process.turn(2)
    process.consumer.unavailable = True
    process.join()
    later(process, 80)
    assert list(problems(process)) == ["a/t/0 attempts"]
    process.consumer.unavailable = False
    world.produce(P, 5)
    later(process, 20)
    world.expect(P, incarnation="id-t-1")
    assert problems(process) == {}


def test_the_problem_of_reading_again_ends_in_another_path(world: World) -> None:
    process = world.process()
    process.join()
    later(process, 20)
    world.produce(P, 5)
    world.objects.away = {"put_new"}
    later(process, 60)
    world.broker.recreate("t", partitions=1)
    world.objects.away = set()
    world.produce(P, 5)
    later(process, 80)
    world.expect(P, incarnation="id-t-1")
    assert problems(process) == {}


def test_a_question_about_a_stored_segment_that_stays_refused_is_a_problem_all_the_time(world: World) -> None:
    """Each time, the partition is read again as if nothing had happened: it does not wait for an operator then."""
    world.produce(P, 5)
    first = world.process()
    first.join()
    later(first, 20)
    first.stop()
    world.broker.compact(P, 1, 3)
    world.broker.committed("group")[P] = Committed(0, "")
    process = world.process()
    refused = True

    def source_compacted(_: Segment) -> bool:
        if refused:
            raise TargetError("describe the settings of topic t: planned; allow DESCRIBE_CONFIGS on the topic")
        return True

    process.builder._uploader = replace(process.builder._uploader, source_compacted=source_compacted)
    process.join()
    later(process, 70)  # refused twice: once may be a right that was just given
    unready = 0
    for _ in range(100):
        later(process, 1)
        snapshot = process.health.snapshot()
        unready += bool(snapshot.stopped or snapshot.problems)
    assert unready == 100
    assert "DESCRIBE_CONFIGS" in problems(process)["a/t/0 attempts"]
    refused = False
    later(process, 150)
    assert problems(process) == {}
    assert process.stopped == {}
    assert world.position(P) == 5


def fails_until_it_is_a_problem(world: World) -> Process:
    process = world.process()
    process.join()
    world.objects.away = {"put_new"}
    world.produce(P, 5)
    later(process, 60)
    assert "in a row" in problems(process)["a/t/0 read again"]
    return process


def test_what_is_gone_at_the_source_is_not_read_again(make: Make) -> None:
    """Nothing follows in the log that could be stored."""
    world = make(rule("t", on_gap="record"), partitions=1)
    process = fails_until_it_is_a_problem(world)
    world.broker.trim(P, 5)
    world.objects.away = set()
    later(process, 120)
    assert world.position(P) == 5
    assert [list(world.control_peek.gaps.ranges(source(P)))] == [[OffsetRange(0, 4)]]
    assert problems(process) == {}


def test_what_was_read_of_a_topic_that_was_created_again_is_not_read_again(world: World) -> None:
    process = fails_until_it_is_a_problem(world)
    world.broker.recreate("t", partitions=1)
    world.objects.away = set()
    later(process, 120)
    assert world.position(P) == 0
    assert problems(process) == {}
