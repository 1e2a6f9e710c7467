"""Restoring into a real cluster: any history of an archive, any selector, stopped anywhere: the brute-force answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from infra.local.stack import LocalStack
from ingress.restore_plan import Objection
from ingress.restoring import Partition
from ingress.selection import Renaming, Selection
from replicator.lifecycle import Stop
from replicator.restore import Restore, Wishes
from replicator.topics import TopicPattern
from tests.restore.history import PARTITIONS, REGION, Archive, Choice, archives, choices
from tests.restore.place import Place, expected

pytestmark = pytest.mark.integration

TOPIC = "t"


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


@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(data=st.data())
def _check_any_history(make_place: Callable[[], Place], data: st.DataObject) -> None:
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


def test_any_part_of_any_history(make_place: Callable[[], Place]) -> None:
    _check_any_history(make_place)
