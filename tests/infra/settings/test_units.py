from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.settings.units import format_age, format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
        ("90m", timedelta(minutes=90)),
        (" 5m ", timedelta(minutes=5)),
        ("0s", timedelta()),
    ],
)
def test_durations(text: str, wanted: timedelta) -> None:
    assert parse_duration(text) == wanted


@pytest.mark.parametrize(
    "text", ["", " ", "5", "5 m", "m", "-5m", "5min", "30m1h", "5m5m", "1.5h", "5M", "٥m", "1h ago"]
)
def test_what_is_no_duration_is_rejected_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r'is not a duration.*"1h30m"'):
        parse_duration(text)


def test_a_duration_too_long_to_hold() -> None:
    with pytest.raises(ValueError, match="longer than any duration"):
        parse_duration("999999999999d")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("100MiB", 100 * 1024 * 1024),
        ("1GiB", 1024**3),
        ("64KiB", 65536),
        ("2TiB", 2 * 1024**4),
        ("10MB", 10_000_000),
        ("1kB", 1000),
        ("123", 123),
        ("123B", 123),
        ("5 MiB", 5 * 1024 * 1024),
        (123, 123),
    ],
)
def test_sizes(value: str | int, wanted: int) -> None:
    assert parse_size(value) == wanted


@pytest.mark.parametrize("text", ["", "MiB", "-1MiB", "1.5GiB", "100mib", "100 Mbit", "1e6", "ten"])
def test_what_is_no_size_is_rejected_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r'is not a size.*"100MiB"'):
        parse_size(text)


@given(st.integers(0, 10**12).map(lambda ms: timedelta(milliseconds=ms)))
def test_a_written_duration_is_read_back(value: timedelta) -> None:
    assert parse_duration(format_duration(value)) == value


@given(st.integers(0, 2**60) | st.integers(0, 2**20).map(lambda n: n << 20))
def test_a_written_size_is_read_back(value: int) -> None:
    assert parse_size(format_size(value)) == value


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (timedelta(), "0s"),
        (timedelta(milliseconds=-5), "0s"),
        (timedelta(milliseconds=900), "0s"),
        (timedelta(seconds=59), "59s"),
        (timedelta(seconds=61), "1m1s"),
        (timedelta(hours=2, seconds=3), "2h"),
        (timedelta(hours=2, minutes=5, seconds=3), "2h5m"),
        (timedelta(days=9), "9d"),
        (timedelta(days=400, hours=3, minutes=1), "400d3h"),
    ],
)
def test_an_age_has_its_two_largest_units(value: timedelta, wanted: str) -> None:
    assert format_age(value) == wanted
