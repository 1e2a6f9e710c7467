"""Which archive paths of another region hold the log that a topic has there now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from formats.control.claim import TopicClaim
from formats.incarnation import parse_incarnation
from ingress.routing.archived import ArchivedTopic
from ingress.routing.succession import ArchivedIncarnation
from replicator.failover.archive_paths import PathsThere, paths_there
from tests.ingress.world import source_settings

AT = datetime(2026, 3, 4, tzinfo=UTC)


def claim(number: int, topic_id: str) -> TopicClaim:
    return TopicClaim(topic_id=topic_id, cluster_id="c", number=number, claimed_at=AT)


def found(claims: Mapping[str, TopicClaim | None], *, are_followed: bool) -> PathsThere:
    """`are_followed`: delivered to one topic, with their claims; else each has a topic of its own, planned without."""
    incarnations = [
        ArchivedIncarnation(incarnation=parse_incarnation(path), claim=one if are_followed else None)
        for path, one in claims.items()
    ]
    routes = [
        ArchivedTopic(region="us", incarnations=some, settings=source_settings("orders", "us.orders", region="us"))
        for some in ([incarnations] if are_followed else [[one] for one in incarnations])
    ]
    return paths_there("us", routes, claims.get)


@pytest.mark.parametrize("are_followed", [True, False])
def test_the_last_incarnation_counts_and_not_the_plain_path(*, are_followed: bool) -> None:
    """With topics of their own they have no order but that of the claims: the groups of the newest stayed behind."""
    claims = {"orders": claim(0, "old"), "orders@new": claim(1, "new"), "clicks": claim(0, "id")}
    assert found(claims, are_followed=are_followed) == PathsThere(frozenset({"orders"}), frozenset())


@pytest.mark.parametrize("are_followed", [True, False])
def test_a_path_before_a_fork_is_of_the_same_topic(*, are_followed: bool) -> None:
    claims = {"orders@id-fork1": claim(2, "id"), "orders@id": claim(1, "id"), "orders": claim(0, "old")}
    expected = PathsThere(frozenset({"orders"}), frozenset({"orders@id"}))
    assert found(claims, are_followed=are_followed) == expected


def test_paths_without_a_claim() -> None:
    assert found({"orders": None}, are_followed=False) == PathsThere()
    claims = {"orders": None, "orders@new": claim(1, "new")}
    assert found(claims, are_followed=False) == PathsThere(frozenset({"orders"}), frozenset())


def test_a_topic_of_that_name_in_another_region_does_not_matter() -> None:
    """It was created again there, and the one of this region counted as created again, too."""
    claims = {"orders": claim(0, "old"), "orders@new": claim(1, "new")}
    incarnations = [ArchivedIncarnation(incarnation=parse_incarnation(path), claim=one) for path, one in claims.items()]
    routes = [
        ArchivedTopic(region=region, incarnations=some, settings=source_settings("orders", "here", region=region))
        for region, some in (("us", incarnations[:1]), ("ap", incarnations))
    ]
    assert paths_there("us", routes, claims.get) == PathsThere()
    assert paths_there("ap", routes, claims.get) == PathsThere(frozenset({"orders"}))
