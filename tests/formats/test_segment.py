"""Segment keys are a bijection and sort like their ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import MalformedKey
from formats.segment import OffsetRange, Segment, SourcePartition, format_key, parse_key

NAME = st.text("abcXYZ019._-", min_size=1, max_size=12).filter(lambda n: n not in (".", "..", "_control"))
RANGES = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)).map(lambda t: OffsetRange(min(t), max(t)))
SOURCES = st.builds(
    SourcePartition, NAME, NAME, st.integers(0, 2**31 - 1), st.just("") | st.text("abz09_-", min_size=1, max_size=30)
)
SEGMENTS = st.builds(Segment, SOURCES, st.integers(0, 9999), RANGES)


@given(SEGMENTS, st.sampled_from(["", "data", "a/b"]))
def test_key_round_trip(segment: Segment, prefix: str) -> None:
    assert parse_key(prefix, format_key(prefix, segment)) == segment


@given(st.text() | SEGMENTS.map(str).flatmap(lambda k: st.integers(0, len(k)).map(lambda i: k[:i] + "x" + k[i + 1 :])))
def test_any_other_text_is_malformed_or_formats_back(text: str) -> None:
    try:
        segment = parse_key("data", f"data/{text}")
    except MalformedKey:
        return
    assert format_key("data", segment) == f"data/{text}"


@given(RANGES, RANGES)
def test_keys_sort_as_ranges(a: OffsetRange, b: OffsetRange) -> None:
    source = SourcePartition("r", "t", 0)
    ka, kb = (format_key("p", Segment(source, 0, r)) for r in (a, b))
    assert (ka < kb) == (a < b)


def test_layout_is_the_documented_one() -> None:
    segment = Segment(SourcePartition("us-west-1", "sensor.events", 107), 0, OffsetRange(100_000, 200_000))
    wanted = "data/us-west-1/sensor.events/107/0/00000000000000100000-00000000000000200000"
    assert format_key("data", segment) == wanted


def test_other_incarnations_have_their_own_path() -> None:
    segment = Segment(SourcePartition("a", "t", 0, "Xyz_-1"), 0, OffsetRange(0, 1))
    assert format_key("", segment).startswith("a/t@Xyz_-1/0/0/")


@pytest.mark.parametrize(
    "key",
    [
        "data/a/t/0/0/1-2",
        "data/a/t/00/0/00000000000000000000-00000000000000000001",
        "data/a/t/0/0/00000000000000000002-00000000000000000001",
        "data/a/t/0/0/99999999999999999999-99999999999999999999",
        "data/a/_control/0/0/00000000000000000000-00000000000000000001",
        "data/a/t/0/0/00000000000000000000-00000000000000000001/x",
        "other/a/t/0/0/00000000000000000000-00000000000000000001",
        "data/a/t/0/0/٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠-00000000000000000001",
    ],
)
def test_malformed_keys_are_named(key: str) -> None:
    with pytest.raises(MalformedKey, match="not a segment key"):
        parse_key("data", key)
