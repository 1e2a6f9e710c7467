"""Where groups are handed over to: of a topic that was created again there, only its last incarnation."""

from __future__ import annotations

from datetime import UTC, datetime

from formats.control.claim import TopicClaim
from formats.incarnation import parse_incarnation
from formats.messages.ledger import Failover, FailoverPhase
from infra.contracts.cluster import TopicPartition
from ingress.groups.translation import Exactness
from ingress.routing.archived import ArchivedTopic
from ingress.routing.succession import ArchivedIncarnation
from replicator.failover.failback import HandoverPlan, _snapshot, _superseded
from replicator.offsets import TranslatedOffset
from tests.ingress.world import source_settings

NOW = datetime(2026, 3, 4, tzinfo=UTC)


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
        superseded=_superseded([route("orders", "orders@new")]),
        flows_back=True,
    )
    assert plan.problems == ["group billing in us.orders/1: us/orders/1 was deleted in us, and created again"]
    commits = _snapshot(plan, "c").groups["billing"].topics["orders"]
    assert (commits.topic_id, {n: one.next_offset for n, one in commits.items()}) == ("new", {0: 40})


def test_incarnations_with_topics_of_their_own_here_are_of_one_topic_there() -> None:
    assert _superseded([route("orders", "orders@new"), route("clicks")]) == {"orders"}
    assert _superseded([route("orders")]) == set()
