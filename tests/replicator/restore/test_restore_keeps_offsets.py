"""Restored with the source's offsets on a broker: each record where it was, and each group where it stood."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from infra.contracts.cluster import TopicPartition
from replicator.terminal.output import USAGE
from tests.infra.cluster import QUIET
from tests.replicator.restore.holes import AT, COMMITTED, RECORDS, fill_with_holes, judge
from tests.replicator.restore.place import Commands, Place

pytestmark = pytest.mark.integration


@pytest.fixture
def names(unique: Callable[[str], str]) -> dict[str, str]:
    return {group: unique(group) for group in COMMITTED}


@pytest.fixture
def topic(place: Place, unique: Callable[[str], str], names: dict[str, str]) -> str:
    fill_with_holes(place.objects, names)
    return unique("restored")


def command(topic: str, *options: str) -> list[str]:
    given = ["restore", "orders", "--rename", f"orders={topic}", "--at", AT.isoformat()]
    return [*given, "--preserve-offsets", "--groups", *options]


def test_records_and_groups_are_where_they_were(
    place: Place, commands: Commands, topic: str, names: dict[str, str]
) -> None:
    code, text = commands.run(*command(topic, "--dry-run"))
    assert (code, "each record keeps its offset" in text) == (0, True), text
    code, result = commands.json(*command(topic))
    assert code == 0, result
    assert result["records"] == sum(map(len, RECORDS))
    assert {(one["source_offset"] == one["offset"], one["outcome"]) for one in result["groups"]} == {(True, "write")}
    judge(place.cluster, topic, names)
    code, again = commands.json(*command(topic))
    assert (code, again["records"]) == (0, 0), again
    judge(place.cluster, topic, names)


def test_a_destination_that_ends_beyond_the_first_offset_is_refused(
    place: Place, commands: Commands, topic: str
) -> None:
    place.cluster.create(topic, 3)
    producer = Producer({**place.cluster.properties, **QUIET})
    for partition in (0, 2):
        producer.produce(topic, b"x", partition=partition)
    producer.flush()
    code, plan = commands.json(*command(topic, "--dry-run", "--accept", "foreign-data"))
    (found,) = plan["topics"]
    taken = [one["why"] for one in found["objections"] if one["what"] == "offsets-taken"]
    assert code == 3
    assert [why.partition(" ends")[0] for why in taken] == [f"{topic}/0", f"{topic}/2"]
    code, _ = commands.run(*command(topic, "--accept", "foreign-data"))
    assert code == 1
    assert len(place.cluster.messages(TopicPartition(topic, 0))) == 1


def test_long_holes_are_filled_once_they_are_accepted(
    place: Place, commands: Commands, topic: str, names: dict[str, str]
) -> None:
    place.more = {"ingress": {"preserve_hole_limit": 50, "sources": [{"region": "other", "topic": "t"}]}}
    place.more |= {"sqs": {"queue": "none"}}
    code, plan = commands.json(*command(topic, "--dry-run"))
    (found,) = plan["topics"]
    (objection,) = found["objections"]
    assert (code, objection["what"], "[0,99]" in objection["why"]) == (3, "long-holes", True)
    code, result = commands.json(*command(topic, "--accept", "long-holes"))
    assert code == 0, result
    judge(place.cluster, topic, names)


def test_a_run_in_the_other_mode_is_another_restore(place: Place, commands: Commands, topic: str) -> None:
    code, result = commands.json(*command(topic, "--id", "mine"))
    assert code == 0, result
    mapped = [one for one in command(topic, "--id", "mine", "--dry-run") if one != "--preserve-offsets"]
    code, plan = commands.json(*mapped)
    assert code == 3
    assert [one["what"] for one in plan["objections"]] == ["conflict"]


def test_what_does_not_go_with_it_is_refused(place: Place, commands: Commands) -> None:
    for options, why in (
        (("--preserve-offsets", "--spark"), "leave --spark out"),
        (("--preserve-offsets", "--follow"), "leave --follow out"),
        (("--preserve-offsets", "--filter", "a:b"), "--filter and --map may change records"),
        (("--offsets", "preserve"), "--preserve-offsets"),
    ):
        code, text = commands.run("restore", "orders", *options)
        assert code == USAGE, text
        assert why in " ".join(text.replace("│", " ").split())
