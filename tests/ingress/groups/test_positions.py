"""Which offsets of a snapshot are translated, to where, and which are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from formats.control.claim import UNREADABLE
from formats.control.group_snapshot import CLASSIC, CommittedOffset, GroupSnapshot, SnapshotGroup, TopicCommits
from formats.incarnation import Incarnation
from formats.messages.delivery_checkpoint import CheckpointKey
from infra.contracts.cluster import TopicPartition
from ingress.groups.lookup import NotKnownNow
from ingress.groups.positions import (
    DeliveredTopics,
    GroupPosition,
    group_positions,
    of_other_incarnations,
    of_shared_destinations,
)
from ingress.groups.preserved import PreservedOffsets
from ingress.groups.translation import END_OF_OFFSETS, DeliveredRange, Exactness, Translation
from ingress.routing.archived import ArchivedTopic
from ingress.routing.succession import ArchivedIncarnation
from tests.ingress.world import source_settings

AT = datetime(2026, 3, 4, tzinfo=UTC)


def route(topic: str, destination: str, *ids: str, region: str = "us", policy: str | None = None) -> ArchivedTopic:
    """`ids`: of the incarnations' paths; empty for the plain one."""
    return ArchivedTopic(
        region=region,
        incarnations=[ArchivedIncarnation(incarnation=Incarnation(topic, one)) for one in ids or ("",)],
        settings=source_settings(topic, None if policy else destination, replication_policy=policy),
    )


def snapshot(topic: str, topic_id: str, **offsets: int) -> GroupSnapshot:
    """`offsets`: in partition 3, by group."""
    groups = {
        group: SnapshotGroup(
            kind=CLASSIC,
            state="empty",
            members=0,
            topics={topic: TopicCommits.of(topic_id, {3: CommittedOffset(next_offset=offset, metadata="m")})},
        )
        for group, offset in offsets.items()
    }
    return GroupSnapshot(cluster_id="c", writer="w", observed_at=AT, groups=groups)


