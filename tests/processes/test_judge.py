"""The judge convicts the guilty alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.processes.judge import (
    Charge,
    Content,
    Guilty,
    archive_end,
    compacted,
    judge_archive,
    judge_target,
    overlaps,
    ranges,
)

RUN = 10


def record(number: int) -> Content:
    return Content(b"k%d" % (number % 7), b"v%d" % number, (("h", None),), (1, 1000 + number))


SOURCE = [record(n) for n in range(100)]
NOTHING = Content(None, None, (), (1, 5))


def charge(target: list[Content], *, rewinds: int = 3, source: list[Content] = SOURCE) -> Charge:
    with pytest.raises(Guilty) as caught:
        judge_target(source, target, rewinds=rewinds, run=RUN)
    return caught.value.charge


def test_a_copy_is_innocent() -> None:
    verdict = judge_target(SOURCE, SOURCE, rewinds=0, run=RUN)
    assert (verdict.rewinds, verdict.repeated) == (0, 0)


def test_both_empty() -> None:
    assert judge_target([], [], rewinds=0, run=RUN).rewinds == 0


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(1, RUN)), max_size=4))
def test_rewinds_of_a_run_are_innocent_and_counted(cuts: list[tuple[int, int]]) -> None:
    target: list[Content] = []
    at = 0
    for until, back in sorted(cuts):
        target += SOURCE[at : max(until, at)]
        at = max(max(until, at) - back, 0)
    target += SOURCE[at:]
    verdict = judge_target(SOURCE, target, rewinds=len(cuts), run=RUN)
    assert verdict.rewinds <= len(cuts)
    assert verdict.repeated == len(target) - len(SOURCE)


@given(st.integers(0, 99))
def test_one_lost_record(at: int) -> None:
    assert charge(SOURCE[:at] + SOURCE[at + 1 :]) is (Charge.SHORT if at == 99 else Charge.LOST)


@given(st.integers(1, 99), st.integers(1, 99))
def test_a_lost_tail(at: int, rewinds: int) -> None:
    assert charge(SOURCE[:at], rewinds=rewinds) is Charge.SHORT


@given(st.integers(RUN + 1, 99), st.data())
def test_a_rewind_by_more_than_a_run(at: int, data: st.DataObject) -> None:
    back = data.draw(st.integers(RUN + 1, at))
    assert charge(SOURCE[:at] + SOURCE[at - back :]) is Charge.REPEATED


@given(st.integers(1, 99))
def test_more_rewinds_than_crashes(at: int) -> None:
    assert charge(SOURCE[:at] + SOURCE[at - 1 :], rewinds=0) is Charge.REPEATED


def test_the_rewind_after_the_last_one_allowed() -> None:
    target = SOURCE[:20] + SOURCE[15:40] + SOURCE[35:]
    assert judge_target(SOURCE, target, rewinds=2, run=RUN).rewinds == 2
    assert charge(target, rewinds=1) is Charge.REPEATED


@given(st.integers(0, 98))
def test_a_swap(at: int) -> None:
    target = [*SOURCE]
    target[at], target[at + 1] = target[at + 1], target[at]
    assert charge(target) is Charge.LOST


@given(st.integers(11, 80))
def test_a_repeat_that_skips_instead_of_going_on(at: int) -> None:
    assert charge(SOURCE[:at] + SOURCE[at - 5 : at - 2] + SOURCE[at:]) is Charge.LOST


@pytest.mark.parametrize(
    "altered",
    [
        SOURCE[50]._replace(value=b"v5O"),
        SOURCE[50]._replace(value=None),
        SOURCE[50]._replace(key=b""),
        SOURCE[50]._replace(headers=()),
        SOURCE[50]._replace(headers=(("h", b""),)),
        SOURCE[50]._replace(headers=(("h", None), ("h", None))),
        SOURCE[50]._replace(timestamp=(1, 1051)),
        SOURCE[50]._replace(timestamp=(2, 1050)),
    ],
)
def test_an_altered_record(altered: Content) -> None:
    assert charge([*SOURCE[:50], altered, *SOURCE[51:]]) is Charge.FOREIGN


def test_a_record_too_many() -> None:
    assert charge([*SOURCE, record(1000)]) is Charge.FOREIGN


@given(st.integers(1, 30), st.integers(0, 3))
def test_equal_records_are_counted(count: int, missing: int) -> None:
    """Records that say nothing at all: none may be missing for that."""
    source = [*SOURCE[:5], *[NOTHING] * count, *SOURCE[5:]]
    target = [*SOURCE[:5], *[NOTHING] * max(count - missing, 0), *SOURCE[5:]]
    if target == source:
        assert judge_target(source, target, rewinds=0, run=RUN).rewinds == 0
    else:
        assert charge(target, rewinds=0, source=source) is Charge.LOST


# --- a compacted source ----------------------------------------------------------------------------------------------


def test_what_compaction_removed_may_be_missing_and_nothing_else() -> None:
    kept = [SOURCE[n] for n in range(100) if n % 3 == 0]
    gone = compacted(SOURCE, kept)
    assert gone == {n for n in range(100) if n % 3}
    target = [SOURCE[n] for n in range(100) if n % 3 == 0 or n > 60]
    assert judge_target(SOURCE, target, rewinds=0, run=RUN, gone=gone).rewinds == 0
    assert judge_target(SOURCE, kept[:5] + kept[1:], rewinds=1, run=RUN, gone=gone).rewinds == 1
    with pytest.raises(Guilty) as lost:
        judge_target(SOURCE, [r for r in target if r != SOURCE[30]], rewinds=0, run=RUN, gone=gone)
    assert lost.value.charge is Charge.LOST
    with pytest.raises(Guilty) as far:
        judge_target(SOURCE, kept[:12] + kept[1:], rewinds=1, run=RUN, gone=gone)
    assert far.value.charge is Charge.REPEATED
    with pytest.raises(Guilty) as short:
        judge_target(SOURCE, kept[:-1], rewinds=0, run=RUN, gone=gone)
    assert short.value.charge is Charge.SHORT


def test_the_last_records_may_be_gone_too() -> None:
    assert compacted(SOURCE, SOURCE[:-2]) == {98, 99}


def test_a_compacted_log_that_never_was_written_so() -> None:
    with pytest.raises(Guilty):
        compacted(SOURCE, [SOURCE[5], SOURCE[4]])


# --- archive ---------------------------------------------------------------------------------------------------------


def key(partition: int, start: int, end: int, topic: str = "t") -> str:
    return f"data/a/{topic}/{partition}/0/{start:020d}-{end:020d}"


def test_ranges_of_one_topic() -> None:
    keys = [key(0, 5, 9), key(0, 0, 4), key(1, 0, 0), key(0, 0, 9, "t2"), key(0, 0, 9, "t@id"), "data/b/t/0/0/x"]
    found = ranges(keys, prefix="data", region="a", topic="t")
    assert found == {0: [(0, 4), (5, 9)], 1: [(0, 0)]}


@pytest.mark.parametrize("tail", ["0/0/5-9", "0/0/x", f"0/0/{9:020d}-{5:020d}", f"x/0/{0:020d}-{5:020d}"])
def test_a_key_that_is_no_segments(tail: str) -> None:
    with pytest.raises(Guilty) as caught:
        ranges([f"data/a/t/{tail}"], prefix="data", region="a", topic="t")
    assert caught.value.charge is Charge.KEY


@pytest.mark.parametrize("covered", [[(0, 4), (5, 9)], [(5, 9), (0, 4)], [(0, 6), (3, 9)], [(0, 9), (2, 3)]])
def test_tiles(covered: list[tuple[int, int]]) -> None:
    judge_archive(covered, start=0, next_offset=10)
    assert archive_end(covered) == 10


@pytest.mark.parametrize("covered", [[], [(0, 4), (6, 9)], [(1, 9)], [(0, 8)], [(0, 10)], [(-1, 9)]])
def test_gaps_and_wrong_ends(covered: list[tuple[int, int]]) -> None:
    with pytest.raises(Guilty) as caught:
        judge_archive(covered, start=0, next_offset=10)
    assert caught.value.charge is Charge.GAP


def test_overlaps_are_found() -> None:
    assert overlaps([(0, 4), (5, 9)]) == []
    assert overlaps([(0, 5), (5, 9)]) == [((0, 5), (5, 9))]
