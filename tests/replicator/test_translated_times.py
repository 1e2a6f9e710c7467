"""Timestamps of translated offsets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from infra.contracts.cluster import TopicPartition
from replicator.offsets import timestamps_of

FIRST, SECOND = TopicPartition("us.orders", 0), TopicPartition("us.orders", 1)
BEGIN = datetime(2026, 3, 4, tzinfo=UTC)
LOGS: Mapping[TopicPartition, Mapping[int, datetime]] = {
    FIRST: {offset: BEGIN + timedelta(seconds=offset) for offset in (3, 4, 7)},
    SECOND: {0: BEGIN + timedelta(days=1)},
}


def of_logs(asked: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, datetime]:
    """As `LogProbe.timestamps`: of one offset of each partition."""
    found = {
        partition: [at for there, at in LOGS[partition].items() if there >= offset]
        for partition, offset in asked.items()
    }
    return {partition: some[0] for partition, some in found.items() if some}


def test_several_offsets_of_a_partition_have_their_own() -> None:
    places = [(FIRST, 3), (FIRST, 4), (FIRST, 5), (FIRST, 8), (SECOND, 0)]
    assert timestamps_of(places, of_logs) == {
        (FIRST, 3): LOGS[FIRST][3],
        (FIRST, 4): LOGS[FIRST][4],
        (FIRST, 5): LOGS[FIRST][7],
        (SECOND, 0): LOGS[SECOND][0],
    }


def test_partitions_are_asked_together_and_nothing_without_an_offset() -> None:
    asked: list[Mapping[TopicPartition, int]] = []

    def ask(places: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, datetime]:
        asked.append(places)
        return of_logs(places)

    timestamps_of([(FIRST, 3), (SECOND, 0), (FIRST, 3)], ask)
    assert asked == [{FIRST: 3, SECOND: 0}]
    assert timestamps_of([], ask) == {}
    assert len(asked) == 1
