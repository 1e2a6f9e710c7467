"""Where groups are handed over to: of a topic that was created again there, only its last incarnation."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest

from egress.settings import EgressSettings, EgressTopicSettings
from formats.control.claim import TopicClaim
from formats.control.fork import LogFork
from formats.control.group_snapshot import (
    CommittedOffset,
    GroupSnapshot,
    SnapshotGroup,
    TopicCommits,
    encode_group_snapshot,
)
from formats.control.keys import claim_key, groups_prefix, handovers_prefix
from formats.errors import MalformedEvent, TargetError
from formats.incarnation import parse_incarnation
from formats.messages.ledger import Failover, FailoverPhase, GroupWrite, Ownership
from formats.segment import SourcePartition
from formats.topic_selection import TopicPattern, TopicRule
from infra.archive.control import ControlStore
from infra.archive.generations import Generations
from infra.contracts.cluster import Committed, GroupFacts, TopicPartition
from infra.storage.memory_and_folder import MemoryObjectStore
from ingress.groups.topic_ids import ClaimedTopicIds
from ingress.groups.translation import Exactness
from ingress.routing.archived import ArchivedTopic
from ingress.routing.succession import ArchivedIncarnation
from replicator.failover.archive_paths import paths_there
from replicator.failover.failback import (
    Handover,
    HandoverPlan,
    _snapshot,
    _stored,
    newest_handover,
)
from replicator.offsets import TranslatedOffset
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.kafka_groups import FakeGroup, FakeGroupReader
from tests.ingress.world import World, source_settings

NOW = datetime(2026, 3, 4, tzinfo=UTC)


def unclaimed(path: str) -> TopicClaim | None:
    raise AssertionError(path)


def translated(source: str, partition: int, offset: int) -> TranslatedOffset:
    return TranslatedOffset(
        source=source,
        target=TopicPartition("us.orders", partition),
        source_offset=offset,
        target_offset=1,
        exactness=Exactness.EXACT,
        group="billing",
    )


def route(*paths: str) -> ArchivedTopic:
    claimed = [
        ArchivedIncarnation(
            incarnation=parse_incarnation(path),
            claim=TopicClaim(topic_id=path, cluster_id="c", number=number, claimed_at=NOW),
        )
        for number, path in enumerate(paths)
    ]
    return ArchivedTopic(
        region="us", incarnations=claimed, settings=source_settings("orders", "us.orders", region="us")
    )


def test_the_last_incarnation_counts_and_what_is_left_out_is_named() -> None:
    """One partition has gone on to it, the other one has no new records."""
    plan = HandoverPlan(
        to="us",
        here="eu",
        now=NOW,
        state=Failover(region="us", epoch=1, phase=FailoverPhase.ACTIVE, at=NOW, snapshot=1),
        groups={"billing": [translated("us/orders@new/0", 0, 40), translated("us/orders/1", 1, 900)]},
        kinds={"billing": "classic"},
        topic_ids={"orders@new": "new", "orders": "old"},
        superseded=paths_there("us", [route("orders", "orders@new")], unclaimed).superseded,
        flows_back=True,
    )
    assert plan.problems == ["group billing in us.orders/1: us/orders/1 was deleted in us, and created again"]
    commits = _snapshot(plan, "c").groups["billing"].topics["orders"]
    assert (commits.topic_id, {n: one.next_offset for n, one in commits.items()}) == ("new", {0: 40})


def handover(*some: TranslatedOffset, **found: Any) -> HandoverPlan:
    return HandoverPlan(
        to="us",
        here="eu",
        now=NOW,
        state=Failover(region="us", epoch=1, phase=FailoverPhase.ACTIVE, at=NOW, snapshot=1),
        groups={"billing": some},
        kinds={"billing": "classic"},
        flows_back=True,
        **found,
    )


@pytest.mark.parametrize("offsets", [(500, 900), (900, 500)])
def test_of_several_destinations_the_lowest_offset_is_handed_over_and_the_difference_named(
    offsets: tuple[int, int],
) -> None:
    plan = handover(*(translated("us/orders/0", 0, offset) for offset in offsets))
    commits = _snapshot(plan, "c").groups["billing"].topics["orders"]
    assert [one.next_offset for _, one in commits.items()] == [500]
    [problem] = plan.problems
    assert problem.startswith("group billing is at offset 500 and 900 of us/orders/0, in different destinations")
    assert handover(*(translated("us/orders/0", 0, 500) for _ in offsets)).problems == []


def test_groups_that_the_cluster_does_not_list_are_named_and_handed_over_as_unreadable() -> None:
    plan = handover(
        translated("us/orders/0", 0, 5), unseen={"search": "no answer"}, listing_problem="1 of 3 brokers did not answer"
    )
    assert plan.problems == [
        "group search is not handed over: no answer",
        "groups may be missing: 1 of 3 brokers did not answer",
    ]
    assert _snapshot(plan, "c").unreadable == {"search": "no answer"}


def test_a_group_of_which_no_offset_is_known_there_is_named_in_the_handover() -> None:
    """By --give-up: the region that takes the groups back would say that all are there."""
    unknown = replace(
        translated("us/orders/0", 0, 5), source_offset=None, exactness=Exactness.UNKNOWN, reason="before the offset map"
    )
    found = _snapshot(handover(unknown), "c")
    assert (found.groups, found.unreadable) == (
        {},
        {"billing": "where it continues is not known: before the offset map"},
    )
    found = _snapshot(handover(unknown, translated("us/orders/1", 1, 5)), "c")
    assert (set(found.groups), found.unreadable) == ({"billing"}, {})
    found = _snapshot(handover(unknown, active={"billing": "stable, with 1 members,"}), "c")
    assert found.unreadable == {"billing": "it was stable, with 1 members, in eu"}


def test_a_group_whose_records_were_removed_here_stays_where_it_is_there() -> None:
    """By --give-up: the other region may have them still, and the first that is left here lies behind them."""
    removed = replace(translated("us/orders/0", 0, 150), exactness=Exactness.TRIMMED)
    [problem] = handover(removed).problems
    assert problem.startswith("group billing in us.orders/0: records that it had yet to read were removed in eu")
    found = _snapshot(handover(removed), "c")
    assert found.groups == {}
    assert found.unreadable["billing"].startswith("where it continues is not known: records that it had yet to read")
    found = _snapshot(handover(removed, translated("us/orders/1", 1, 5)), "c")
    assert list(found.groups["billing"].topics["orders"].items()) == [(1, CommittedOffset(next_offset=5))]
    [(where, why)] = found.problems.items()
    assert where == "billing in us/orders/0", "and the region that takes it back says so"
    assert why.startswith("records that it had yet to read")


@pytest.mark.parametrize(
    "other", [{"exactness": Exactness.TRIMMED}, {"exactness": Exactness.UNKNOWN, "source_offset": None}]
)
def test_a_partition_that_is_not_known_by_one_of_its_destinations_is_not_handed_over(other: dict[str, Any]) -> None:
    """The group may have yet to read there what it has read of the same partition elsewhere."""
    plan = handover(replace(translated("us/orders/0", 0, 5), **other), translated("us/orders/0", 0, 900))
    assert _snapshot(plan, "c").groups == {}


def test_a_group_that_is_not_listed_is_asked_for() -> None:
    known = {"gone": "dead", "hidden": "empty"}

    class Groups:
        def facts(self, group: str) -> GroupFacts:
            if group not in known:
                raise TargetError(f"{group} may not be described")
            return GroupFacts(state=known[group], members=0, partitions=frozenset())

    clients: Any = SimpleNamespace(groups=Groups())
    ledger: Any = None
    found = Handover(clients=clients, to="us", ledger=ledger)._unseen({"gone", "hidden", "denied"})
    assert found == {
        "denied": "denied may not be described",
        "hidden": "it is empty, and not among the groups that the cluster lists",
    }


def test_what_groups_have_read_and_egress_has_not_archived_is_named() -> None:
    """A group that was taken back before would stand at the end of what had arrived, and stay there."""
    broker = FakeBroker()
    broker.create("clicks", partitions=2)
    broker.create("audit", partitions=1)
    broker.create("us.clicks", partitions=1)
    first, second = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
    others = {TopicPartition(name, 0): Committed(9, "") for name in ("audit", "us.clicks")}
    groups = FakeGroupReader(
        found={
            "egress": FakeGroup(offsets={first: Committed(40, "")}),
            "billing": FakeGroup(offsets={first: Committed(50, ""), second: Committed(7, ""), **others}),
            "search": FakeGroup(offsets={first: Committed(40, "")}),
        }
    )
    rules = (TopicRule(TopicPattern("^.*clicks"), EgressTopicSettings()),)
    config = SimpleNamespace(egress=EgressSettings(topics=rules, group_id="egress"), own_topics=(), region="eu")
    admin, control = FakeAdmin(broker), World().control
    clients: Any = SimpleNamespace(config=config, admin=admin, groups=groups, control=control)
    ledger: Any = None
    half = Handover(clients=clients, to="us", ledger=ledger)
    found, hidden = half._unarchived(["billing", "search"], ["us.clicks"])
    assert found == {"billing": 17}, "of the topic that is archived, and did not come from there"
    assert hidden == {}
    [problem] = handover(translated("us/orders/0", 0, 5), unarchived=found).problems
    assert problem.startswith("group billing has read 17 offsets of topics of eu that egress has not archived")
    # a cluster lists no topic that may not be described; the archive says that there is one
    admin.hides["clicks"] = "TOPIC_AUTHORIZATION_FAILED"
    control.claims.record("eu", "clicks", TopicClaim(topic_id="id", cluster_id="c", number=0, claimed_at=NOW))
    found, hidden = half._unarchived(["billing", "search"], ["us.clicks"])
    assert (found, set(hidden)) == ({}, {"clicks"})
    [problem] = handover(translated("us/orders/0", 0, 5), hidden=hidden).problems
    assert problem.startswith(
        "whether groups have read what egress has not archived is not known of clicks (clicks: TO"
    )


def stored_groups(objects: MemoryObjectStore, *numbers: int) -> None:
    commits = TopicCommits.of("id", {0: CommittedOffset(next_offset=5)})
    group = SnapshotGroup(kind="classic", state="empty", members=0, topics={"orders": commits})
    found = GroupSnapshot(cluster_id="c", writer="w", observed_at=NOW, groups={"billing": group})
    for number in numbers:
        assert Generations(objects, groups_prefix("data", "us")).put(number, encode_group_snapshot(found))


@pytest.mark.parametrize(("stored", "is_known"), [((2,), True), ((1,), True), ((4,), True), ((), False)])
def test_groups_of_a_failover_are_known_where_its_snapshot_was_thinned(
    stored: tuple[int, ...], *, is_known: bool
) -> None:
    """One that stood further here by then was not written here, and only a snapshot names it."""
    objects = MemoryObjectStore()
    stored_groups(objects, *stored)
    clients: Any = SimpleNamespace(objects=objects, config=SimpleNamespace(s3=SimpleNamespace(prefix="data")))
    written = GroupWrite(group="search", topic="us.orders", partitions=(0,), offsets=(1,), at=NOW)
    owned = Ownership(groups={("search", "us.orders"): written})
    ledger: Any = None
    state = Failover(region="us", epoch=1, phase=FailoverPhase.ACTIVE, at=NOW, snapshot=2)
    moved, problem = Handover(clients=clients, to="us", ledger=ledger)._moved(owned, state, ["us.orders"])
    assert set(moved) == ({"billing", "search"} if is_known else {"search"})
    plan = handover(translated("us/orders/0", 0, 5), listing_problem=problem)
    assert len(plan.problems) == (not is_known)
    if not is_known:
        assert "group snapshot 2 of the failover" in problem


def test_a_failover_without_a_snapshot_was_about_the_groups_that_it_wrote() -> None:
    clients: Any = SimpleNamespace(
        objects=MemoryObjectStore(), config=SimpleNamespace(s3=SimpleNamespace(prefix="data"))
    )
    ledger: Any = None
    state = Failover(region="us", epoch=1, phase=FailoverPhase.ACTIVE, at=NOW)
    assert Handover(clients=clients, to="us", ledger=ledger)._moved(Ownership(), state, ["us.orders"]) == (set(), "")


def test_a_damaged_handover_is_followed_by_a_whole_one_and_named_until_then() -> None:
    objects = MemoryObjectStore()
    generations = Generations(objects, handovers_prefix("data", "eu", "us"))
    assert generations.put(1, b"cut")
    config = SimpleNamespace(s3=SimpleNamespace(prefix="data"), region="us")
    clients: Any = SimpleNamespace(objects=objects, config=config)
    with pytest.raises(MalformedEvent, match=re.escape(generations.key(1))):
        newest_handover(clients, "eu")
    found = _snapshot(handover(translated("us/orders/0", 0, 5)), "c")
    assert [_stored(generations, found) for _ in range(2)] == [2, 2]
    assert newest_handover(clients, "eu") == (2, found)


class There:
    """The other region's bucket, as far as it is asked for claims and forks."""

    def __init__(self) -> None:
        self.objects = MemoryObjectStore()
        self.control = ControlStore(self.objects, "data")
        clients: Any = SimpleNamespace(control=self.control)
        ledger: Any = None
        self.half = Handover(clients=clients, to="us", ledger=ledger)

    def claim(self, path: str, number: int, topic_id: str) -> None:
        claim = TopicClaim(topic_id=topic_id, cluster_id="c", number=number, claimed_at=NOW)
        self.control.claims.record("us", path, claim)

    def found(self, one: TranslatedOffset, *paths: str) -> TranslatedOffset:
        """`paths`: each with a topic of its own here."""
        routes = [
            ArchivedTopic(
                region="us",
                incarnations=[ArchivedIncarnation(incarnation=parse_incarnation(path))],
                settings=source_settings("orders", "us.orders", region="us", on_recreate="new-topic"),
            )
            for path in paths
        ]
        known: Any = SimpleNamespace(topic_ids=ClaimedTopicIds(self.control))
        return self.half._there(one, known, paths_there("us", routes, self.half._claim))


