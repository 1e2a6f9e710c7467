"""Consumer groups of a source as bytes."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.group_snapshot import (
    CLASSIC,
    CONSUMER,
    CommittedOffset,
    GroupSnapshot,
    SnapshotGroup,
    TopicCommits,
    decode_group_snapshot,
    encode_group_snapshot,
)
from formats.control.packed import pack
from formats.errors import MalformedEvent

T0 = datetime(2026, 1, 1, tzinfo=UTC)
words = st.text("ab.é", min_size=1, max_size=5)
times = st.datetimes(timezones=st.just(UTC))
texts = st.dictionaries(words, words, max_size=2)
commits = st.builds(
    CommittedOffset,
    next_offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.none() | st.integers(0, 2**31 - 1),
    metadata=st.text(max_size=4),
)
topics = st.builds(
    lambda topic_id, found, as_of: replace(TopicCommits.of(topic_id, found), as_of=as_of),
    st.sampled_from(["", "one", "other"]),
    st.dictionaries(st.integers(0, 9), commits, min_size=1, max_size=5),
    st.none() | times,
)
groups = st.builds(
    SnapshotGroup,
    kind=st.sampled_from([CLASSIC, CONSUMER]),
    state=words,
    members=st.integers(0, 9),
    topics=st.dictionaries(words, topics, min_size=1, max_size=3),
)
generations = st.builds(
    GroupSnapshot,
    cluster_id=words,
    writer=words,
    observed_at=times,
    groups=st.dictionaries(words, groups, max_size=3),
    unsupported=texts,
    unreadable=texts,
    problems=texts,
    read_until=st.none() | times,
)


@given(generations)
def test_round_trip_in_the_same_bytes(found: GroupSnapshot) -> None:
    data = encode_group_snapshot(found)
    assert decode_group_snapshot(data) == found
    assert encode_group_snapshot(decode_group_snapshot(data)) == data


@given(st.dictionaries(st.integers(0, 20), commits, min_size=1))
def test_commits_are_in_the_order_of_their_partitions(found: dict[int, CommittedOffset]) -> None:
    assert list(TopicCommits.of("id", found).items()) == sorted(found.items())


def group(*offsets: int, topic_id: str = "id", **others: Any) -> SnapshotGroup:
    """Of topic t, from partition 0 on."""
    topic = TopicCommits.of(topic_id, {n: CommittedOffset(next_offset=offset) for n, offset in enumerate(offsets)})
    return SnapshotGroup(kind=CLASSIC, state="empty", members=0, topics={"t": topic, **others})


def snapshot(**groups: SnapshotGroup) -> GroupSnapshot:
    return GroupSnapshot(cluster_id="c", writer="w", observed_at=T0, groups=groups)


def written(found: GroupSnapshot) -> Mapping[str, Any]:
    message: Mapping[str, Any] = json.loads(gzip.decompress(encode_group_snapshot(found)))
    return message


def test_it_counts_from_the_end_of_its_observation() -> None:
    ended = replace(snapshot(g=group(5)), read_until=T0 + timedelta(seconds=20))
    assert (ended.known_at, snapshot().known_at) == (T0 + timedelta(seconds=20), T0), "earlier versions wrote no end"
    assert ended.has_same_content(replace(ended, read_until=None))
    assert "read_until" not in written(snapshot())


def test_what_says_nothing_is_not_written() -> None:
    sparse = TopicCommits.of("id-u", {3: CommittedOffset(next_offset=7, leader_epoch=2, metadata="m")})
    message = written(snapshot(g=group(5, 6), h=group(8, topic_id="before", u=replace(sparse, as_of=T0))))
    assert message["topics"] == {"t": "id", "u": "id-u"}
    assert message["groups"]["g"]["topics"] == {"t": {"next": [5, 6]}}
    assert message["groups"]["h"]["topics"] == {
        "t": {"next": [8], "id": "before"},
        "u": {"next": [7], "partitions": [3], "epochs": [2], "metadata": ["m"], "as_of": "2026-01-01T00:00:00+00:00"},
    }


def test_fields_of_newer_programs_are_ignored() -> None:
    message = dict(written(snapshot(g=group(5))))
    message["later"] = 1
    message["groups"]["g"]["later"] = 1
    message["groups"]["g"]["topics"]["t"]["later"] = [1]
    assert decode_group_snapshot(pack(message)) == snapshot(g=group(5))


def test_five_hundred_groups_of_a_hundred_partitions_are_small_and_quick() -> None:
    many = {f"group-{n:03}": group(*range(10**9 + n, 10**9 + n + 100 * 999_983, 999_983)) for n in range(500)}
    began = time.process_time()
    data = encode_group_snapshot(snapshot(**many))
    assert decode_group_snapshot(data).groups == many
    assert len(data) < 6 * 500 * 100, "six bytes for each offset"
    assert time.process_time() - began < 5, "seconds"


JUNK: list[Any] = [None, True, -1, 2**70, 1.5, float("inf"), float("nan"), "", "x", [], [-1], {}, {"x": 1}]


def paths(message: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of every part of a message."""
    for key in message if isinstance(message, dict) else range(len(message) if isinstance(message, list) else 0):
        yield (*path, key)
        yield from paths(message[key], (*path, key))


