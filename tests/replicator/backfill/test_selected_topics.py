"""Which topics a backfill is of, and why it refuses a name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from formats.errors import ConfigError
from formats.topic_selection import TopicPattern
from replicator.backfill.topics import require_partitions, selected_topics
from replicator.config.load import parse
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker

CONFIG = parse("""
region = "a"
[kafka]
"bootstrap.servers" = "one:9092"
[s3]
bucket = "archive"
[egress.topics.orders]
[egress.topics."^pay.*"]
""")
ADD_IT = "[egress.topics] does not select it: add it, and egress goes on"


@pytest.fixture
def admin() -> FakeAdmin:
    broker = FakeBroker()
    for topic in ("orders", "payments", "unrelated"):
        broker.create(topic, partitions=1)
    return FakeAdmin(broker)


def selected(admin: FakeAdmin, *texts: str) -> list[str]:
    return sorted(selected_topics(admin, [TopicPattern(text) for text in texts], CONFIG))


def refused(admin: FakeAdmin, *texts: str) -> Sequence[str]:
    with pytest.raises(ConfigError) as raised:
        selected(admin, *texts)
    return raised.value.problems


def test_names_and_expressions_select_of_what_egress_archives(admin: FakeAdmin) -> None:
    assert selected(admin, "orders", "^.*ments") == ["orders", "payments"]


def test_a_topic_that_does_not_exist_is_refused_as_absent(admin: FakeAdmin) -> None:
    assert refused(admin, "unrelated", "ordres") == (
        "ordres: no topic of this name is on the cluster (did you mean 'orders'?)",
        f"unrelated: {ADD_IT}",
    )


def test_a_topic_that_may_not_be_described_is_not_refused_as_absent(admin: FakeAdmin) -> None:
    admin.hides["unrelated"] = "denied"
    assert refused(admin, "unrelated") == (f"unrelated: {ADD_IT}",)


def test_an_expression_that_matches_nothing(admin: FakeAdmin) -> None:
    assert refused(admin, "^none.*") == ("no topic of [egress.topics] matches",)


def test_partitions_that_a_topic_does_not_have_are_refused_with_how_many_there_are() -> None:
    """The plan of one that is absent would be empty: nothing is left to do."""
    counts = {"orders": 6, "payments": 2, "payouts": 4}
    require_partitions([TopicPattern("orders"), TopicPattern("^pay.*")], None, counts, CONFIG)
    require_partitions([TopicPattern("orders"), TopicPattern("^pay.*")], {0, 3}, counts, CONFIG)
    with pytest.raises(ConfigError) as raised:
        require_partitions([TopicPattern("orders"), TopicPattern("^pay.*")], {3, 5, 12}, counts, CONFIG)
    assert raised.value.problems == (
        "--partition 12: orders has 6 partitions: give numbers from 0 to 5",
        "--partition 5, 12: payments has 2, payouts has 4 partitions: give numbers from 0 to 3",
    )
