"""Where reading begins: every combination of commit, archive and watermarks has one answer, and none loses silently."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from egress.start.choice import Rules, Start, StartFacts, added_later, choose_start, is_of, on_the_same_log
from egress.start.commit_metadata import CommitMetadata, read_commit_metadata
from egress.topics.claims import Blocked
from formats.control.fork import LogFork
from formats.control.gap import RecordedGap
from formats.forks import explain
from formats.log_point import LogPoint
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.contracts.cluster import Committed, Watermarks
from tests.examples import property_examples
from tests.formats.sample_forks import fork_of

SOURCE = SourcePartition("a", "t", 0)
fork = partial(fork_of, SOURCE)
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def seg(start: int, end: int, level: int = 0) -> Segment:
    return Segment(SOURCE, level, OffsetRange(start, end))


def gap(offsets: OffsetRange, *, is_accepted: bool = False) -> RecordedGap:
    return RecordedGap(
        source=SOURCE, offsets=offsets, reason="", low=0, high=0, recorded_at=T0, is_accepted=is_accepted
    )


def choose(
    committed: Committed | None = None,
    archived: tuple[Segment, ...] = (),
    low: int = 0,
    high: int = 100,
    policy: int = 0,
    *,
    recorded: tuple[OffsetRange, ...] = (),
    begun: int | None = None,
    forks: tuple[LogFork, ...] = (),
    accepted: tuple[OffsetRange, ...] = (),
    epoch: int | None = None,
    point: LogPoint | None = None,
    accept: bool = False,
    record: bool = False,
) -> Start | Blocked:
    facts = StartFacts(
        committed=committed,
        archived=[one.offsets for one in archived],
        recorded=(*recorded, *accepted),
        marks=Watermarks(low, high, epoch),
        policy_offset=policy,
        partition_count=6,
        incarnation_id="id",
        begun=begun,
        forks=forks,
        gaps=[gap(offsets, is_accepted=True) for offsets in accepted],
    )
    answer = choose_start(facts, Rules(accept_missing_archive=accept, record_gaps=record))
    return answer if isinstance(answer, Blocked) else on_the_same_log(answer, point, facts)


def ours(next_offset: int, begun: int = 0) -> Committed:
    return Committed(next_offset, str(CommitMetadata(begun, 6, "id")))


def recorded(answer: Start | Blocked) -> tuple[int, list[OffsetRange]]:
    assert isinstance(answer, Start), answer
    return answer.next_offset, list(answer.lost)


def offset(answer: Start | Blocked) -> int:
    assert isinstance(answer, Start), answer
    return answer.next_offset


def test_new_partition_follows_the_policy() -> None:
    answer = choose(policy=40)
    assert isinstance(answer, Start)
    assert (answer.next_offset, answer.metadata) == (40, CommitMetadata(40, 6, "id"))


def test_committed_offset_wins_over_the_policy() -> None:
    assert offset(choose(ours(30), (seg(0, 29),), policy=100)) == 30


def test_without_a_commit_the_first_gap_of_the_archive_is_filled_first() -> None:
    assert offset(choose(None, (seg(0, 9), seg(20, 29), seg(40, 49)))) == 10


def test_stored_but_not_committed_is_read_again() -> None:
    assert offset(choose(ours(30), (seg(0, 29), seg(30, 39), seg(50, 59)))) == 30


def test_idle_partition_that_was_positioned_is_not_behind() -> None:
    assert offset(choose(ours(30, begun=30))) == 30


def test_a_commit_without_metadata_takes_the_first_archived_offset_for_the_begin() -> None:
    answer = choose(Committed(40, ""), (seg(30, 39), seg(10, 19)), accept=True)
    assert isinstance(answer, Start)
    assert answer.metadata.begun_at == 10


def test_of_several_forks_the_first_is_explained() -> None:
    """An operator resolves them in their order."""
    first, second = fork(50, 40), fork(80, 70)
    answer = choose(ours(80), (seg(0, 79),), forks=(first, second))
    assert isinstance(answer, Blocked)
    assert answer.reason == explain(first) != explain(second)


def test_missing_archive_is_refused_with_both_numbers() -> None:
    answer = choose(ours(30), (seg(0, 19),))
    assert isinstance(answer, Blocked)
    assert "30" in answer.reason
    assert "20" in answer.reason
    assert offset(choose(ours(30), (seg(0, 19),), accept=True)) == 30


def test_commit_of_the_ancestor_with_an_empty_bucket_is_refused() -> None:
    assert isinstance(choose(Committed(30, "")), Blocked)


def test_without_a_commit_the_archive_is_continued() -> None:
    assert offset(choose(None, (seg(10, 29), seg(30, 49)), policy=100)) == 50


def test_without_a_commit_a_gap_that_the_source_still_has_is_filled() -> None:
    assert offset(choose(None, (seg(0, 9), seg(20, 29)))) == 10


def test_without_a_commit_a_gap_that_the_source_lost_is_passed_only_if_it_is_recorded() -> None:
    archived = (seg(0, 9), seg(20, 29))
    for low, lost, begins in ((15, OffsetRange(10, 14), 15), (25, OffsetRange(10, 19), 30)):
        answer = choose(None, archived, low=low)
        assert isinstance(answer, Blocked)
        assert str(lost) in answer.reason
        assert recorded(choose(None, archived, low=low, record=True)) == (begins, [lost])
        assert recorded(choose(None, archived, low=low, recorded=(lost,))) == (begins, [])


def test_retention_that_overtook_is_never_a_silent_jump() -> None:
    answer = choose(ours(30), (seg(0, 29),), low=40)
    assert isinstance(answer, Blocked)
    assert "[30,39]" in answer.reason
    assert "on_gap" in answer.reason
    assert recorded(choose(ours(30), (seg(0, 29),), low=40, record=True)) == (40, [OffsetRange(30, 39)])


def test_what_is_recorded_is_not_missed_again() -> None:
    """A crash between the record and the first commit after it; and one after that, before the first segment."""
    gap = OffsetRange(30, 39)
    assert recorded(choose(ours(30), (seg(0, 29),), low=40, recorded=(gap,))) == (40, [])
    assert recorded(choose(ours(40), (seg(0, 29),), low=40, recorded=(gap,))) == (40, [])
    assert recorded(choose(ours(40), (seg(0, 29),), low=45, recorded=(gap,), record=True)) == (
        45,
        [OffsetRange(40, 44)],
    )
    assert recorded(choose(None, (), low=45, recorded=(gap,), record=True)) == (45, [OffsetRange(40, 44)])


def test_only_what_is_nowhere_is_lost() -> None:
    """What was stored, and not committed before a crash, is in the archive, though the source has it no more."""
    archived = (seg(0, 29), seg(32, 35))
    answer = choose(ours(30), archived, low=40, record=True)
    assert recorded(answer) == (40, [OffsetRange(30, 31), OffsetRange(36, 39)])
    assert recorded(choose(ours(30), (seg(0, 29), seg(30, 49)), low=40)) == (40, [])


def test_operators_jump_to_where_the_source_begins_is_recorded_by_policy() -> None:
    by_hand = Committed(40, "")
    assert recorded(choose(by_hand, (seg(0, 29),), low=40)) == (40, [])
    assert recorded(choose(by_hand, (seg(0, 29),), low=40, record=True)) == (40, [OffsetRange(30, 39)])
    assert recorded(choose(by_hand, (seg(0, 59),), low=40, record=True)) == (40, [])


def test_log_that_ends_before_the_commit_is_refused_whatever_the_policy() -> None:
    assert isinstance(choose(ours(300), (seg(0, 299),), high=100), Blocked)
    assert isinstance(choose(ours(300), (seg(0, 299),), high=100, record=True), Blocked)


# --- where the archive begins ---


def test_a_recorded_begin_outlives_the_groups_offsets() -> None:
    """Positioned at 40 by `start = "latest"`, and never a record since; then the group's offsets expired."""
    answer = choose(begun=40, policy=100)
    assert isinstance(answer, Start)
    assert (answer.next_offset, answer.metadata.begun_at) == (40, 40)
    lost = choose(begun=40, low=60, policy=100)
    assert isinstance(lost, Blocked)
    assert "[40,59] is gone" in lost.reason
    assert recorded(choose(begun=40, low=60, record=True)) == (60, [OffsetRange(40, 59)])


