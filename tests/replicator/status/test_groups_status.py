"""What `status` says of the consumer groups of a region."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest

from formats.control.group_snapshot import GroupSnapshot
from formats.control.keys import groups_prefix
from infra.contracts.cluster import TopicPartition
from ingress.groups.positions import GroupPosition
from ingress.groups.sync_plan import SyncDecision, SyncOutcome
from ingress.groups.translation import Exactness
from replicator.commands.status_groups import MOST, decisions_text, groups_json, groups_text
from replicator.group_sync import GroupDecisions
from replicator.status.groups import GroupsStatus, read_groups
from tests.infra.archive.test_group_reports import MINUTE, Source

CHANGES: Mapping[str, Any] = {
    "unsupported": {"s": "other", "c": "connect"},
    "unreadable": {"g": "a broker does not answer", "x": "allow DESCRIBE on the group"},
    "problems": {"groups": "of 2 groups, first g: a broker does not answer", "listing": "a broker does not answer"},
}


@pytest.fixture
def source() -> Source:
    return Source()


def status(source: Source) -> GroupsStatus:
    [found] = read_groups(source.reports(), ["a", "b"])
    return found


def text(source: Source) -> list[str]:
    return list(groups_text(status(source), source.now))


def troubled(source: Source, **changes: Any) -> None:
    """The next snapshot, with what the first one has."""
    source.publish(g=1)
    first = source.report().snapshot
    source.now += 2 * MINUTE
    source.put(
        GroupSnapshot(
            **{
                **CHANGES,
                "cluster_id": "c",
                "writer": "w",
                "observed_at": first.observed_at,
                "groups": first.groups,
                **changes,
            }
        )
    )


def test_how_many_there_are_and_how_old(source: Source) -> None:
    source.beat(source.publish(g=1, h=2))
    source.now += timedelta(seconds=34)
    assert text(source) == ["groups of a: 2 in the newest snapshot, 34s ago"]
    assert not status(source).is_troubled


def test_without_a_snapshot_there_is_nothing_to_say(source: Source) -> None:
    assert read_groups(source.reports(), ["a"]) == []


def test_groups_of_other_kinds_and_those_that_cannot_be_read(source: Source) -> None:
    troubled(source)
    assert text(source) == [
        "groups of a: 1 in the newest snapshot, 2m ago",
        "groups of a of kinds that are not moved: c (connect), s (other)",
        "! group g of a: its offsets are those of 2m ago: a broker does not answer\n"
        "! group x of a: its offsets are not known: allow DESCRIBE on the group",
        "! groups of a: listing: a broker does not answer",
    ]
    assert status(source).is_troubled


def test_groups_of_other_kinds_need_no_operator(source: Source) -> None:
    troubled(source, unreadable={}, problems={})
    assert not status(source).is_troubled


def test_of_many_groups_the_first_are_named(source: Source) -> None:
    many = {f"g{n:02}": "why" for n in range(MOST + 5)}
    troubled(source, unsupported=many, unreadable=many, problems={})
    _, others, unreadable = text(source)
    assert others.endswith(f"g{MOST - 1:02} (why), and 5 more")
    assert len(unreadable.splitlines()) == MOST + 1


def test_json_has_all_of_them(source: Source) -> None:
    troubled(source)
    assert groups_json([status(source)]) == [
        {
            "region": "a",
            "generation": 2,
            "as_of": "2026-01-01T00:00:00+00:00",
            "groups": 1,
            "unsupported": {"s": "other", "c": "connect"},
            "unreadable": {
                "g": {"reason": "a broker does not answer", "as_of": "2026-01-01T00:00:00+00:00"},
                "x": {"reason": "allow DESCRIBE on the group", "as_of": None},
            },
            "problems": ["listing: a broker does not answer"],
            "sync": None,
        }
    ]


def test_a_snapshot_that_cannot_be_read_is_a_problem(source: Source) -> None:
    source.objects.put_new(f"{groups_prefix('data', 'a')}{1:020d}", BytesIO(b"rubbish"), 7)
    found = status(source)
    assert (found.report, found.is_troubled) == (None, True)
    [line] = text(source)
    assert line.startswith("! groups of a: the newest snapshot of consumer groups of a cannot be read")
    assert groups_json([found])[0]["groups"] is None


def decision(outcome: SyncOutcome, reason: str = "") -> SyncDecision:
    position = GroupPosition(
        group="g",
        source="a/orders/0",
        target=TopicPartition("a.orders", 0),
        upstream=9,
        downstream=7,
        exactness=Exactness.EXACT,
    )
    return SyncDecision(position=position, outcome=outcome, here=5, reason=reason)


def test_why_offsets_are_committed_here_or_not(source: Source) -> None:
    some = [decision(SyncOutcome.SAME), decision(SyncOutcome.WRITE), decision(SyncOutcome.AHEAD, "it is further here")]
    found = GroupDecisions(region="a", groups={"g": some})
    assert list(decisions_text(found)) == [
        "offsets of groups of a here: 1 ahead, 1 as at the source, 1 to write in the next round",
        "  g in a.orders/0: ahead: it is further here",
    ]
    assert list(decisions_text(GroupDecisions(region="a", problem="no map"))) == [
        "what is done here with groups of a cannot be read: no map"
    ]
    source.publish(g=1)
    [entry] = groups_json([status(source)], [found])
    sync: Any = entry["sync"]
    assert [one["outcome"] for one in sync["groups"]["g"]] == ["same", "write", "ahead"]
    assert sync["groups"]["g"][2]["reason"] == "it is further here"
