"""Claims: one incarnation, one path; a second process agrees; nothing is stored where another incarnation may be."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

import pytest

from egress.topics.claims import Blocked, ClaimedTopic, TopicClaims, adopt
from formats.control.claim import TopicClaim
from formats.control.keys import claim_key
from formats.errors import StoreUnavailable, TargetError
from infra.archive.control import ControlStore
from infra.contracts.cluster import TopicFacts
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.surroundings import T0, FailingStore, HandClock

CLOCK = HandClock()


class Archive:
    def __init__(self) -> None:
        self.objects = FailingStore(CLOCK)
        self.control = ControlStore(self.objects, "data")
        self.broker = FakeBroker()
        self.broker.create("t")
        self.admin = FakeAdmin(self.broker)

    def claims(self) -> TopicClaims:
        """As another process sees them."""
        return TopicClaims("a", self.control, CLOCK)

    def resolve(
        self, topic_id: str = "one", cluster: str = "c", *, claims: TopicClaims | None = None
    ) -> ClaimedTopic | Blocked:
        claims = claims or self.claims()
        return claims.resolve(TopicFacts("t", topic_id, 1), cluster, claims.claimed())

    def incarnation(self, topic_id: str = "one", cluster: str = "c") -> str:
        topic = self.resolve(topic_id, cluster)
        assert isinstance(topic, ClaimedTopic), topic
        assert topic.source("a", 3).path == ("t" if topic.is_first else f"t@{topic.name}")
        return topic.incarnation.id

    def refusal(self, topic_id: str = "one", cluster: str = "c") -> str:
        blocked = self.resolve(topic_id, cluster)
        assert isinstance(blocked, Blocked), blocked
        return blocked.reason

    def put(self, key: str, data: bytes = b"x") -> None:
        self.objects.put_new(key, BytesIO(data), len(data))

    def adopt(self, topic_id: str = "one", cluster: str = "c") -> str:
        self.admin.ids["t"], self.admin.cluster = topic_id, cluster
        return adopt(self.control, self.admin, "a", "t", CLOCK).incarnation.id


@pytest.fixture
def archive() -> Archive:
    return Archive()


def test_the_first_incarnation_has_the_plain_path_and_later_ones_separate_paths(archive: Archive) -> None:
    assert archive.incarnation("one") == ""
    assert archive.incarnation("two") == "two"
    assert archive.incarnation("three") == "three"
    assert archive.incarnation("one") == ""
    claims = {path: archive.control.claims.of("a", path) for path in archive.control.claims.paths("a")}
    assert {path: claim.number for path, claim in claims.items() if claim} == {"t": 0, "t@two": 1, "t@three": 2}
    assert claims["t@two"] == TopicClaim(topic_id="two", cluster_id="c", number=1, claimed_at=T0)


def test_two_processes_that_claim_at_once_agree(archive: Archive) -> None:
    others: list[ClaimedTopic | Blocked] = []
    archive.objects.before["put_new"] = lambda _: others.append(archive.resolve("two"))
    assert archive.incarnation("one") == "one"
    assert [o.incarnation.id for o in others if isinstance(o, ClaimedTopic)] == [""]
    assert archive.incarnation("one") == "one"


def test_a_process_that_claims_and_stores_between_two_reads_does_not_block(archive: Archive) -> None:
    def other(_: str) -> None:
        assert archive.incarnation("one") == ""
        archive.put("data/a/t/0/0/00000000000000000000-00000000000000000009")

    archive.objects.before["list"] = other
    assert archive.incarnation("one") == ""


def test_segments_without_a_claim_are_adopted_by_an_operator_only(archive: Archive) -> None:
    archive.put("data/a/t/0/0/00000000000000000000-00000000000000000009")
    assert "replicator adopt t" in archive.refusal("one")
    assert archive.control.claims.paths("a") == []
    assert archive.adopt("one") == ""
    assert archive.adopt("one") == ""
    assert archive.incarnation("one") == ""
    assert archive.incarnation("two") == "two"


def test_another_cluster_is_refused_until_it_is_adopted(archive: Archive) -> None:
    assert archive.incarnation("one", "c") == ""
    reason = archive.refusal("other", "d")
    assert "cluster c" in reason
    assert "is d" in reason
    assert "replicator adopt t" in reason
    assert archive.adopt("other", "d") == "other"
    assert archive.incarnation("other", "d") == "other"
    assert "replicator adopt t" in archive.refusal("another", "e")
    assert archive.incarnation("one", "c") == ""


def test_the_same_topic_under_another_cluster_id_is_the_same_topic(archive: Archive) -> None:
    """Ids never return: the cluster was given another name."""
    assert archive.incarnation("one", "c") == ""
    assert archive.incarnation("one", "d") == ""


def test_a_store_without_an_answer_claims_nothing(archive: Archive) -> None:
    for operation in ("open", "list", "put_new"):
        archive.objects.away = {operation}
        with pytest.raises(StoreUnavailable):
            archive.resolve("one")
    archive.objects.away = set()
    assert archive.control.claims.paths("a") == []


def test_a_claim_that_cannot_be_read_is_not_the_absence_of_one(archive: Archive) -> None:
    archive.put(claim_key("data", "a", "t"), b"{}")
    assert "replicator adopt t" in archive.refusal("one")
    assert archive.control.claims.paths("a") == ["t"]


@pytest.mark.parametrize("has_segments", [True, False])
def test_a_lost_claim_of_the_plain_path_gives_it_to_no_later_incarnation(
    archive: Archive, *, has_segments: bool
) -> None:
    """The remedy for a damaged claim: remove it, and run adopt. What lies there is of the earlier incarnation."""
    assert archive.incarnation("one") == ""
    assert archive.incarnation("two") == "two"
    if has_segments:
        archive.put("data/a/t/0/0/00000000000000000000-00000000000000000009")
    archive.objects.delete_many([claim_key("data", "a", "t")])
    assert archive.incarnation("two") == "two"
    assert archive.adopt("two") == "two"
    assert archive.incarnation("two") == "two"
    assert archive.control.claims.paths("a") == ["t@two"]


def test_a_known_claim_is_not_read_again(archive: Archive) -> None:
    claims = archive.claims()
    first = archive.resolve("one", claims=claims)
    assert isinstance(first, ClaimedTopic)
    archive.objects.away = {"open", "list", "put_new"}
    assert claims.resolve(TopicFacts("t", "one", 1), "c", {"t"}) == replace(first, is_new=False)


def test_without_topic_ids_the_cluster_and_a_counter_name_the_incarnation(archive: Archive) -> None:
    assert archive.incarnation("", "c/+") == ""
    claim = archive.control.claims.of("a", "t")
    assert claim is not None
    assert claim.topic_id == "c__-0"
    assert "replicator adopt t" in archive.refusal("", "d")
    assert archive.adopt("", "c/+") == "c__-1"
    assert archive.incarnation("", "c/+") == "c__-1"
    assert archive.adopt("", "c/+") == "c__-2"
    assert archive.incarnation("", "c/+") == "c__-2"


def test_brokers_that_learn_topic_ids_later_are_not_guessed_about(archive: Archive) -> None:
    assert archive.incarnation("", "c") == ""
    assert "no topic ids" in archive.refusal("one", "c")
    assert archive.adopt("one", "c") == "one"
    assert archive.incarnation("one", "c") == "one"


def test_adopting_a_topic_that_is_not_there_is_an_error(archive: Archive) -> None:
    archive.broker.delete("t")
    with pytest.raises(TargetError, match="no such topic"):
        adopt(archive.control, archive.admin, "a", "t", CLOCK)