def test_the_first_segments_of_an_archive_are_missed_too() -> None:
    """They were under way when the process died, and the group's offsets expired before the next one came."""
    assert offset(choose(archived=(seg(50, 59),), begun=40)) == 40
    assert offset(choose(archived=(seg(50, 59),))) == 60
    assert recorded(choose(archived=(seg(50, 59),), begun=40, low=45, record=True)) == (45, [OffsetRange(40, 44)])


def test_an_offset_before_the_begin_is_refused() -> None:
    answer = choose(Committed(30, "by hand"), (seg(40, 59),), begun=40)
    assert isinstance(answer, Blocked)
    assert "begins at 40" in answer.reason
    assert offset(choose(Committed(40, "by hand"), (), begun=40)) == 40


# --- is it the same log? ---


def test_the_log_is_compared_with_what_commit_or_archive_know() -> None:
    def point(answer: Start | Blocked) -> LogPoint | None:
        assert isinstance(answer, Start), answer
        return answer.point

    archived = (seg(0, 29),)
    assert point(choose(ours(30), archived, point=LogPoint(30, 2), epoch=5)) == LogPoint(30, 2)
    assert point(choose(ours(30), archived, point=LogPoint(25, 2), epoch=5)) == LogPoint(25, 2), "a hole after it"
    assert point(choose(ours(30), archived, epoch=5)) == LogPoint(30, 5), "nothing is known: from now on"
    assert point(choose(ours(30), archived)) is None
    assert point(choose(policy=40, epoch=5)) == LogPoint(40, 5)


