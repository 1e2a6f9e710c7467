"""Applications of Kafka Streams are recognised by what they leave, and what they lack is named."""

from __future__ import annotations

import base64
import struct
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType

from formats.control.group_snapshot import (
    CLASSIC,
    OTHER_KIND,
    CommittedOffset,
    GroupSnapshot,
    SnapshotGroup,
    TopicCommits,
)
from replicator.failover.streams import ArrivingTopic, StreamsApplication, inner_topics, streams_applications

NOW = datetime(2026, 3, 4, tzinfo=UTC)
CHANGELOG, REPARTITION = "shop-counts-changelog", "shop-counts-repartition"


def streams_metadata(version: int = 2, rest: bytes = b"\x00\x00\x00\x00") -> str:
    """As `TopicPartitionMetadata.encode` of Kafka Streams writes it: version, time of the partition, more."""
    return base64.b64encode(struct.pack(">bq", version, 1_700_000_000_000) + rest).decode()


WRITTEN_BY_STREAMS = "AgAAAaISSRBM"
"""What version 4.3.1 has committed: the demo application of tests/processes/word_count.py."""


def group(*topics: str, metadata: str = "") -> SnapshotGroup:
    commits = {0: CommittedOffset(next_offset=5, metadata=metadata)}
    return SnapshotGroup(
        kind=CLASSIC, state="empty", members=0, topics={topic: TopicCommits.of("id", commits) for topic in topics}
    )


def found(
    groups: Mapping[str, SnapshotGroup],
    topics: Collection[str] = (),
    arriving: Sequence[ArrivingTopic] = (),
    unsupported: Mapping[str, str] = MappingProxyType({}),
) -> Sequence[StreamsApplication]:
    snapshot = GroupSnapshot(cluster_id="c", writer="w", observed_at=NOW, groups=groups, unsupported=unsupported)
    return streams_applications(snapshot, topics, arriving)


def arriving(name: str, destination: str = "", *, keeps_offsets: bool = False) -> ArrivingTopic:
    return ArrivingTopic(name=name, destination=destination or name, keeps_offsets=keeps_offsets)


def test_an_application_without_state_is_known_by_its_commits() -> None:
    for version, rest in ((1, b""), (2, b"\x00\x00\x00\x00")):
        [one] = found({"shop": group("orders", metadata=streams_metadata(version, rest))}, (), [arriving("orders")])
        assert (one.group, one.inner) == ("shop", ())
        assert len(one.missing) == 1
        assert "no changelog" in one.missing[0]


def test_what_kafka_streams_itself_has_written_is_known() -> None:
    [one] = found({"shop": group("orders", metadata=WRITTEN_BY_STREAMS)}, (), [arriving("orders")])
    assert one.group == "shop"


def test_an_application_whose_group_has_the_streams_protocol_is_known_by_its_topics() -> None:
    some = [arriving(name, keeps_offsets=True) for name in ("orders", CHANGELOG, REPARTITION)]
    [one] = found({}, (), some, {"shop": OTHER_KIND, "alerts": OTHER_KIND})
    assert (one.group, one.inner) == ("shop", (CHANGELOG, REPARTITION))
    [protocol] = one.missing
    assert 'group.protocol = "classic"' in protocol
    [one] = found({}, [CHANGELOG], (), {"shop": OTHER_KIND})
    protocol, not_delivered = one.missing
    assert 'group.protocol = "classic"' in protocol
    assert "not delivered" in not_delivered


def test_other_groups_are_none() -> None:
    others = {f"g{n}": group("orders", metadata=text) for n, text in enumerate(("", "note", "AAAA", "b64?"))}
    assert found(others, ["orders", CHANGELOG]) == []


def test_an_application_is_known_by_its_topics() -> None:
    [one] = found({"shop": group("orders", REPARTITION)}, ["shopping-x-changelog"])
    assert one.inner == (REPARTITION,)
    assert inner_topics("shop", [CHANGELOG, "shop", "other-changelog", "shop-x", REPARTITION]) == (
        CHANGELOG,
        REPARTITION,
    )


def test_nothing_is_missing_where_names_and_offsets_are_kept() -> None:
    some = [arriving(name, keeps_offsets=True) for name in ("orders", CHANGELOG, REPARTITION)]
    [one] = found({"shop": group("orders", REPARTITION, metadata=streams_metadata())}, (), some)
    assert one.missing == ()


def test_each_thing_that_is_missing_is_named() -> None:
    some = [arriving("orders", "us.orders"), arriving(CHANGELOG)]
    [one] = found({"shop": group("orders", REPARTITION)}, [CHANGELOG], some)
    not_delivered, elsewhere, other_offsets = one.missing
    assert REPARTITION in not_delivered
    assert "not delivered" in not_delivered
    assert "us.orders" in elsewhere
    assert "identity" in elsewhere
    assert CHANGELOG in other_offsets
    assert 'offsets = "preserve"' in other_offsets
