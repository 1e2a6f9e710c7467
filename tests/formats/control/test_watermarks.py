"""Watermarks of a source as bytes."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.watermarks import (
    Column,
    SourceWatermarks,
    TopicWatermarks,
    decode_watermarks,
    encode_watermarks,
)
from formats.errors import MalformedEvent

T0 = datetime(2026, 1, 1, tzinfo=UTC)
words = st.text("ab.é", min_size=1, max_size=5)


def columns(partitions: int) -> st.SearchStrategy[Column]:
    return st.tuples(*[st.none() | st.integers(0, 2**63 - 1)] * partitions)


topics = st.integers(1, 4).flatmap(
    lambda n: st.builds(
        TopicWatermarks,
        topic_id=words,
        low=columns(n),
        high=columns(n),
        stable=columns(n),
        position=columns(n),
        settled=st.frozensets(st.integers(0, n - 1)),
    )
)
generations = st.builds(
    SourceWatermarks,
    cluster_id=words,
    writer=words,
    observed_at=st.datetimes(timezones=st.just(UTC)),
    topics=st.dictionaries(words, topics, max_size=4),
    problems=st.dictionaries(words, words, max_size=2),
    settled_at=st.datetimes(timezones=st.just(UTC)),
)


@given(generations)
def test_round_trip_in_the_same_bytes(found: SourceWatermarks) -> None:
    data = encode_watermarks(found)
    assert decode_watermarks(data) == found
    assert encode_watermarks(decode_watermarks(data)) == data


def watermarks(**topics: TopicWatermarks) -> SourceWatermarks:
    return SourceWatermarks(cluster_id="c", writer="w", observed_at=T0, topics=topics)


TOPIC = TopicWatermarks(topic_id="id", low=(1, None), high=(9, 5), stable=(9, 5), position=(7, None))


def test_what_says_nothing_is_not_written() -> None:
    unknown = (None, None)
    nothing = TopicWatermarks(topic_id="", low=unknown, high=unknown, stable=unknown, position=unknown)
    open_one = replace(TOPIC, stable=(3, 5))
    data = encode_watermarks(watermarks(t=TOPIC, u=nothing, v=open_one))
    written = json.loads(gzip.decompress(data))["topics"]
    assert written["t"] == {"id": "id", "partitions": 2, "low": [1, None], "high": [9, 5], "position": [7, None]}
    assert written["u"] == {"id": "", "partitions": 2}
    assert written["v"]["stable"] == [3, 5]
    assert "settled_at" not in json.loads(gzip.decompress(data))


def test_what_is_settled_is_written_in_a_few_bytes() -> None:
    some, every = replace(TOPIC, settled=frozenset({1})), replace(TOPIC, settled=frozenset({0, 1}))
    found = replace(watermarks(), topics={"t": some, "u": every}, settled_at=T0)
    written = json.loads(gzip.decompress(encode_watermarks(found)))
    assert (written["settled_at"], written["topics"]["t"]["settled"]) == (T0.isoformat(), [1])
    assert written["topics"]["u"]["settled"] is True


def test_a_partition_is_settled_at_a_moment_and_exists() -> None:
    with pytest.raises(ValueError, match="settled at a moment"):
        watermarks(t=replace(TOPIC, settled=frozenset({1})))
    with pytest.raises(ValueError, match="no such partition"):
        replace(TOPIC, settled=frozenset({2}))


def test_a_hundred_thousand_partitions_take_a_few_bytes_each() -> None:
    many = tuple(range(10**9, 10**9 + 20_000_000, 1_000_000))
    topic = TopicWatermarks(topic_id="", low=many, high=many, stable=many, position=many)
    data = encode_watermarks(watermarks(**{f"topic-{n}": topic for n in range(5_000)}))
    assert len(data) < 5 * 100_000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        gzip.compress(b"{}"),
        gzip.compress(b'{"v": 2}'),
        encode_watermarks(watermarks(t=TOPIC))[:-9],
        gzip.compress(
            b'{"v":1,"cluster_id":"","writer":"","observed_at":"2026-01-01T00:00:00+00:00","problems":{},'
            b'"topics":{"t":{"id":"","partitions":2,"low":[1]}}}'
        ),
    ],
    ids=["nothing", "empty", "newer", "cut off", "a column that is too short"],
)
def test_anything_else_is_an_error_that_says_so(data: bytes) -> None:
    with pytest.raises(MalformedEvent, match="not watermarks of a source cluster"):
        decode_watermarks(data)


def test_a_time_without_a_zone_is_an_error() -> None:
    """It could not be compared with any other."""
    text = gzip.decompress(encode_watermarks(watermarks(t=TOPIC)))
    assert b"+00:00" in text
    with pytest.raises(MalformedEvent, match="has no time zone"):
        decode_watermarks(gzip.compress(text.replace(b"+00:00", b"")))


def test_who_observed_them_and_when_makes_no_difference() -> None:
    one = watermarks(t=TOPIC)
    assert replace(one, writer="other", observed_at=T0 + timedelta(days=1)).has_same_content(one)
    assert not replace(one, problems={"position": "why"}).has_same_content(one)
    settled = replace(one, topics={"t": replace(TOPIC, settled=frozenset({0}))}, settled_at=T0)
    assert not settled.has_same_content(one), "news"
    assert one.has_same_content(settled), "the offsets are the same, so it still is"
    assert not watermarks(t=replace(TOPIC, high=(9, 6))).has_same_content(settled)
    assert not watermarks().has_same_content(one)