def test_a_log_that_is_too_short_is_for_its_epochs_to_judge() -> None:
    """By then it may have grown again. Without any epoch its length is all there is."""
    answer = choose(ours(300), (seg(0, 299),), high=100, point=LogPoint(300, 2))
    assert isinstance(answer, Start)
    assert (answer.next_offset, answer.point) == (300, LogPoint(300, 2))
    blocked = choose(ours(300), (seg(0, 299),), high=100, epoch=5)
    assert isinstance(blocked, Blocked)
    assert "no leader epoch" in blocked.reason


def test_a_fork_holds_until_all_of_it_is_accepted() -> None:
    archived = (seg(0, 99),)
    for end, contested, others in (
        (50, OffsetRange(50, 99), (OffsetRange(50, 98), OffsetRange(51, 99))),
        (None, OffsetRange(0, 99), (OffsetRange(50, 99),)),
    ):
        for accepted in ((), *((other,) for other in others)):
            blocked = choose(ours(100), archived, forks=(fork(100, end),), accepted=accepted, high=500)
            assert isinstance(blocked, Blocked)
            assert "the evidence" in blocked.reason
            assert "replicator adopt --fork t" in blocked.reason
            command = f"replicator gaps accept a/t/0 {contested.start}-{contested.end} --reason TEXT --yes"
            assert command in blocked.reason
        for accepted in ((contested,), (OffsetRange(contested.start, 70), OffsetRange(60, 99))):
            answer = choose(
                ours(100),
                archived,
                forks=(fork(100, end),),
                accepted=accepted,
                point=LogPoint(100, 0),
                epoch=3,
                high=500,
            )
            assert isinstance(answer, Start)
            assert (answer.next_offset, answer.point) == (100, LogPoint(100, 3)), (
                "the old epoch proves nothing about this log"
            )


def test_after_an_accepted_fork_the_next_records_count_again() -> None:
    committed, archived, first, accepted = ours(120), (seg(0, 119),), fork(100, 50), (OffsetRange(50, 99),)
    answer = choose(committed, archived, high=500, forks=(first,), accepted=accepted, point=LogPoint(120, 3))
    assert isinstance(answer, Start)
    assert answer.point == LogPoint(120, 3)
    answer = choose(committed, archived, high=500, forks=(first, fork(120, 110)), accepted=accepted)
    assert isinstance(answer, Blocked)


