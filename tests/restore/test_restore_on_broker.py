"""Restoring into a real cluster: any part of any history, stopped anywhere, is the brute-force answer."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from ingress.objections import Objection
from ingress.restored import Partition
from ingress.selection import Renaming, Selection
from replicator.lifecycle import Stop
from replicator.restore import Options, Restore, Wishes
from replicator.segment import OffsetRange
from replicator.stretches import Span
from replicator.topics import TopicPattern
from replicator.verify import Verification
from tests.fakes.kafka_target import TargetRecord
from tests.restore.history import PARTITIONS, REGION, Archive, Choice, History, Stored, archives, choices
from tests.restore.place import Place, expected

pytestmark = pytest.mark.integration

TOPIC = "t"
PATIENCE = timedelta(seconds=60)


@pytest.fixture
def make_place(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> Callable[[], Place]:
    return lambda: Place(stack, unique, tmp_path)


def select(name: str, choice: Choice) -> Selection:
    return Selection(
        region=REGION,
        topics=[TopicPattern(TOPIC)],
        incarnation=choice.life,
        partitions=choice.partitions,
        offsets=choice.offsets,
        stamps=choice.stamps,
        renaming=Renaming({TOPIC: name}),
    )


PASS = Wishes(accept=[Objection.MISSING])


def _check_one(make_place: Callable[[], Place], data: st.DataObject) -> None:
    archive: Archive = data.draw(archives())
    choice: Choice = data.draw(choices(archive))
    stopped_after = data.draw(st.none() | st.integers(0, 3))
    with closing(make_place()) as place:  # a bucket each: planning looks into every topic that a bucket has
        archive.write(place.objects, TOPIC)
        _check_restore(place, archive, choice, stopped_after)


def _check_restore(place: Place, archive: Archive, choice: Choice, stopped_after: int | None) -> None:
    name = place.unique("restored")
    if stopped_after is not None:
        stop = Stop()
        turns = itertools.count()

        def told(_: Sequence[Partition]) -> None:
            if next(turns) >= stopped_after:
                stop.set()

        with Restore(place.config, select(name, choice), wishes=PASS, stop=stop) as restore:
            restore.run(restore.plan(), told)
    with Restore(place.config, select(name, choice), wishes=PASS) as restore:
        plan = restore.plan()
        partitions = restore.run(plan)
    assert [p.failed for p in partitions] == [""] * len(partitions)
    answer = choice.answer(archive)
    for partition, rows in answer.items():
        assert place.restored(name, partition) == expected(rows), partition
    for partition in set(range(PARTITIONS)) - set(answer):
        assert place.restored(name, partition) == []


@pytest.mark.parametrize("examples", [4, pytest.param(200, marks=pytest.mark.long)])
def test_any_part_of_any_history(make_place: Callable[[], Place], examples: int) -> None:
    """The same on fakes, with failures, is tests/restore/test_restoring.py's; to shrink takes too long here."""

    @settings(max_examples=examples, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        _check_one(make_place, data)

    check()


def one_segment(partition: int, start: int = 0, end: int = 29) -> History:
    return History(partition, "", [Stored(OffsetRange(start, end), 0)], [], ())


def test_machines_that_share_a_topic_may_both_find_it_absent(make_place: Callable[[], Place]) -> None:
    with closing(make_place()) as place, ExitStack() as opened:
        parts = [one_segment(0), one_segment(1)]
        Archive(parts, has_second_life=False).write(place.objects, TOPIC)
        name = place.unique("shared")
        choices = [Choice(partitions=frozenset({number})) for number in range(2)]
        restores = [opened.enter_context(Restore(place.config, select(name, choice))) for choice in choices]
        plans = [restore.plan() for restore in restores]
        for restore, plan in zip(restores, plans, strict=True):
            assert all(outcome.is_done for outcome in restore.run(plan))
        for number, part in enumerate(parts):
            assert place.restored(name, number) == expected([r for r in part.rows if r["offset"] <= 29])


def test_what_was_delivered_is_compared_although_the_archive_has_more_by_now(make_place: Callable[[], Place]) -> None:
    with closing(make_place()) as place:
        Archive([one_segment(0)], has_second_life=False).write(place.objects, TOPIC)
        selection = select(place.unique("drilled"), Choice())
        with Restore(place.config, selection) as restore:
            restore.run(restore.plan())
        one_segment(0, 30, 59).write(place.objects, TOPIC)
        with Verification(place.config, selection) as verification:
            [source] = verification.sources()
            assert verification.same_as_target(source, place.config, offsets=Span(0, 29)).is_equal
            assert not verification.same_as_target(source, place.config).is_equal


def test_followed_it_goes_on_with_what_is_stored_later(make_place: Callable[[], Place]) -> None:
    """A warm standby: nobody tells it of new segments, and it ends when it is told to."""

    with closing(make_place()) as place:
        first, later = one_segment(0), one_segment(0, 30, 59)
        Archive([first], has_second_life=False).write(place.objects, TOPIC)
        name, stop = place.unique("standby"), Stop()
        options = Options(follow=timedelta(milliseconds=200))
        with Restore(place.config, select(name, Choice()), options=options, stop=stop) as restore:
            running = threading.Thread(target=lambda: restore.run(restore.plan()))
            running.start()
            try:
                assert wait_until(lambda: len(restored(place, name)) == 30, PATIENCE)
                later.write(place.objects, TOPIC)
                assert wait_until(lambda: len(restored(place, name)) == 60, PATIENCE)
                one_segment(1, 0, 9).write(place.objects, TOPIC)  # of which nothing was stored before
                assert wait_until(lambda: len(place.restored(name, 1)) == 10, PATIENCE)
                assert wait_until(lambda: len(restored(place, name)) == 60, PATIENCE), "nor again"
            finally:
                stop.set()
                running.join(PATIENCE.total_seconds())
        assert not running.is_alive()
        assert place.restored(name, 0) == expected(first.rows)


def restored(place: Place, name: str) -> list[TargetRecord]:
    return place.restored(name, 0) if name in place.cluster.topics() else []