def half(key: CheckpointKey, offsets: Sequence[int]) -> Sequence[Translation] | str:
    """A map of a topic with a marker behind each record."""
    return [Translation(offset // 2, Exactness.EXACT) for offset in offsets]


def found(
    given: GroupSnapshot, *destinations: Sequence[ArchivedTopic], ids: Mapping[str, str] | None = None
) -> list[GroupPosition]:
    """`ids`: of claims, by path."""
    delivered = DeliveredTopics.of("us", destinations, lambda _, path: (ids or {}).get(path))
    return list(group_positions(given, delivered, half))


def test_each_commit_of_a_delivered_topic() -> None:
    one, other = found(snapshot("t", "id", a=8, b=10), [route("t", "here")])
    assert (one.group, one.upstream, one.downstream, one.target) == ("a", 8, 4, TopicPartition("here", 3))
    assert (one.source, one.metadata, one.reason) == ("us/t/3", "m", "")
    assert (other.group, other.downstream) == ("b", 5)


def test_a_topic_that_goes_to_two_destinations() -> None:
    places = found(snapshot("t", "id", a=8), [route("t", "one")], [route("t", "two")])
    assert [place.target.topic for place in places] == ["one", "two"]


def test_what_is_not_delivered_or_shared_or_only_records_is_left_out() -> None:
    given = snapshot("t", "id", a=8)
    assert found(given) == []
    assert found(given, [route("t", "here", region="ap")]) == []
    assert found(given, [route("t", "here"), route("u", "here")]) == []
    assert found(given, [route("t", "", policy="LegacyReplicationPolicy")]) == []


def test_an_offset_of_another_incarnation_is_none_of_this_topic() -> None:
    given = snapshot("t", "second", a=8)
    assert found(given, [route("t", "here")], ids={"t": "first"}) == []
    assert len(found(given, [route("t", "here")])) == 1, "an archive without claims"
    followed = route("t", "here", "", "second")
    [one] = found(given, [followed], ids={"t": "first", "t@second": "second"})
    assert one.source == "us/t@second/3"
    assert len(found(snapshot("t", "", a=8), [route("t", "here")], ids={"t": "c-0"})) == 1, "brokers without topic ids"


def test_groups_of_another_incarnation_are_named() -> None:
    delivered = DeliveredTopics.of("us", [[route("t", "here")]], lambda _, __: "old")
    assert of_other_incarnations(snapshot("t", "new", a=8), delivered) == {"a": ["t"]}
    assert of_other_incarnations(snapshot("t", "old", a=8), delivered) == {}
    assert of_other_incarnations(snapshot("another", "new", a=8), delivered) == {}, "it is not delivered here"


def test_a_claim_that_cannot_be_read_is_not_one_of_another_incarnation() -> None:
    """A failover in that moment would end without the group, and say that its topic was created again."""
    given = snapshot("t", "id", a=8)
    [one] = found(given, [route("t", "here")], ids={"t": UNREADABLE})
    assert (one.target, one.downstream, one.is_known_later) == (TopicPartition("here", 3), None, True)
    assert "the claim of us/t cannot be read" in one.reason
    delivered = DeliveredTopics.of("us", [[route("t", "here")]], lambda *_: UNREADABLE)
    assert of_other_incarnations(given, delivered) == {}
    assert found(given, [route("t", "here", "", "id")], ids={"t": "first", "t@id": UNREADABLE})[0].downstream == 4
    followed = route("t", "here", "", "second")
    assert found(snapshot("t", "third", a=8), [followed], ids={"t": "first", "t@second": UNREADABLE}) == []


def test_a_path_whose_claim_has_not_arrived_is_of_the_id_in_it() -> None:
    """Else an offset of the first incarnation would be committed in the topic of the second, beyond its records."""
    both = [route("t", "here")], [route("t", "again", "second")]
    [one] = found(snapshot("t", "first", a=8), *both, ids={"t": "first"})
    assert one.target.topic == "here"
    [one] = found(snapshot("t", "second", a=8), *both, ids={"t": "first"})
    assert one.target.topic == "again"
    [one] = found(snapshot("t", "second", a=8), [route("t", "here", "second-fork2")])
    assert one.source == "us/t@second-fork2/3"


def test_after_a_fork_the_last_path_counts() -> None:
    forked = route("t", "here", "", "first-fork1")
    [one] = found(snapshot("t", "first", a=8), [forked], ids={"t": "first", "t@first-fork1": "first"})
    assert one.source == "us/t@first-fork1/3"


def test_why_an_offset_is_not_known() -> None:
    delivered = DeliveredTopics.of("us", [[route("t", "here")]], lambda *_: None)
    given = snapshot("t", "id", a=8)
    [silent] = group_positions(given, delivered, lambda *_: [Translation(None, Exactness.UNKNOWN)])
    assert (silent.downstream, silent.exactness) == (None, Exactness.UNKNOWN)
    assert "before the offset map began" in silent.reason
    [unread] = group_positions(given, delivered, lambda *_: "nothing was delivered")
    assert (unread.downstream, unread.reason) == (None, "nothing was delivered")
    [away] = group_positions(given, delivered, lambda *_: NotKnownNow("no leader"))
    assert [one.is_known_later for one in (silent, unread, away)] == [False, False, True]


def test_any_number_may_be_committed() -> None:
    given = snapshot("t", "id", a=END_OF_OFFSETS, b=8)
    delivered = DeliveredTopics.of("us", [[route("t", "here")]], lambda *_: None)
    pages = PreservedOffsets(DeliveredRange(log_start=0, log_end=10, applied=10, begun_at=0))
    found = list(group_positions(given, delivered, lambda _, offsets: pages.targets_of(offsets)))
    assert [(one.group, one.downstream, one.exactness) for one in found] == [
        ("a", 10, Exactness.CLAMPED),
        ("b", 8, Exactness.EXACT),
    ]


def test_groups_of_topics_that_share_a_destination_are_named() -> None:
    delivered = DeliveredTopics.of("us", [[route("t", "here"), route("u", "here")]], lambda *_: None)
    assert of_shared_destinations(snapshot("t", "id", a=8), delivered) == {"a": ["t"]}
    assert of_shared_destinations(snapshot("another", "id", a=8), delivered) == {}
    besides = DeliveredTopics.of("us", [[route("t", "here"), route("u", "here")], [route("t", "own")]], lambda *_: None)
    assert of_shared_destinations(snapshot("t", "id", a=8), besides) == {}


def test_each_offset_is_translated_once_and_in_order() -> None:
    """A page of the offset map is read for those that lie in it, one after the other."""
    asked: list[Sequence[int]] = []

    def translated(key: CheckpointKey, offsets: Sequence[int]) -> Sequence[Translation] | str:
        asked.append(offsets)
        return half(key, offsets)

    given = snapshot("t", "id", a=8, b=2, c=8, d=4)
    delivered = DeliveredTopics.of("us", [[route("t", "here")]], lambda *_: None)
    positions = list(group_positions(given, delivered, translated))
    assert asked == [[2, 4, 8]]
    assert [(one.group, one.downstream) for one in positions] == [("a", 4), ("b", 1), ("c", 4), ("d", 2)]
