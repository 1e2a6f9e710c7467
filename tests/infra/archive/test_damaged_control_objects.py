"""Control objects that cannot be decoded: the error names the object, which an operator has to restore."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from formats.control.claim import TopicClaim
from formats.control.fork import LogFork
from formats.control.gap import RecordedGap
from formats.control.keys import accepted_gap_key, begin_key, claim_key, fork_key, gap_key
from formats.errors import MalformedEvent
from formats.segment import OffsetRange, SourcePartition
from infra.archive.control import ControlStore
from infra.storage.memory_and_folder import MemoryObjectStore

NOW = datetime(2026, 3, 5, tzinfo=UTC)
SOURCE = SourcePartition("a", "t", 0)
RANGE = OffsetRange(0, 9)
FORK = LogFork(source=SOURCE, next_offset=10, leader_epoch=0, end_offset=5, found_at=NOW)
CLAIM = TopicClaim(topic_id="id", cluster_id="cluster", number=0, claimed_at=NOW)
ACCEPTED = RecordedGap(source=SOURCE, offsets=RANGE, reason="known", low=0, high=20, recorded_at=NOW, is_accepted=True)


@pytest.mark.parametrize(
    ("key", "read"),
    [
        (claim_key("data", "a", "t"), lambda control: control.claims.of("a", "t")),
        (claim_key("data", "a", "t"), lambda control: control.claims.record("a", "t", CLAIM)),
        (begin_key("data", SOURCE), lambda control: control.begins.of(SOURCE)),
        (fork_key("data", FORK), lambda control: control.forks.of(SOURCE)),
        (gap_key("data", SOURCE, RANGE), lambda control: control.gaps.of(SOURCE)),
        (gap_key("data", SOURCE, RANGE), lambda control: control.gaps.record(ACCEPTED)),
        (accepted_gap_key("data", SOURCE, RANGE), lambda control: control.gaps.of(SOURCE)),
    ],
)
def test_the_error_names_the_object(key: str, read: Callable[[ControlStore], object]) -> None:
    objects = MemoryObjectStore()
    objects.put_new(key, io.BytesIO(b"{"), 1)
    with pytest.raises(MalformedEvent) as found:
        read(ControlStore(objects, "data"))
    assert str(found.value).startswith(f"{key}: ")