def test_reading_begins_after_an_accepted_fork_wherever_the_commit_is() -> None:
    """The records contradicted each other at 50, and the commit is where a snapshot had it."""
    forks, accepted = (fork(100, 50, None),), (OffsetRange(50, 99),)
    assert offset(choose(ours(40), (seg(0, 99),), high=500, forks=forks, accepted=accepted)) == 100
    waits = choose(ours(40), (seg(0, 99),), high=70, forks=forks, accepted=accepted)
    assert isinstance(waits, Blocked)
    assert "waits until it has grown there" in waits.reason


def test_a_stray_object_contests_nothing_once_it_is_gone() -> None:
    stray = fork(100, 50, None)
    assert isinstance(choose(ours(50), (seg(0, 49), seg(50, 99)), forks=(stray,)), Blocked)
    assert offset(choose(ours(50), (seg(0, 49),), forks=(stray,))) == 50
    assert isinstance(choose(ours(50), (seg(0, 49),), forks=(fork(100, 50),)), Blocked), "reported by a broker"


def test_commits_of_another_incarnation_are_ignored() -> None:
    assert is_of(ours(30), "id", is_first=True)
    assert not is_of(ours(30), "other", is_first=False)
    assert not is_of(ours(30), "other", is_first=True)
    before_lives = Committed(30, "start=0 partitions=6")
    assert is_of(before_lives, "id", is_first=True)
    assert not is_of(before_lives, "id", is_first=False)
    assert is_of(Committed(30, "by hand"), "id", is_first=False)


def test_partition_added_later_is_known_by_the_first_count() -> None:
    commits = [CommitMetadata(0, 6), CommitMetadata(0, 8)]
    assert added_later(6, commits)
    assert not added_later(5, commits)
    assert not added_later(6, [])


def test_metadata_of_others_is_not_ours() -> None:
    for text in ("", "start=1", "start=x partitions=2", "start=1 partitions=2 ", "hello"):
        assert read_commit_metadata(Committed(1, text)) is None


@given(
    begun=st.integers(0, 2**62),
    count=st.integers(1, 10**6),
    incarnation_id=st.from_regex(r"[A-Za-z0-9_-]{0,64}", fullmatch=True),
)
def test_metadata_round_trip(begun: int, count: int, incarnation_id: str) -> None:
    assert read_commit_metadata(Committed(0, str(CommitMetadata(begun, count, incarnation_id)))) == CommitMetadata(
        begun, count, incarnation_id
    )


ranges = st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda t: seg(t[0], t[0] + t[1]))


@property_examples()
@given(
    committed=st.none() | st.integers(0, 90),
    archived=st.lists(ranges, max_size=6),
    low=st.integers(0, 50),
    length=st.integers(0, 60),
    policy=st.integers(0, 60),
    gaps=st.lists(ranges.map(lambda s: s.offsets), max_size=2),
    begun=st.none() | st.integers(0, 60),
    record=st.booleans(),
)
def test_nothing_is_passed_over(
    *,
    committed: int | None,
    archived: list[Segment],
    low: int,
    length: int,
    policy: int,
    gaps: list[OffsetRange],
    begun: int | None,
    record: bool,
) -> None:
    """What lies before the start is archived, was decided on before (by commit, policy or a recorded begin), or is
    recorded as gone; and only what the source has not is."""
    high = low + length
    policy = min(max(policy, low), high)
    commit = None if committed is None else ours(committed)
    answer = choose(commit, tuple(archived), low, high, policy, recorded=tuple(gaps), begun=begun, record=record)
    if isinstance(answer, Blocked):
        return
    assert low <= answer.next_offset <= high
    known = [*(s.offsets for s in archived), *gaps]
    covered = {o for r in known for o in range(r.start, r.end + 1)}
    lost = {o for r in answer.lost for o in range(r.start, r.end + 1)}
    assert record or not lost
    assert not lost & covered
    assert all(o < low for o in lost)
    first = min((r.start for r in known), default=policy)
    decided = committed if committed is not None else first if begun is None else begun
    for o in range(decided, answer.next_offset):
        assert o in covered | lost, (o, answer)
