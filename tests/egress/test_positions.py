"""Where reading begins: every combination of commit, archive and watermarks has one answer, and none loses silently."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from egress.positions import Hold, Note, Start, added_later, choose_start, read_note
from replicator.protocols import Committed, Watermarks
from replicator.segment import OffsetRange, Segment, SourcePartition

SOURCE = SourcePartition("a", "t", 0)


def seg(start: int, end: int, level: int = 0) -> Segment:
    return Segment(SOURCE, level, OffsetRange(start, end))


def choose(
    committed: Committed | None = None,
    archived: tuple[Segment, ...] = (),
    low: int = 0,
    high: int = 100,
    policy: int = 0,
    *,
    accept: bool = False,
) -> Start | Hold:
    return choose_start(committed, archived, Watermarks(low, high), policy, 6, accept_missing_archive=accept)


def ours(next_offset: int, begun: int = 0) -> Committed:
    return Committed(next_offset, str(Note(begun, 6)))


def offset(answer: Start | Hold) -> int:
    assert isinstance(answer, Start), answer
    return answer.next_offset


def test_new_partition_follows_the_policy() -> None:
    answer = choose(policy=40)
    assert isinstance(answer, Start)
    assert (answer.next_offset, answer.note) == (40, Note(40, 6))


def test_committed_offset_wins_over_the_policy() -> None:
    assert offset(choose(ours(30), (seg(0, 29),), policy=100)) == 30


def test_stored_but_not_committed_is_read_again() -> None:
    assert offset(choose(ours(30), (seg(0, 29), seg(30, 39), seg(50, 59)))) == 30


def test_idle_partition_that_was_positioned_is_not_behind() -> None:
    assert offset(choose(ours(30, begun=30))) == 30


def test_missing_archive_is_refused_with_both_numbers() -> None:
    answer = choose(ours(30), (seg(0, 19),))
    assert isinstance(answer, Hold)
    assert "30" in answer.reason
    assert "20" in answer.reason
    assert offset(choose(ours(30), (seg(0, 19),), accept=True)) == 30


def test_commit_of_the_ancestor_with_an_empty_bucket_is_refused() -> None:
    assert isinstance(choose(Committed(30, "")), Hold)


def test_without_a_commit_the_archive_is_continued() -> None:
    assert offset(choose(None, (seg(10, 29), seg(30, 49)), policy=100)) == 50


def test_without_a_commit_a_gap_that_the_source_still_has_is_filled() -> None:
    assert offset(choose(None, (seg(0, 9), seg(20, 29)))) == 10
    assert offset(choose(None, (seg(0, 9), seg(20, 29)), low=15)) == 15


def test_without_a_commit_a_gap_that_the_source_lost_is_passed() -> None:
    assert offset(choose(None, (seg(0, 9), seg(20, 29)), low=25)) == 30


def test_retention_that_overtook_is_never_a_silent_jump() -> None:
    answer = choose(ours(30), (seg(0, 29),), low=40)
    assert isinstance(answer, Hold)
    assert "[30,39]" in answer.reason


def test_log_that_ends_before_the_commit_is_refused() -> None:
    assert isinstance(choose(ours(300), (seg(0, 299),), high=100), Hold)


def test_partition_added_later_is_known_by_the_first_count() -> None:
    notes = [Note(0, 6), Note(0, 8)]
    assert added_later(6, notes)
    assert not added_later(5, notes)
    assert not added_later(6, [])


def test_notes_of_others_are_not_ours() -> None:
    for text in ("", "start=1", "start=x partitions=2", "start=1 partitions=2 ", "hello"):
        assert read_note(Committed(1, text)) is None


@given(begun=st.integers(0, 2**62), count=st.integers(1, 10**6))
def test_note_round_trip(begun: int, count: int) -> None:
    assert read_note(Committed(0, str(Note(begun, count)))) == Note(begun, count)


ranges = st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda t: seg(t[0], t[0] + t[1]))


@settings(max_examples=300)
@given(
    committed=st.none() | st.integers(0, 90),
    archived=st.lists(ranges, max_size=6),
    low=st.integers(0, 50),
    length=st.integers(0, 60),
    policy=st.integers(0, 60),
)
def test_nothing_the_source_has_is_passed_over(
    committed: int | None, archived: list[Segment], low: int, length: int, policy: int
) -> None:
    """What lies before the start is archived, or was decided on before (by a commit or the policy), or is gone."""
    high = low + length
    policy = min(max(policy, low), high)
    commit = None if committed is None else ours(committed)
    answer = choose(commit, tuple(archived), low, high, policy)
    if isinstance(answer, Hold):
        return
    assert low <= answer.next_offset <= high
    covered = {o for s in archived for o in range(s.offsets.start, s.offsets.end + 1)}
    decided = committed if committed is not None else min((s.offsets.start for s in archived), default=policy)
    for o in range(max(decided, low), answer.next_offset):
        assert o in covered, (o, answer)