def test_garbage_in_any_part_is_an_error_or_a_snapshot() -> None:
    sparse = TopicCommits.of("id-u", {3: CommittedOffset(next_offset=7, leader_epoch=2, metadata="m")})
    found = replace(snapshot(g=group(5, 6, u=replace(sparse, as_of=T0))), unreadable={"h": "why"})
    malformed = 0
    for *path, last in paths(written(found)):
        for junk in (*JUNK, ...):  # ...: left out
            message = written(found)
            here: Any = message
            for key in path:
                here = here[key]
            if junk is ...:
                del here[last]
            else:
                here[last] = junk
            try:
                decode_group_snapshot(pack(message))
            except MalformedEvent:
                malformed += 1
    assert malformed > 200


@given(st.binary(max_size=40))
def test_bytes_that_are_no_snapshot_are_an_error(data: bytes) -> None:
    with pytest.raises(MalformedEvent, match="not consumer groups of a source cluster"):
        decode_group_snapshot(data)


@pytest.mark.parametrize(
    "data",
    [
        pack({"v": 2}),
        pack({"v": 1}),
        encode_group_snapshot(snapshot(g=group(5)))[:-5],
    ],
    ids=["newer", "incomplete", "cut"],
)
def test_what_cannot_be_decoded_says_so(data: bytes) -> None:
    with pytest.raises(MalformedEvent, match="not consumer groups of a source cluster"):
        decode_group_snapshot(data)


def test_who_observed_them_and_when_makes_no_difference() -> None:
    one = snapshot(g=group(5))
    assert replace(one, writer="other", observed_at=T0 + timedelta(days=1)).has_same_content(one)
    for other in (
        snapshot(g=group(6)),
        snapshot(g=group(5, topic_id="again")),
        snapshot(g=replace(group(5), members=1)),
        replace(one, unsupported={"s": "share"}),
        replace(one, unreadable={"u": "why"}),
        replace(one, problems={"groups": "why"}),
    ):
        assert not other.has_same_content(one)


def test_the_time_of_offsets_is_that_of_the_oldest() -> None:
    old = replace(group(5).topics["t"], as_of=T0 - timedelta(hours=1))
    assert group(5).as_of is None
    assert group(5, u=old, v=replace(old, as_of=T0)).as_of == T0 - timedelta(hours=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": (), "next_offsets": (), "leader_epochs": (), "metadata": ()},
        {"next_offsets": (1, 2)},
        {"partitions": (-1,)},
        {"next_offsets": (-1,)},
        {"leader_epochs": (-1,)},
    ],
)
def test_columns_that_are_none(wrong: Mapping[str, Any]) -> None:
    right: Mapping[str, Any] = {"partitions": (0,), "next_offsets": (1,), "leader_epochs": (None,), "metadata": ("",)}
    assert TopicCommits(topic_id="", **right)
    with pytest.raises(ValueError, match=r"columns|ascending|negative"):
        TopicCommits(topic_id="", **{**right, **wrong})


def test_partitions_that_are_not_ascending() -> None:
    with pytest.raises(ValueError, match="ascending"):
        TopicCommits(topic_id="", partitions=(1, 1), next_offsets=(1, 1), leader_epochs=(None, None), metadata=("", ""))