def test_a_claim_that_cannot_be_read_is_not_one_of_another_topic() -> None:
    """The region that takes the groups back would say that its topic was created again."""
    there = There()
    there.objects.put_new(claim_key("data", "us", "orders"), BytesIO(b"damaged"), 7)
    found = there.found(translated("us/orders/0", 0, 5), "orders")
    assert (found.source_offset, found.exactness) == (None, Exactness.UNKNOWN)
    assert "the claim of us/orders cannot be read" in found.reason
    there.claim("clicks", 0, "id")
    known = translated("us/clicks/0", 0, 5)
    assert there.found(known, "clicks") == known


def test_an_offset_beyond_a_fork_is_one_of_the_fork() -> None:
    """Where the new path has another topic here, or has not begun: the offset is one of records that are gone."""
    there = There()
    there.claim("orders", 0, "id")
    there.claim("orders@id-fork1", 1, "id")
    source = SourcePartition("us", "orders", 0)
    there.control.forks.record(
        LogFork(source=source, next_offset=520, leader_epoch=3, end_offset=500, found_at=NOW, evidence="by the broker")
    )
    both = ("orders", "orders@id-fork1")
    beyond = there.found(translated("us/orders/0", 0, 520), *both)
    assert (beyond.source_offset, beyond.exactness) == (500, Exactness.REPEATED)
    for same in (translated("us/orders/0", 0, 450), translated("us/orders@id-fork1/0", 0, 520)):
        assert there.found(same, *both) == same
    ended = translated("us/orders/1", 1, 900)
    assert there.found(ended, *both) == ended, "a partition that did not fork"
    plan = handover(
        translated("us/orders/0", 0, 450),
        translated("us/orders@id-fork1/0", 0, 700),
        topic_ids=dict.fromkeys(both, "id"),
    )
    assert [one.next_offset for _, one in _snapshot(plan, "c").groups["billing"].topics["orders"].items()] == [450]
    assert plan.problems[0].startswith("group billing is at offset 450 and 700 of us/orders")
