"""Whether a topic is still the same is asked after its segment was sealed, in few calls, until there is an answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta

import pytest

from egress.topics.incarnation_check import Confirmations
from formats.footer import SegmentOrigin
from infra.contracts.cluster import TopicFacts
from tests.fakes.executors import HandExecutor
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.surroundings import T0


class Asking:
    def __init__(self, *topics: str) -> None:
        self.broker = FakeBroker()
        for topic in topics:
            self.broker.create(topic)
        self.admin, self.pool = FakeAdmin(self.broker), HandExecutor()
        self.confirmations = Confirmations(self.admin, self.pool)
        self.answers: list[tuple[str, bool]] = []

    def ask(self, topic: str, topic_id: str | None = None, cluster_id: str = "cluster") -> None:
        origin = SegmentOrigin(
            topic_id=f"id-{topic}" if topic_id is None else topic_id,
            cluster_id=cluster_id,
            created_at=T0,
            writer="test",
        )
        self.confirmations.ask(topic, origin, lambda same: self.answers.append((topic, same)))


def test_same_other_and_absent() -> None:
    asking = Asking("t", "u")
    asking.broker.recreate("u")
    for topic in ("t", "u", "v"):
        asking.ask(topic)
    assert asking.answers == [("t", True), ("u", False), ("v", False)]


def test_one_request_serves_all_waiting_segments_but_no_later_ones() -> None:
    asking = Asking("t", "u")
    asking.pool.holding = True
    for _ in range(50):
        asking.ask("t")
        asking.ask("u")
    asking.pool.run_next()
    assert len(asking.answers) == 100
    assert asking.admin.asked["describe"] == 1

    asking.answers.clear()
    asking.ask("t")

    class Late(FakeAdmin):
        def describe(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
            answer = FakeAdmin.describe(self, names)
            if not asking.answers and "u" not in names:
                asking.ask("u")  # sealed while the question is under way, and then
                asking.broker.recreate("u")
            return answer

    asking.confirmations.admin = Late(asking.broker)
    asking.pool.run_next()
    assert asking.answers == [("t", True)]
    asking.pool.run_all()
    assert asking.answers == [("t", True), ("u", False)]


@pytest.mark.parametrize("unexpected", [False, True])
def test_an_error_is_no_answer_and_the_request_is_repeated(*, unexpected: bool) -> None:
    asking = Asking("t")
    if unexpected:

        class Broken(FakeAdmin):
            def describe(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
                raise RuntimeError("planned")

        asking.confirmations.admin = Broken(asking.broker)
    asking.admin.away = True
    asking.ask("t")
    asking.ask("t")
    assert asking.answers == []
    for seconds in (0.0, 0.5):
        asking.confirmations.poll(T0 + timedelta(seconds=seconds))
    asking.admin.away = False
    asking.confirmations.admin = asking.admin
    asking.ask("t")
    assert asking.answers == [], "not before its time"
    asking.confirmations.poll(T0 + timedelta(seconds=1))
    assert asking.answers == [("t", True)] * 3
    asking.ask("t")
    assert len(asking.answers) == 4


def test_a_topic_that_is_refused_holds_up_no_other() -> None:
    asking = Asking("t", "u")
    asking.pool.holding = True
    asking.admin.hides["u"] = "no DESCRIBE"
    asking.ask("u")
    asking.ask("t")
    asking.pool.run_all()
    assert asking.answers == [("t", True)]
    asking.admin.hides.clear()
    asking.confirmations.poll(T0)
    asking.confirmations.poll(T0 + timedelta(seconds=1))
    asking.pool.run_all()
    assert asking.answers == [("t", True), ("u", True)]


def test_where_topics_have_no_ids_the_cluster_is_compared() -> None:
    asking = Asking("t")
    asking.admin.ids["t"] = ""
    asking.ask("t", "")
    asking.ask("t", "", "other")
    assert asking.answers == [("t", True), ("t", False)]
