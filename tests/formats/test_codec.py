"""Codecs are made of dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.codec import Codec
from formats.errors import MalformedEvent


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Everything:
    key: int
    number: int
    text: str
    truth: bool
    at: datetime
    colour: Colour
    names: tuple[str, ...]
    maybe: int | None
    added: str = "default"
    omitted: int | None = None

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("less than nothing")


CODEC = Codec(Everything, "a thing of {key}", outside=("key",), added=("added",), omitted=("omitted",))
VALUES = st.builds(
    Everything,
    key=st.integers(),
    number=st.integers(0, 2**63),
    text=st.text(),
    truth=st.booleans(),
    at=st.datetimes(timezones=st.just(UTC)),
    colour=st.sampled_from(Colour),
    names=st.lists(st.text(), max_size=3).map(tuple),
    maybe=st.none() | st.integers(),
    added=st.text(),
    omitted=st.none() | st.integers(),
)


@given(VALUES)
def test_a_value_is_decoded_as_it_was_encoded(value: Everything) -> None:
    data = CODEC.encode(value)
    assert CODEC.decode(data, key=value.key) == value
    assert (b'"omitted"' in data) == (value.omitted is not None)


@given(VALUES, VALUES)
def test_one_value_has_one_encoding(a: Everything, b: Everything) -> None:
    same = a.key == b.key and CODEC.encode(a) == CODEC.encode(b)
    assert same == (a == b)


@given(st.binary())
def test_any_other_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedEvent, match="not a thing of 5: "):
        CODEC.decode(data, key=5)


def test_a_value_that_the_dataclass_rejects_is_malformed() -> None:
    value = Everything(1, 7, "", True, datetime(2026, 1, 1, tzinfo=UTC), Colour.RED, (), None)
    data = CODEC.encode(value)
    with pytest.raises(MalformedEvent, match="less than nothing"):
        CODEC.decode(data.replace(b'"number":7', b'"number":-7'), key=1)
    with pytest.raises(MalformedEvent, match="'green' is not a valid Colour"):
        CODEC.decode(data.replace(b"red", b"green"), key=1)


def test_a_time_without_a_zone_is_malformed() -> None:
    """It cannot be compared with those of the clock: the reader would fail later."""
    value = Everything(
        key=1,
        number=0,
        text="",
        truth=True,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        colour=Colour.RED,
        names=(),
        maybe=None,
    )
    data = CODEC.encode(value)
    assert b"2026-01-01T00:00:00+00:00" in data
    with pytest.raises(MalformedEvent, match="has no time zone"):
        CODEC.decode(data.replace(b"+00:00", b""), key=1)


def test_a_number_without_an_end_is_malformed() -> None:
    """Python's JSON has such numbers, and `int` raises another error for them than for any other text."""
    value = Everything(1, 7, "", True, datetime(2026, 1, 1, tzinfo=UTC), Colour.RED, (), None)
    with pytest.raises(MalformedEvent, match="infinity"):
        CODEC.decode(CODEC.encode(value).replace(b'"number":7', b'"number":Infinity'), key=1)


def test_a_type_that_has_no_codec_is_refused_at_once() -> None:
    @dataclass
    class Odd:
        value: complex

    with pytest.raises(TypeError, match="no codec for"):
        Codec(Odd, "odd")


def test_a_field_that_may_be_absent_has_a_default() -> None:
    with pytest.raises(TypeError, match="needs a default"):
        Codec(Everything, "a thing", added=("text",))
