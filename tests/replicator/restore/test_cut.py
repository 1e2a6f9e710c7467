"""Where a restore to a moment ends, by the watermarks in the archive; plans of it on an archive in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.archive_begin import ArchiveBegin
from formats.control.claim import TopicClaim
from formats.control.heartbeat import WriterHeartbeat
from formats.errors import ConfigError
from formats.int_range import IntRange
from formats.messages.delivery_checkpoint import Checkpoint
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from formats.topic_selection import TopicPattern
from infra.archive.generation_history import watermark_generations
from infra.contracts.cluster import TopicPartition
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.restore.conflicts import ConflictKind
from replicator.restore.cut_lookup import ArchivedCut, CutLookup
from replicator.restore.partition_plan import PartitionCut, PartitionPlan, plan_partition
from replicator.restore.plan import first_marked
from replicator.selection import Selection
from tests.ingress.world import REGION, World
from tests.replicator.restore.planned import begin, only, plan, reasons, select
from tests.replicator.restore.published import publish_watermarks, watermarks

T0 = datetime(2026, 3, 4, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LATER = T0 + timedelta(days=30)  # than any moment that a test names


def chosen(
    *topics: str, at: datetime, transactional: bool = False, partitions: Sequence[int] | None = None
) -> Selection:
    return Selection(
        region=REGION,
        topics=[TopicPattern(topic) for topic in topics],
        partitions=partitions,
        at=at,
        is_transactional=transactional,
    )


def found(objects: MemoryObjectStore, selection: Selection) -> ArchivedCut:
    return CutLookup(watermark_generations(objects, "data", REGION), selection, LATER).find()


def test_a_moment_that_has_not_come_is_refused_unless_the_source_has_passed_it() -> None:
    objects = MemoryObjectStore()
    publish_watermarks(objects, 1, watermarks(T0, {"t": (5,)}))
    history = watermark_generations(objects, "data", REGION)

    def cut(at: datetime, now: datetime = T0) -> int:
        return CutLookup(history, chosen("t", at=at), now).find().cut.generation

    with pytest.raises(
        ConfigError, match=r"--at 2026-03-04T12:01:01\+00:00: this moment has not come, it is 2026-03-04T"
    ):
        cut(T0 + 61 * SECOND)
    assert cut(T0 + 60 * SECOND) == 1, "clocks differ a little"
    assert cut(T0 + 61 * SECOND, T0 + SECOND) == 1
    publish_watermarks(objects, 2, watermarks(T0 + 300 * SECOND, {"t": (9,)}))
    history = watermark_generations(objects, "data", REGION)
    assert cut(T0 + 299 * SECOND) == 1, "the clock of the source has passed it"
    assert cut(T0 + 300 * SECOND) == 2
    with pytest.raises(ConfigError, match="the newest watermarks are of 2026-03-04T12:05:00"):
        cut(T0 + 400 * SECOND)


Ends = Mapping[str, tuple[int, ...]]
Settled = Mapping[str, frozenset[int]]
TOPICS = {"t": 2, "u": 1}
histories = st.lists(
    st.tuples(
        st.integers(1, 40),  # seconds since the generation before
        st.fixed_dictionaries({name: st.frozensets(st.integers(0, n - 1)) for name, n in TOPICS.items()}),
        st.booleans(),  # whether it can be read
    ),
    min_size=1,
    max_size=12,
)


def stored(history: Sequence[tuple[int, Settled, bool]]) -> tuple[MemoryObjectStore, list[tuple[datetime, Settled]]]:
    """The generations that can be read, with the number in the offset of each partition."""
    objects, at, readable = MemoryObjectStore(), T0, []
    for number, (seconds, settled, is_readable) in enumerate(history, start=1):
        at += seconds * SECOND
        ends = {name: (number,) * n for name, n in TOPICS.items()}
        if is_readable:
            publish_watermarks(objects, number, watermarks(at, ends, settled=settled))
            readable.append((at, settled))
    return objects, readable


@given(histories, st.integers(-10, 200), st.sets(st.sampled_from(sorted(TOPICS)), min_size=1))
def test_the_newest_settled_one_up_to_the_moment(
    history: Sequence[tuple[int, Settled, bool]], seconds: int, topics: set[str]
) -> None:
    """Of the selected topics alone, and no later than the moment."""
    objects, readable = stored(history)
    at = T0 + seconds * SECOND
    whole = [
        when
        for when, settled in readable
        if when + SECOND <= at and all(len(settled[name]) == TOPICS[name] for name in topics)
    ]
    selection = chosen(*sorted(topics), at=at, transactional=True)
    if not whole:
        with pytest.raises(ConfigError):
            found(objects, selection)
        return
    cut = found(objects, selection).cut
    assert (cut.observed_at, cut.moment) == (whole[-1], whole[-1] + SECOND)
    assert cut.topics.keys() == topics
    assert {end for one in cut.topics.values() for end in one.ends} == {cut.generation}


@given(histories, st.integers(-10, 200))
def test_the_one_in_force_at_the_moment(history: Sequence[tuple[int, Settled, bool]], seconds: int) -> None:
    objects, readable = stored(history)
    at = T0 + seconds * SECOND
    before = [when for when, _ in readable if when <= at]
    if not before:
        with pytest.raises(ConfigError):
            found(objects, chosen("t", at=at))
        return
    cut = found(objects, chosen("t", at=at)).cut
    assert (cut.observed_at, cut.moment, cut.is_transactional) == (before[-1], at, False)
    assert cut.next_observed_at == next((when for when, _ in readable if when > cut.observed_at), None)


@given(
    observations=st.lists(st.integers(1, 40), min_size=1, max_size=10),
    changes=st.lists(st.tuples(st.integers(0, 200), st.sampled_from([("t", 0), ("t", 1), ("u", 0)])), max_size=6),
    gone=st.sets(st.integers(1, 10), max_size=4),  # thinned
    beats=st.booleans(),
    seconds=st.integers(0, 250),
    topics=st.sets(st.sampled_from(sorted(TOPICS)), min_size=1),
)
def test_a_moment_is_proven_as_long_as_nothing_has_changed(
    *,
    observations: Sequence[int],
    changes: Sequence[tuple[int, tuple[str, int]]],
    gone: set[int],
    beats: bool,
    seconds: int,
    topics: set[str],
) -> None:
    """A source whose ends are known at each second; each observation takes one, and it is written when it differs."""

    def ends(second: int) -> dict[str, tuple[int, ...]]:
        return {
            name: tuple(sum(at <= second and where == (name, p) for at, where in changes) for p in range(count))
            for name, count in TOPICS.items()
        }

    objects, second, number, confirmed = MemoryObjectStore(), 0, 0, 0
    written: dict[int, tuple[int, dict[str, tuple[int, ...]]]] = {}
    for pause in observations:
        second += pause
        if not written or written[number][1] != ends(second):
            number += 1
            written[number] = second, ends(second)
        confirmed = second
    for one in gone - {number}:  # the newest is never thinned
        written.pop(one, None)
    for one, (when, found_ends) in written.items():
        # what the first collection saw is so still a second later, or it is not settled
        same = {n: frozenset(p for p, e in enumerate(c) if ends(when + 1)[n][p] == e) for n, c in found_ends.items()}
        publish_watermarks(objects, one, watermarks(T0 + when * SECOND, found_ends, settled=same))
    beat = WriterHeartbeat(
        writer="w", written_at=T0, interval_ms=1, watermarks=number, watermarks_at=T0 + confirmed * SECOND
    )
    at = T0 + seconds * SECOND
    lookup = CutLookup(
        watermark_generations(objects, "data", REGION),
        chosen(*sorted(topics), at=at, transactional=True),
        LATER,
        beat if beats else None,
    )
    try:
        cut = lookup.find().cut
    except ConfigError:
        return
    assert cut.moment <= at
    then = ends(int((cut.moment - T0).total_seconds()))
    assert {name: one.ends for name, one in cut.topics.items()} == {name: then[name] for name in topics}
    seen = [when for when, _ in written.values()] + ([confirmed] if beats else [])
    last = max(when for when in seen if all(ends(when)[n] == then[n] for n in topics))
    assert cut.moment >= min(at, T0 + last * SECOND), "nothing changed up to there"


def test_a_heartbeat_of_watermarks_that_are_not_here_proves_nothing() -> None:
    objects = MemoryObjectStore()
    publish_watermarks(objects, 1, watermarks(T0, {"t": (5,)}, settled=True))
    for number, moment in ((1, T0 + 9 * SECOND), (2, T0 + SECOND)):
        beat = WriterHeartbeat(
            writer="w", written_at=T0, interval_ms=1, watermarks=number, watermarks_at=T0 + 9 * SECOND
        )
        selection = chosen("t", at=T0 + 20 * SECOND, transactional=True)
        assert (
            CutLookup(watermark_generations(objects, "data", REGION), selection, LATER, beat).find().cut.moment
            == moment
        )


def test_a_partition_or_a_topic_that_came_meanwhile_ends_it() -> None:
    for later in ({"t": (5, 0)}, {"t": (5,), "u": (1,)}, {"u": (1,)}):
        objects = MemoryObjectStore()
        publish_watermarks(objects, 1, watermarks(T0, {"t": (5,)}, settled=True))
        publish_watermarks(objects, 2, watermarks(T0 + 10 * SECOND, later))
        assert found(objects, chosen("^.$", at=T0 + 5 * SECOND, transactional=True)).cut.moment == T0 + SECOND
        if "t" in later and len(later["t"]) == 1:
            same = found(objects, chosen("t", at=T0 + 5 * SECOND, transactional=True)).cut
            assert same.moment == T0 + 5 * SECOND


def test_what_can_be_promised_without_them_is_stated() -> None:
    objects = MemoryObjectStore()
    with pytest.raises(ConfigError, match=r"has no watermarks of a that can be read, so .* --until selects records by"):
        found(objects, chosen("t", at=T0))
    publish_watermarks(objects, 1, watermarks(T0, {"t": (5, 7)}, settled={"t": {0}}))
    with pytest.raises(ConfigError, match=f"the first are of {T0.isoformat()[:19]}"):
        found(objects, chosen("t", at=T0 - SECOND))
    with pytest.raises(ConfigError, match=r"at the best of them 1 partitions were not, such as t/1\. Select fewer"):
        found(objects, chosen("t", at=T0 + SECOND, transactional=True))
    assert found(objects, chosen("t", at=T0 + SECOND, transactional=True, partitions=[0])).cut.generation == 1


def test_the_cut_of_an_earlier_run_stays() -> None:
    objects = MemoryObjectStore()
    publish_watermarks(objects, 1, watermarks(T0, {"t": (5,)}))
    publish_watermarks(objects, 2, watermarks(T0 + SECOND, {"t": (8,)}))
    selection = chosen("t", at=T0)
    cut = found(objects, selection).cut
    objects.delete_many([one.key for one in objects.list("data/") if one.key.endswith("1")])
    again = CutLookup(watermark_generations(objects, "data", REGION), selection, T0).find(cut)
    assert again.cut == cut


segments = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=6).map(
    lambda some: [
        SegmentInfo(
            segment=Segment(SourcePartition(REGION, "t", 0), 0, OffsetRange(start, start + length)),
            size_bytes=1,
            stored_at=T0,
        )
        for start, length in some
    ]
)


@given(segments, st.none() | st.integers(0, 45), st.integers(0, 20), st.none() | st.integers(0, 45))
def test_a_partition_ends_at_the_cut(
    infos: Sequence[SegmentInfo], end: int | None, low: int, position: int | None
) -> None:
    checkpoint = None if position is None else Checkpoint(position, "", T0)

    def planned(wanted: IntRange, cut: PartitionCut | None) -> PartitionPlan:
        return plan_partition(
            source=SourcePartition(REGION, "t", 0),
            target=TopicPartition("t", 0),
            infos=infos,
            recorded=[],
            wanted=wanted,
            listed_at=T0,
            checkpoint=checkpoint,
            cut=cut,
        )

    made = planned(IntRange(low, 60), PartitionCut(end))
    same = planned(IntRange(low, 60 if end is None else min(60, end - 1)), None)
    assert made.offsets == same.offsets
    assert (made.infos, made.missing, made.begins) == (same.infos, same.missing, same.begins)
    if end is not None:
        covered = {o for info in infos for o in range(info.segment.offsets.start, info.segment.offsets.end + 1)}
        lacking = [o for o in range(low, end) if o > max(covered, default=-1)]
        assert made.not_archived == len(lacking)
        assert made.is_beyond_cut == (position is not None and position > max(end, low))
    else:
        assert (made.not_archived, made.is_beyond_cut) == (0, False)


@pytest.fixture
def world() -> World:
    """Partitions 0 and 1 of t, with offsets 0 to 19."""
    made = World()
    for partition in (0, 1):
        for start in (0, 10):
            made.put(start, start + 9, partition=partition)
    return made


def publish(world: World, *, settled: bool = False, **ends: Sequence[int | None]) -> None:
    publish_watermarks(world.objects.memory, 1, watermarks(T0, ends, settled=settled))


def test_a_plan_ends_at_the_cut(world: World) -> None:
    publish(world, t=(13, 0, 0))
    made = plan(world, select(at=T0))
    topic = only(made)
    assert (topic.conflicts, made.is_empty) == ([], False)
    by_number = {p.source.partition: (p.offsets, len(p.infos)) for p in topic.partitions}
    assert by_number == {0: (OffsetRange(0, 12), 2), 1: (None, 0), 2: (None, 0)}
    assert topic.partition_count == 3, "as many as there were, one without a record"
    assert made.cut is not None
    assert made.cut.generation == 1


def test_a_partition_that_came_later_is_left_out(world: World) -> None:
    publish(world, t=(13,))
    topic = only(plan(world, select(at=T0)))
    assert ([p.source.partition for p in topic.partitions], topic.partition_count) == ([0], 1)


def test_nothing_committed_by_then_is_an_empty_selection(world: World) -> None:
    publish(world, t=(0, 0))
    assert plan(world, select(at=T0)).is_empty


def test_ends_that_are_not_known_are_no_choice(world: World) -> None:
    publish(world, t=(13, None))
    found = reasons(only(plan(world, select(at=T0))))
    assert found.keys() == {ConflictKind.MOMENT}
    assert "watermarks 1 do not say where a/t/1 ended" in found[ConflictKind.MOMENT]
    assert not plan(world, select(at=T0, partitions=[0])).refused


ACCEPTED = [ConflictKind.NOT_ARCHIVED]


def test_what_is_not_in_this_bucket(world: World) -> None:
    """Whatever egress committed where it runs: what it had stored may be copied here later than the watermarks."""
    publish(world, t=(25, 20))
    found = reasons(only(plan(world, select(at=T0))))
    assert found.keys() == {ConflictKind.NOT_ARCHIVED}
    assert "up to 5 offsets of a/t/0" in found[ConflictKind.NOT_ARCHIVED]
    assert not plan(world, select(at=T0), accept=ACCEPTED).refused
    world.put(20, 24)
    assert not plan(world, select(at=T0)).refused


def test_a_partition_of_which_nothing_is_here(world: World) -> None:
    publish(world, t=(20, 20, 7))
    found = reasons(only(plan(world, select(at=T0))))
    assert found.keys() == {ConflictKind.NOT_ARCHIVED}
    assert "up to 7 offsets of a/t/2" in found[ConflictKind.NOT_ARCHIVED]
    lacking = plan(world, select(at=T0, partitions=[2]))
    assert (lacking.refused, lacking.is_empty) == (True, False)
    assert plan(world, select(at=T0, partitions=[2]), accept=ACCEPTED).is_empty
    begin = ArchiveBegin(offset=7, reason="start policy", recorded_at=T0)
    world.control.begins.record(SourcePartition(REGION, "t", 2), begin)
    assert not plan(world, select(at=T0)).refused, "what was before the archive began was never in it"


def test_a_topic_of_which_nothing_is_here(world: World) -> None:
    publish(world, t=(20, 20), u=(3, 4), v=(0,))
    made = plan(world, select("^.*", at=T0))
    assert [topic.destination for topic in made.topics] == ["t"]
    (conflict,) = made.conflicts
    assert (conflict.kind, conflict.accepted) == (ConflictKind.NOT_ARCHIVED, False)
    assert conflict.reason.startswith("up to 7 offsets of u that were committed by then are not in this bucket")
    assert not plan(world, select("^.*", at=T0), accept=ACCEPTED).refused


def test_a_topic_that_is_claimed_and_has_no_segment(world: World) -> None:
    """As egress leaves it: of an empty topic, or one whose records it was not to archive."""
    publish(world, t=(20, 20), u=(3,))
    claim = TopicClaim(topic_id="id-u", cluster_id="c", number=0, claimed_at=T0 - SECOND)
    world.control.claims.record(REGION, "u", claim)
    [lacking] = [topic for topic in plan(world, select("^.*", at=T0)).topics if topic.destination == "u"]
    assert reasons(lacking).keys() == {ConflictKind.NOT_ARCHIVED}
    world.control.begins.record(
        SourcePartition(REGION, "u", 0), ArchiveBegin(offset=3, reason="start policy", recorded_at=T0)
    )
    made = plan(world, select("^.*", at=T0))
    assert not made.refused
    assert sorted(topic.destination for topic in made.topics) == ["t", "u"]
    assert plan(world, select("u", at=T0)).is_empty


def test_a_restore_that_went_further_before(world: World) -> None:
    publish(world, t=(13, 20))
    world.broker.create("t", partitions=2)
    begin(world, 14)
    found = reasons(only(plan(world, select(at=T0))))
    assert "an earlier run of this restore went further than watermarks 1 in a/t/0" in found[ConflictKind.MOMENT]


def test_topics_that_were_not_there_are_left_out(world: World) -> None:
    world.put(0, 9, topic="u")
    publish(world, t=(13, 20))
    made = plan(world, select("^.*", at=T0))
    assert [topic.destination for topic in made.topics] == ["t"]
    assert made.warnings == ["u is left out: it did not exist then, or egress could not see it (watermarks 1 of a)"]
    with pytest.raises(ConfigError, match="u is left out"):
        plan(world, select("u", at=T0))


def test_the_incarnation_of_that_time(world: World) -> None:
    world.put(0, 4, incarnation="id-t")
    world.claim(0, at=T0)
    world.claim(1, "id-t", at=T0)
    for number, (topic_id, at) in enumerate({"first": T0, "id-t": T0 + SECOND, "other": T0 + 2 * SECOND}.items(), 1):
        one = watermarks(at, {"t": (3, 3)})
        topics = {"t": replace(one.topics["t"], topic_id=topic_id)}
        publish_watermarks(world.objects.memory, number, replace(one, topics=topics))
    assert only(plan(world, select(at=T0))).incarnation.path == "t"
    assert only(plan(world, select(at=T0 + SECOND))).incarnation.path == "t@id-t"
    with pytest.raises(ConfigError, match="nothing is stored of the incarnation other, which it was then"):
        plan(world, select(at=T0 + 2 * SECOND))


def test_a_fork_of_which_nothing_is_stored_hides_nothing_before_it(world: World) -> None:
    claim = TopicClaim(topic_id="id-t", cluster_id="c", number=0, claimed_at=T0 - 10 * SECOND)
    world.control.claims.record(REGION, "t", claim)
    fork = replace(claim, number=1, claimed_at=T0 - 5 * SECOND, fork=1, forked_from="t")
    world.control.claims.record(REGION, "t@id-t-fork1", fork)
    for partition, fork_begin in enumerate((13, 20)):
        world.record_begin(fork_begin, incarnation="id-t-fork1", partition=partition)
    publish(world, t=(13, 20))
    made = only(plan(world, select(at=T0)))
    assert ([str(p.offsets) for p in made.partitions], made.conflicts) == (["[0,12]", "[0,19]"], [])
    publish_watermarks(world.objects.memory, 2, watermarks(T0, {"t": (15, 20)}))
    lacking = plan(world, select(at=T0))
    assert not lacking.is_empty
    assert reasons(only(lacking)).keys() == {ConflictKind.FORKED, ConflictKind.NOT_ARCHIVED}


def test_a_destination_need_not_have_partitions_that_were_empty(world: World) -> None:
    publish(world, t=(20, 20, 0))
    assert not plan(world, select(at=T0), partition_count=2).refused
    world.broker.create("t", partitions=2)
    assert not plan(world, select(at=T0)).refused
    assert not plan(world, select(at=T0, preserves_offsets=True)).refused
    publish_watermarks(world.objects.memory, 2, watermarks(T0, {"t": (20, 20, 7)}))
    world.record_begin(7, partition=2)
    assert not plan(world, select(at=T0)).refused
    kept = only(plan(world, select(at=T0, preserves_offsets=True)))
    assert reasons(kept).keys() == {ConflictKind.FEWER_PARTITIONS}, "whose log is to end where it did"


def test_a_partition_of_which_nothing_is_here_yet_gets_no_position(world: World) -> None:
    """A first checkpoint would be one, below the begin of what is copied later."""
    publish(world, t=(20, 20, 1010))
    world.record_begin(1000, partition=2)
    for keeps in (False, True):
        made = plan(world, select(at=T0, preserves_offsets=keeps), accept=ACCEPTED)
        first, second, _ = sorted(p.key for p in only(made).partitions)
        assert only(made).partitions[0].source.partition == 2, "the smallest"
        assert set(first_marked(made, [])) == ({first, second} if keeps else {first})
        assert first_marked(made, [first]) == ([second] if keeps else [])


def test_a_forked_log_has_the_path_that_was_claimed_by_then(world: World) -> None:
    world.put(10, 14, incarnation="id-t-1")
    world.claim(0, topic_id="id-t", at=T0 - SECOND)
    world.claim(1, "id-t-1", topic_id="id-t", at=T0 + SECOND)
    for number in (1, 2):
        publish_watermarks(world.objects.memory, number, watermarks(T0 + (number - 1) * 2 * SECOND, {"t": (13, 13)}))
    assert only(plan(world, select(at=T0))).incarnation.path == "t"
    assert only(plan(world, select(at=T0 + 2 * SECOND))).incarnation.path == "t@id-t-1"


def test_a_moment_is_no_time_of_records_and_another_one_is_another_restore() -> None:
    with pytest.raises(ValueError, match="leave out --from and --until"):
        select(at=T0, timestamps=IntRange(0, 5))
    with pytest.raises(ValueError, match="--transactional needs --at"):
        select(is_transactional=True)
    digests = {select().digest, select(at=T0).digest, select(at=T0, is_transactional=True).digest}
    assert len(digests) == 3
