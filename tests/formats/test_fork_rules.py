"""Which forks wait for an operator, which offsets may be accepted, and archive paths."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.archive_begin import ArchiveBegin
from formats.control.claim import TopicClaim, decode_topic_claim, encode_topic_claim
from formats.control.fork import LogFork
from formats.control.gap import RETENTION, RecordedGap
from formats.coverage import joined
from formats.forks import accepted_until, agreed_point, explain, unresolved
from formats.gap_acceptance import acceptable
from formats.incarnation import fork_id, fork_number, later_ids, newest_fork
from formats.log_point import LogPoint
from formats.segment import OffsetRange, SourcePartition
from tests.formats.sample_forks import fork_of

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = SourcePartition("a", "t", 3)
fork = partial(fork_of, SOURCE)
TOPIC_ID = "Zm9v-mFyLXRvcGljLWlkMg"


def gap(start: int, end: int, *, is_accepted: bool = True) -> RecordedGap:
    offsets = OffsetRange(start, end)
    return RecordedGap(
        source=SOURCE, offsets=offsets, reason="", low=0, high=0, recorded_at=T0, is_accepted=is_accepted
    )


def test_archive_paths() -> None:
    places = ["t", f"t@{TOPIC_ID}", f"t@{TOPIC_ID}-fork2", f"t@{TOPIC_ID}-fork10", "tt@x-fork3", "t@other-fork11"]
    assert newest_fork(later_ids(places, "t"), TOPIC_ID) == 10
    assert newest_fork(later_ids(places, "tt"), TOPIC_ID) == 0
    assert fork_number(fork_id(TOPIC_ID, 4)) == 4
    assert [fork_number(name) for name in ("", TOPIC_ID, "x-fork", "x-fork0", "x-forks2")] == [0] * 5
    SourcePartition("a", "t", 0, fork_id(TOPIC_ID, 12))  # is a legal name


@given(number=st.integers(0, 99), place=st.sampled_from(["", "t", f"t@{TOPIC_ID}-fork1"]))
def test_a_claim_after_a_fork_round_trips(number: int, place: str) -> None:
    claim = TopicClaim(
        topic_id="x", cluster_id="c", number=3, claimed_at=T0, fork=number, forked_from=place if number else ""
    )
    assert decode_topic_claim(encode_topic_claim(claim)) == claim


def test_the_encoding_of_a_claim_without_a_fork_is_unchanged() -> None:
    claim = TopicClaim(topic_id="x", cluster_id="c", number=0, claimed_at=T0)
    assert b"fork" not in encode_topic_claim(claim)


def test_both_suggested_commands_work() -> None:
    text = explain(fork(100, 50))
    assert "replicator adopt --fork t`" in text
    assert "`replicator gaps accept a/t/3 50-99 --reason TEXT --yes`" in text
    assert "from 50 on" in text
    assert "[0,99]" in explain(fork(100, None))


@pytest.mark.parametrize(
    ("gaps", "waits"),
    [
        ([], True),
        ([gap(50, 98)], True),
        ([gap(50, 99, is_accepted=False)], True),
        ([gap(50, 99)], False),
        ([gap(40, 120)], False),
        ([gap(50, 70), gap(71, 99)], False),
    ],
)
def test_a_fork_waits_until_all_that_it_contests_is_accepted(gaps: list[RecordedGap], waits: bool) -> None:
    one = fork(100, 50)
    assert list(unresolved([one], gaps, [])) == ([one] if waits else [])
    assert accepted_until([one], gaps) == (-1 if waits else 100)


@pytest.mark.parametrize(
    ("forks", "gaps", "agreed"),
    [
        ([fork(100, 50)], [gap(50, 99)], LogPoint(50, 0)),
        ([fork(100, 50)], [gap(50, 98)], None),  # it waits
        ([fork(100, 50, None)], [gap(50, 99)], None),  # found by comparing records
        ([fork(100, None)], [gap(0, 99)], None),  # nothing below it is archived of the same log
        ([fork(100, 50), fork(200, 150, 3)], [gap(50, 99), gap(150, 199)], LogPoint(150, 3)),
        ([fork(100, 50), fork(100, 20)], [gap(50, 99), gap(20, 99)], LogPoint(20, 0)),
        ([fork(100, 50), fork(100, 20)], [gap(50, 99)], None),  # the deeper one is known, and waits
        ([fork(100, 50, 2), fork(50, 30, 1)], [gap(50, 99), gap(30, 49)], LogPoint(30, 1)),
        ([fork(100, 50, 2), fork(50, 30, None)], [gap(50, 99), gap(30, 49)], None),
    ],
)
def test_the_last_point_at_which_the_log_was_the_archived_one(
    forks: list[LogFork], gaps: list[RecordedGap], agreed: LogPoint | None
) -> None:
    assert agreed_point(forks, gaps) == agreed


def test_a_fork_found_by_records_waits_while_they_are_stored() -> None:
    by_records, by_epoch = fork(100, 50, None), fork(100, 50)
    assert list(unresolved([by_records], [], [OffsetRange(0, 49), OffsetRange(99, 120)])) == [by_records]
    assert list(unresolved([by_records], [], [OffsetRange(0, 49), OffsetRange(100, 120)])) == []
    assert list(unresolved([by_epoch], [], [OffsetRange(0, 49)])) == [by_epoch]


def test_acceptable_offsets() -> None:
    covered = joined([OffsetRange(10, 19), OffsetRange(30, 99)])
    assert acceptable([], [], joined([]), None) == []
    assert acceptable([fork(9, 3)], [], joined([]), None) == [OffsetRange(3, 8)]
    assert acceptable([], [], covered, None) == [OffsetRange(20, 29)]
    begin = ArchiveBegin(offset=4, reason="", recorded_at=T0)
    assert acceptable([], [], covered, begin) == [OffsetRange(4, 9), OffsetRange(20, 29)]
    assert acceptable([fork(100, 50)], [gap(20, 24)], covered, None) == [OffsetRange(50, 99), OffsetRange(25, 29)]
    assert acceptable([fork(100, 50)], [gap(50, 99), gap(20, 29)], covered, None) == []
    lost = replace(gap(20, 29), is_accepted=False)
    assert acceptable([], [lost], covered, None) == [OffsetRange(20, 29)]
    assert acceptable([], [replace(lost, reason=RETENTION)], covered, None) == []
    assert acceptable([fork(100, 25)], [lost], covered, None) == [OffsetRange(25, 99)], "the fork decides"
