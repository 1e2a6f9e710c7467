"""The internal topics: created if missing, checked if present."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from formats.errors import TargetError
from infra.contracts.cluster import TopicFacts
from infra.kafka.internal_topics.ensure import ensure_internal_topics

HOUR = timedelta(hours=1)
GOOD_EVENTS = {"cleanup.policy": "delete", "retention.ms": "3600000"}
GOOD_CHECKPOINTS = {"cleanup.policy": "compact", "retention.ms": "604800000"}


@dataclass(slots=True)
class Topics:
    """The part of a ClusterAdmin that is used."""

    existing: dict[str, Mapping[str, str]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, int]] = field(default_factory=dict)

    def create_topic(self, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> bool:
        if name in self.existing:
            return False
        self.existing[name] = configs
        self.shapes[name] = (partitions, replication_factor)
        return True

    def describe(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
        return {name: TopicFacts(name, "", 1) for name in names if name in self.existing}

    def configs(self, topic: str) -> Mapping[str, str]:
        return self.existing[topic]

    def configs_of(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str] | TargetError]:
        return {topic: self.existing[topic] for topic in topics}

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is not needed for internal topics")


def ensure(topics: Topics, retention: timedelta = HOUR) -> None:
    ensure_internal_topics(
        topics,
        segment_events_topic="events",
        segment_events_retention=retention,
        checkpoint_topic="checkpoints",
        offset_map_topic="offsets",
        replication_factor=3,
    )


def test_missing_topics_are_created_and_then_pass_the_check(caplog: pytest.LogCaptureFixture) -> None:
    topics = Topics()
    ensure(topics)
    assert topics.shapes == {"events": (1, 3), "checkpoints": (1, 3), "offsets": (1, 3)}
    assert topics.existing["events"]["cleanup.policy"] == "delete"
    assert topics.existing["events"]["retention.ms"] == "3600000"
    assert topics.existing["checkpoints"]["cleanup.policy"] == "compact"
    ensure(topics)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ({"cleanup.policy": "compact", "retention.ms": "3600000"}, "cleanup.policy is 'compact'"),
        ({"cleanup.policy": "compact,delete", "retention.ms": "3600000"}, "cleanup.policy is 'compact,delete'"),
        ({"cleanup.policy": "delete", "retention.ms": "3599999"}, "retention.ms is 3599999, shorter"),
        ({"cleanup.policy": "delete", "retention.ms": "0"}, "retention.ms is 0, shorter"),
    ],
)
def test_an_event_log_that_would_drop_events_is_rejected(events: Mapping[str, str], message: str) -> None:
    with pytest.raises(TargetError, match=f"events: .*{message}"):
        ensure(Topics({"events": events, "checkpoints": GOOD_CHECKPOINTS}))


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "delete, compact", ""])
def test_a_checkpoint_topic_that_would_lose_positions_is_rejected(policy: str) -> None:
    with pytest.raises(TargetError, match=r"checkpoints: .*set it to 'compact' alone"):
        ensure(Topics({"events": GOOD_EVENTS, "checkpoints": {"cleanup.policy": policy}}))


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(TargetError) as raised:
        ensure(Topics({"events": {"cleanup.policy": "compact", "retention.ms": "1"}, "checkpoints": {}}))
    for message in ("'compact'", "retention.ms is 1", "checkpoints: cleanup.policy is None"):
        assert message in str(raised.value)


@pytest.mark.parametrize("retention", ["3600001", "-1"])
def test_a_longer_retention_is_a_warning(retention: str, caplog: pytest.LogCaptureFixture) -> None:
    ensure(Topics({"events": GOOD_EVENTS | {"retention.ms": retention}, "checkpoints": GOOD_CHECKPOINTS}))
    [warning] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert warning.getMessage() == "segment_events_kept_longer"


def test_no_table_is_created_with_unclean_elections_and_an_existing_one_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topics = Topics()
    ensure(topics)
    tables = ("checkpoints", "offsets")
    assert {topics.existing[name]["unclean.leader.election.enable"] for name in tables} == {"false"}
    unclean = GOOD_CHECKPOINTS | {"unclean.leader.election.enable": "true"}
    ensure(Topics({"events": GOOD_EVENTS, "checkpoints": unclean, "offsets": GOOD_CHECKPOINTS}))
    [warning] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (warning.getMessage(), vars(warning)["topic"]) == ("unclean_leader_election", "checkpoints")
