"""Restoring into a real cluster: any part of any history, stopped anywhere, is the brute-force answer."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from formats.errors import ConfigError, WriterRefused
from formats.int_range import IntRange
from formats.segment import OffsetRange
from formats.topic_selection import TopicPattern
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.lifecycle import Stop
from ingress.delivery.sizes import DELIVERY_WIDTH
from replicator.config import from_mapping
from replicator.restore.conflicts import ConflictKind
from replicator.restore.progress import RestoringPartition
from replicator.restore.restore import Options, Restore, TargetOptions
from replicator.selection import Renaming, Selection
from replicator.verify.verify import Verification
from tests.fakes.kafka_target import TargetRecord
from tests.infra import principal as rights
from tests.infra.faulty_s3 import Hang, faulty
from tests.infra.principal import Principal
from tests.replicator.restore.history import PARTITIONS, REGION, Archive, Choice, History, Stored, archives, choices
from tests.replicator.restore.large import fill
from tests.replicator.restore.place import Place, expected

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
        timestamps=choice.timestamps,
        renaming=Renaming({TOPIC: name}),
    )


PASS = TargetOptions(accept=[ConflictKind.MISSING])


def _check_one(make_place: Callable[[], Place], data: st.DataObject) -> None:
    archive: Archive = data.draw(archives())
    choice: Choice = data.draw(choices(archive))
    stopped_after = data.draw(st.none() | st.integers(0, 3))
    with closing(make_place()) as place:  # a bucket each: planning reads every topic that a bucket has
        archive.write(place.objects, TOPIC)
        _check_restore(place, archive, choice, stopped_after)


def _check_restore(place: Place, archive: Archive, choice: Choice, stopped_after: int | None) -> None:
    name = place.unique("restored")
    if stopped_after is not None:
        stop = Stop()
        turns = itertools.count()

        def on_progress(_: Sequence[RestoringPartition]) -> None:
            if next(turns) >= stopped_after:
                stop.set()

        with Restore(place.config, select(name, choice), target_options=PASS, stop=stop) as restore:
            if not (plan := restore.plan()).is_empty:
                restore.run(plan, on_progress)
    answer = choice.answer(archive)
    with Restore(place.config, select(name, choice), target_options=PASS) as restore:
        plan = restore.plan()
        if plan.is_empty:
            assert not any(answer.values())
            with pytest.raises(ConfigError, match="nothing was created"):
                restore.run(plan)
            assert name not in place.cluster.topics()
            return
        partitions = restore.run(plan)
    assert [p.failed for p in partitions] == [""] * len(partitions)
    for partition, rows in answer.items():
        assert place.restored(name, partition) == expected(rows), partition
    for partition in set(range(PARTITIONS)) - set(answer):
        assert place.restored(name, partition) == []


@pytest.mark.parametrize("examples", [4, pytest.param(200, marks=pytest.mark.long)])
def test_any_selection_of_any_history_is_restored(make_place: Callable[[], Place], examples: int) -> None:
    """The same on fakes, with failures: tests/replicator/restore/test_restore_machine.py; shrinking takes too long."""

    @settings(max_examples=examples, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        _check_one(make_place, data)

    check()


def one_segment(partition: int, start: int = 0, end: int = 29) -> History:
    return History(partition, "", [Stored(OffsetRange(start, end), 0)], [], ())


@pytest.mark.guard
@pytest.mark.long
def test_restores_that_share_a_topic_may_both_create_it(make_place: Callable[[], Place]) -> None:
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


def test_delivered_offsets_are_compared_although_the_archive_holds_more(make_place: Callable[[], Place]) -> None:
    with closing(make_place()) as place:
        Archive([one_segment(0)], has_second_life=False).write(place.objects, TOPIC)
        selection = select(name := place.unique("drilled"), Choice())
        with Restore(place.config, selection) as restore:
            restore.run(restore.plan())
        one_segment(0, 30, 59).write(place.objects, TOPIC)
        with Verification(place.config, selection) as verification:
            [source] = verification.sources()
            assert verification.same_as_target(source, place.config, name, offsets=IntRange(0, 29)).is_equal
            assert not verification.same_as_target(source, place.config, name).is_equal


def test_what_is_passed_over_behind_the_last_record_is_named_by_the_next_run(make_place: Callable[[], Place]) -> None:
    """Its note is a run without records."""
    with closing(make_place()) as place:
        Archive([one_segment(0), one_segment(0, 30, 59)], has_second_life=False).write(place.objects, TOPIC)
        selection = select(place.unique("restored"), Choice())
        with Restore(place.config, selection, target_options=PASS) as restore:
            plan = restore.plan()
            place.objects.delete_many(
                [info.key for info in place.objects.list("data/") if "-0000000000000000005" in info.key]
            )
            [first] = restore.run(plan)
        with Restore(place.config, selection, target_options=PASS) as restore:
            [again] = restore.run(restore.plan())
        assert (first.missing, first.next_offset) == (((30, 59),), 30)
        assert (again.given_up, again.records, again.is_whole) == (((30, 59),), 0, False)


def test_a_following_restore_delivers_segments_stored_later(make_place: Callable[[], Place]) -> None:
    """A warm standby: it gets no notification of new segments, and it ends when it is stopped."""

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
                one_segment(1, 0, 9).write(place.objects, TOPIC)  # a partition without segments before
                assert wait_until(lambda: len(place.restored(name, 1)) == 10, PATIENCE)
                assert wait_until(lambda: len(restored(place, name)) == 60, PATIENCE), "nor again"
            finally:
                stop.set()
                running.join(PATIENCE.total_seconds())
        assert not running.is_alive()
        assert place.restored(name, 0) == expected(first.rows)


def test_a_slow_store_is_asked_for_many_segments_at_once(make_place: Callable[[], Place]) -> None:
    """By more threads than decode: else the latency of the store, tens of milliseconds, limits small segments."""
    parts = [one_segment(number) for number in range(DELIVERY_WIDTH)]
    with closing(make_place()) as place, faulty(place.stack.moto.endpoint_url) as store:
        Archive(parts, has_second_life=False).write(place.objects, TOPIC)
        tables = {**place.tables, "s3": {**place.tables["s3"], "endpoint_url": store.endpoint_url}}
        name = place.unique("slow")
        with Restore(from_mapping(tables), select(name, Choice())) as restore:
            plan = restore.plan()
            store.reset()
            store.fail("GetObject", *[Hang()] * len(parts))
            running = threading.Thread(target=lambda: restore.run(plan))
            running.start()
            try:
                assert wait_until(lambda: store.hung == len(parts), PATIENCE)
            finally:
                store.reset()
                running.join(PATIENCE.total_seconds())
        assert not running.is_alive()
        for number, part in enumerate(parts):
            assert place.restored(name, number) == expected([r for r in part.rows if r["offset"] <= 29])


def created_again(place: Place, name: str) -> None:
    place.cluster.delete(name)
    assert wait_until(lambda: name not in place.cluster.topics(), PATIENCE)
    place.cluster.create(name)


def test_a_recreated_target_is_a_failure(make_place: Callable[[], Place]) -> None:
    with closing(make_place()) as place:
        fill(place.objects, TOPIC, 1, 4)  # 48,000 records
        name, half = place.unique("replaced"), threading.Event()

        def on_progress(partitions: Sequence[RestoringPartition]) -> None:
            if not half.is_set() and sum(p.records for p in partitions) >= 10_000:
                half.set()
                created_again(place, name)

        options = Options(max_rate=1 << 20)
        with Restore(place.config, select(name, Choice()), options=options) as restore:
            [outcome] = restore.run(restore.plan(), on_progress)
        assert half.is_set()
        assert re.search(f"{name} was deleted and created again.*start another restore with --id", outcome.failed)
        assert (outcome.is_whole, outcome.is_done, outcome.records) == (False, False, 0)
        with Restore(place.config, select(name, Choice())) as restore:
            assert ConflictKind.OTHER_TARGET in {c.kind for c in restore.plan().all_conflicts}


@pytest.mark.guard
@pytest.mark.long
def test_a_target_recreated_after_the_last_record_is_a_failure(make_place: Callable[[], Place]) -> None:
    """Everything was delivered before the last check of the topic ids: the end of the restore checks them once more."""
    with closing(make_place()) as place:
        Archive([one_segment(0)], has_second_life=False).write(place.objects, TOPIC)
        name = place.unique("replaced")
        with Restore(place.config, select(name, Choice())) as restore:
            waited = restore._wait_for_markers

            def replace_topic(targets: object) -> None:
                created_again(place, name)
                waited(targets)  # type: ignore[arg-type]

            restore._wait_for_markers = replace_topic  # type: ignore[method-assign]  # replaced on purpose
            [outcome] = restore.run(restore.plan())
        assert "created again" in outcome.failed
        assert (outcome.is_whole, outcome.records) == (False, 0)


@pytest.mark.guard
@pytest.mark.long
def test_a_missing_permission_fails_only_what_needs_it(
    make_place: Callable[[], Place], unique: Callable[[str], str]
) -> None:
    """One topic does not block the other; without the transactional id nothing is restored. With the permissions the
    same restore resumes. The permissions granted here are exactly those that it needs."""
    with closing(make_place()) as place:
        parts = Archive([one_segment(0)], has_second_life=False)
        for topic in ("good", "bad"):
            parts.write(place.objects, topic)
        names = {topic: place.unique(topic) for topic in ("good", "bad")}
        principal = Principal(place.cluster.broker, unique("restore"))
        for name in names.values():
            place.cluster.create(name, configs={"retention.ms": "-1"})
            principal.allow(rights.TOPIC, name, rights.DESCRIBE, rights.DESCRIBE_CONFIGS)
        principal.allow(rights.TOPIC, names["good"], rights.WRITE)
        principal.allow(
            rights.TOPIC,
            "replicator.restore.",
            rights.READ,
            rights.WRITE,
            rights.CREATE,
            rights.DESCRIBE,
            rights.DESCRIBE_CONFIGS,
            prefixed=True,
        )
        config = from_mapping({**place.tables, "kafka": dict(principal.properties)})
        selection = Selection(region=REGION, topics=[TopicPattern(topic) for topic in names], renaming=Renaming(names))
        with (
            pytest.raises(WriterRefused, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
            Restore(config, selection) as restore,
        ):
            restore.run(restore.plan())
        principal.allow(rights.TRANSACTIONAL_ID, "replicator.restore.", rights.WRITE, rights.DESCRIBE, prefixed=True)
        with Restore(config, selection) as restore:
            outcomes = {outcome.topic: outcome for outcome in restore.run(restore.plan())}
        assert outcomes[names["good"]].is_done
        assert "TOPIC_AUTHORIZATION_FAILED" in outcomes[names["bad"]].failed
        assert "allow WRITE" in outcomes[names["bad"]].failed
        principal.allow(rights.TOPIC, names["bad"], rights.WRITE)
        with Restore(config, selection) as restore:
            assert all(outcome.is_done for outcome in restore.run(restore.plan()))
        wanted = expected([r for r in one_segment(0).rows if r["offset"] <= 29])
        assert [place.restored(name, 0) for name in names.values()] == [wanted] * 2


def restored(place: Place, name: str) -> list[TargetRecord]:
    return place.restored(name, 0) if name in place.cluster.topics() else []
