"""The doctor judges what egress archives: neither what it excludes, nor what it cannot choose."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from formats.topic_selection import TopicPattern
from replicator.config import Config
from replicator.doctor.archived_topics import archived, kept_for
from replicator.doctor.facts import DeploymentFacts, Unread
from replicator.doctor.findings import Severity, examine
from replicator.doctor.topic_checks import TOPIC_CHECKS
from tests.replicator.doctor.deployment import cluster, config, sound, topic, topics

UNCLEAN = topic("orders", configs={"unclean.leader.election.enable": "true"})


def without_orders() -> Config:
    found = config()
    assert found.egress is not None
    return replace(found, egress=replace(found.egress, exclude=(TopicPattern("orders"),)))


def test_an_excluded_topic_loses_nothing_by_its_retention() -> None:
    there = topics(topic("kept", configs={"retention.ms": "-1"}))
    assert kept_for(config(), there) == {"orders": timedelta(days=1)}
    assert kept_for(without_orders(), there) == {}
    assert kept_for(replace(config(), egress=None), there) == {}


def test_a_topic_that_was_not_read_is_not_among_them() -> None:
    assert archived(config(), {**topics(), "orders": Unread("denied")}) == {}


def test_an_excluded_topic_may_have_unclean_leaders() -> None:
    planted = sound(cluster=cluster(topics=topics(UNCLEAN)))
    assert bad(planted) == ["source-unclean-election"]
    assert bad(replace(planted, config=without_orders())) == []


def bad(facts: DeploymentFacts) -> list[str]:
    return [one.name for one in examine(TOPIC_CHECKS, facts) if one.severity is not Severity.OK]
