"""Offsets of a partition that keeps those of the source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.messages.delivery_checkpoint import Checkpoint
from infra.contracts.cluster import LogEnds, TopicPartition
from ingress.groups.lookup import MapLookup
from ingress.groups.preserved import PreservedOffsets
from ingress.groups.translation import DeliveredRange, Exactness, Translation
from tests.contracts.target import AT, key_of


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (5, Translation(5, Exactness.EXACT)),
        (9, Translation(9, Exactness.EXACT)),
        (10, Translation(9, Exactness.CLAMPED)),
    ],
)
def test_to_itself_within_what_is_applied(offset: int, expected: Translation) -> None:
    """Beyond 9 there are records of others: preserving has broken off there."""
    found = PreservedOffsets(DeliveredRange(log_start=5, log_end=12, applied=9))
    assert found.target_of(offset) == found.source_of(offset) == expected
    assert found.targets_of((offset, 0)) == [expected, found.target_of(0)]


def test_what_was_removed_here_may_be_at_the_source_still() -> None:
    """A group that goes back goes on where it stood: the log's start here would move it past records that are there."""
    found = PreservedOffsets(DeliveredRange(log_start=5, log_end=12, applied=9))
    assert found.target_of(4) == Translation(5, Exactness.TRIMMED)
    assert found.source_of(4) == Translation(4, Exactness.EXACT)


@pytest.mark.parametrize(
    ("begun_at", "exactness"),
    [(5, Exactness.EXACT), (6, Exactness.EXACT), (4, Exactness.TRIMMED), (None, Exactness.TRIMMED)],
)
def test_below_the_log_start_nothing_is_lost_where_nothing_was(begun_at: int | None, exactness: Exactness) -> None:
    found = PreservedOffsets(DeliveredRange(log_start=5, log_end=12, applied=9, begun_at=begun_at))
    assert found.target_of(2) == Translation(5, exactness)
    assert found.source_of(2) == Translation(5 if exactness is Exactness.EXACT else 2, Exactness.EXACT)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 120), st.integers(0, 200))
def test_never_beyond_the_log(start: int, length: int, applied: int, offset: int) -> None:
    found = PreservedOffsets(DeliveredRange(log_start=start, log_end=start + length, applied=applied)).target_of(offset)
    assert found.offset is not None
    assert start <= found.offset <= start + length
    assert (found.exactness is Exactness.EXACT) == (found.offset == offset)


def test_no_offset() -> None:
    with pytest.raises(ValueError, match="not an offset: -1"):
        PreservedOffsets(DeliveredRange(log_start=0, log_end=1)).target_of(-1)


def test_the_lookup_needs_no_map() -> None:
    target = TopicPartition("orders", 0)
    lookup = MapLookup(
        maps={},
        positions={key_of(target): Checkpoint(9, "id", AT)},
        ends={target: LogEnds(low=2, stable=9, high=9)},
        topic_ids={"orders": "id"},
        preserved=frozenset({"orders"}),
    )
    assert lookup.target_of(key_of(target), 7) == Translation(7, Exactness.EXACT)
