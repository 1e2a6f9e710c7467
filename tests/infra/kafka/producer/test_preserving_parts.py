"""Parts of a run that keeps its offsets, and when a call goes on: without a broker."""

from __future__ import annotations

from datetime import timedelta

import pytest

from formats.errors import BrokerUnavailable
from formats.records.hole_rate import BEHIND, HoleBacklog
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind
from infra.kafka.producer.preserve_failures import (
    OF_INGRESS,
    broken,
    leaderless,
    moved,
    not_to_be_read,
    taken_over,
    too_long,
    too_many,
    unfinished,
)
from infra.kafka.producer.preserving_call import check_owned, part_of
from tests.contracts.target import row, run_of

HERE = TopicPartition("orders", 3)


def test_a_part_has_the_records_within_and_the_position_of_its_begin() -> None:
    run = run_of(HERE, [row(5), row(6)], [row(7), row(9)])
    part = part_of(run, 6, 9)
    assert [offset for batch in part.batches for offset in batch.column("offset").to_pylist()] == [6, 7]
    assert (part.count, part.position, part.checkpoint.next_offset) == (2, 6, 9)
    assert part.size_bytes == run.size_bytes // 2
    assert (part.key, part.partition, part.epoch) == (run.key, run.partition, run.epoch)


def test_the_whole_run_is_a_part_of_itself() -> None:
    run = run_of(HERE, [row(5), row(6)])
    part = part_of(run, 5, 7)
    assert (part.count, part.size_bytes, part.position, part.checkpoint) == (2, run.size_bytes, 5, run.checkpoint)


@pytest.mark.parametrize(("start", "next_offset"), [(7, 7), (8, 9), (10, 12)])
def test_a_part_without_records(start: int, next_offset: int) -> None:
    part = part_of(run_of(HERE, [row(5), row(7)]), start, next_offset)
    assert (list(part.batches), part.count, part.size_bytes) == ([], 0, 0)
    assert (part.position, part.checkpoint.next_offset) == (start, next_offset)


def test_a_part_of_a_run_without_records() -> None:
    run = part_of(run_of(HERE, [row(5)]), 6, 9)
    assert (part_of(run, 6, 8).count, part_of(run, 6, 8).size_bytes) == (0, 0)


def test_a_call_goes_on_only_while_it_owns_its_partitions() -> None:
    check_owned(lambda: False, lambda: True)
    with pytest.raises(BrokerUnavailable, match="stopped"):
        check_owned(lambda: True, lambda: True)
    with pytest.raises(BrokerUnavailable, match="frozen"):
        check_owned(lambda: False, lambda: False)


class TestFailures:
    def test_which_are_tried_again_and_when(self) -> None:
        run = run_of(HERE, [row(5)])
        found = {
            failure.code: failure.kind
            for failure in (
                taken_over(HERE, timedelta(seconds=3)),
                moved(HERE, 5, 6),
                unfinished(HERE, "why"),
                broken(run, 5, "why", OF_INGRESS),
                too_long(run, 7, timedelta(seconds=2), OF_INGRESS),
                too_many(HERE, HoleBacklog(1)),
                leaderless(HERE, "why"),
                not_to_be_read(HERE, "why"),
            )
        }
        assert found == {
            "TAKEN_OVER": FailureKind.RETRY_LATER,
            "MOVED": FailureKind.RETRY_LATER,
            "UNFINISHED": FailureKind.RETRY_NOW,
            "PRESERVE_BROKEN": FailureKind.DENIED,
            "LONG_HOLE": FailureKind.DENIED,
            "TOO_MANY_HOLES": FailureKind.DENIED,
            "STALLED": FailureKind.STALLED,
            "NOT_READABLE": FailureKind.DENIED,
        }

    def test_what_they_say(self) -> None:
        run = run_of(HERE, [row(5)])
        assert "for 3.0 s" in taken_over(HERE, timedelta(seconds=3)).reason
        assert "for 0.0 s" in taken_over(HERE, timedelta(seconds=-3)).reason
        assert "it got 6" in moved(HERE, 5, 6).reason
        assert "records of others are in between" in moved(HERE, 5, 5).reason
        reason = broken(run, 5, "why", OF_INGRESS).reason
        assert reason.startswith("preserve broken at 5: why. ")
        assert "delete the topic orders" in reason
        assert f"`replicator checkpoints seed {run.key.source} --offset N`" in reason
        assert "7 offsets without a record" in too_long(run, 7, timedelta(seconds=2), OF_INGRESS).reason
        assert "about 2 s" in too_long(run, 7, timedelta(seconds=2), OF_INGRESS).reason
        assert f"{BEHIND.total_seconds() / 60:.0f} minutes" in too_many(HERE, HoleBacklog(1)).reason
