"""Plans of a restore from an archive and a cluster in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from formats.control.claim import TopicClaim
from formats.errors import BrokerUnavailable, ConfigError, StoreUnavailable
from formats.int_range import IntRange
from formats.segment import OffsetRange, SourcePartition, partition_prefix
from formats.topic_selection import TopicPattern
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.contracts.cluster import TopicPartition
from infra.contracts.storage import ObjectInfo
from replicator.restore import planner as restore_planner
from replicator.restore.conflicts import ConflictKind
from replicator.restore.plan import RestorePlan
from replicator.restore.sources import of_all_incarnations, sources_of
from replicator.restore.target_options import TargetOptions
from replicator.selection import CHECKPOINTS, Renaming, Selection, checkpoint_topic
from tests.fakes.surroundings import FailingStore, HandClock
from tests.ingress.world import REGION, World
from tests.replicator.restore.planned import existing, only, plan, planner, reasons, select

LIFE = "a1b2c3d4e5f6g7h8i9j0kk"

# --- whether there is anything to restore -----------------------------------------------------------------------------


def test_a_time_window_without_records_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more objects than footers that the planner reads, the restore itself finds that there are none."""
    world = World()
    world.put(0, 9, stamp=1_000)
    world.put(10, 19, stamp=2_000)
    for timestamps, is_empty in (
        (IntRange(1_500, 1_900), True),
        (IntRange(1_500, 2_000), False),
        (IntRange(2_001), True),
    ):
        assert plan(world, select(timestamps=timestamps)).is_empty == is_empty
    assert not plan(world).is_empty
    assert plan(world, select(offsets=IntRange(50, 60))).is_empty
    monkeypatch.setattr(restore_planner, "MAX_TIME_FOOTERS", 2)
    assert plan(world, select(timestamps=IntRange(2_001))).is_empty
    monkeypatch.setattr(restore_planner, "MAX_TIME_FOOTERS", 1)
    assert not plan(world, select(timestamps=IntRange(2_001))).is_empty


# --- which topics -----------------------------------------------------------------------------------------------------


def test_all_problems_are_reported_at_once() -> None:
    world = World()
    world.put(0, 9)
    world.put(0, 9, topic="again")
    world.put(0, 9, topic="again", incarnation=LIFE)
    selection = select("t", "absent", "^none.*", "again", renaming=Renaming({"t": "no name"}))
    with pytest.raises(ConfigError) as raised:
        plan(world, selection)
    assert len(raised.value.problems) == 4
    text = str(raised.value)
    assert "absent: nothing of it is stored below a/" in text
    assert "^none.*: nothing of it is stored below a/" in text
    assert "t: t would be restored as 'no name'" in text
    assert "choose one with --incarnation: 'the plain path', 'a1b2c3d4e5f6g7h8i9j0kk'" in text


def test_where_nothing_is_stored_the_other_regions_of_the_bucket_are_named() -> None:
    world = World()
    world.put(0, 9)
    with pytest.raises(ConfigError) as raised:
        plan(world, replace(select("t"), region="here"))
    problem = "t: nothing of it is stored below here/, nor anything else; the archive of another region is"
    assert list(raised.value.problems) == [f"{problem} --archive-region NAME: {REGION}"]


def refusal(world: World, selection: Selection) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        plan(world, selection)
    return list(raised.value.problems)


def test_a_topic_that_is_not_stored_is_refused_with_what_is_stored() -> None:
    world = World()
    for topic in ("payments", "orders", "__consumer_offsets"):
        world.put(0, 9, topic=topic)
    nothing = "nothing of it is stored below a/"
    assert refusal(world, select("paymnts")) == [
        f"paymnts: {nothing} (did you mean 'payments'?); stored there: orders, payments"
    ]
    assert refusal(world, select("^none.*")) == [f"^none.*: {nothing}; stored there: orders, payments"]
    for number in range(4):
        world.put(0, 9, topic=f"other{number}")
    assert refusal(world, select("absent")) == [
        f"absent: {nothing}; stored there: orders, other0, other1, other2, other3, …"
    ]


def test_a_rename_is_not_refused_where_no_topic_is_found_anyway() -> None:
    world = World()
    world.put(0, 9)
    (problem,) = refusal(world, select("absent", renaming=Renaming({"t": "copy"})))
    assert problem.startswith("absent: ")


@pytest.mark.parametrize("name", ["..", "__consumer_offsets", "replicator.restore.x"])
def test_nothing_is_restored_into_an_internal_or_illegal_topic(name: str) -> None:
    world = World()
    world.put(0, 9)
    with pytest.raises(ConfigError, match="is no name for it"):
        plan(world, select(renaming=Renaming({"t": name})))


@pytest.mark.parametrize("name", ["__consumer_offsets", "replicator.checkpoints"])
def test_internal_topics_never_match(name: str) -> None:
    world = World()
    world.put(0, 9)
    world.put(0, 9, topic=name)
    assert only(plan(world, select("^.*"))).incarnation.topic == "t"
    with pytest.raises(ConfigError, match="nothing of it is stored"):
        plan(world, select(name))


def test_small_topics_come_first_and_of_each_its_small_partitions() -> None:
    world = World()
    for n in range(9):
        world.put(n, n, topic="large")
    world.put(0, 9, topic="small", partition=1)
    for n in range(3):
        world.put(n, n, topic="small", partition=0)
    found = plan(world, select("^.*"))
    assert [topic.incarnation.topic for topic in found.topics] == ["small", "large"]
    assert [p.source.partition for p in found.topics[0].partitions] == [1, 0]


def test_only_selected_partitions_are_planned() -> None:
    world = World()
    for p in range(4):
        world.put(0, 9, partition=p, partitions=4)
    found = only(plan(world, select(partitions=frozenset({1, 3}))))
    assert sorted(p.source.partition for p in found.partitions) == [1, 3]
    assert found.partition_count == 4


def test_renaming_a_topic_that_is_not_selected_is_refused() -> None:
    world = World()
    world.put(0, 9)
    with pytest.raises(ConfigError, match=r"--rename x=y: x is none of the topics \(t\)"):
        plan(world, select(renaming=Renaming({"x": "y"})))


def test_partitions_without_segments_are_refused_by_name() -> None:
    world = World()
    for p in (0, 2):
        world.put(0, 9, partition=p)
    with pytest.raises(ConfigError, match="t has 0, 2"):
        plan(world, select(partitions=[1]))


def test_topics_without_a_selected_partition_are_left_out() -> None:
    world = World()
    world.put(0, 9, partition=0)
    world.put(0, 9, partition=5, topic="u")
    assert [t.destination for t in plan(world, select("t", "u", partitions=[5])).topics] == ["u"]


def test_renamed_topics_are_restored_under_their_new_names() -> None:
    world = World()
    world.put(0, 9)
    world.put(0, 9, topic="u")
    renaming = Renaming({"t": "copy"}, "{topic}.restored")
    found = {topic.incarnation.topic: topic for topic in plan(world, select("^.*", renaming=renaming)).topics}
    assert {name: topic.destination for name, topic in found.items()} == {"t": "copy", "u": "u.restored"}
    assert found["t"].partitions[0].target == TopicPartition("copy", 0)


def test_two_topics_of_one_destination_are_a_conflict() -> None:
    world = World()
    for topic in ("t", "u", "v"):
        world.put(0, 9, topic=topic)
    found = plan(world, select("^.*", renaming=Renaming({"u": "t"})), accept=list(ConflictKind))
    assert [(c.kind, c.accepted) for c in found.conflicts] == [(ConflictKind.CONFLICT, False)]
    assert "several topics would be restored as t: use --rename" in found.conflicts[0].reason
    assert found.refused


# --- lives ------------------------------------------------------------------------------------------------------------


def with_lives(*, claims: Mapping[str, int]) -> World:
    world = World()
    world.put(0, 9)
    world.put(0, 4, incarnation=LIFE)
    for life, number in claims.items():
        world.claim(number, life)
    return world


@pytest.mark.parametrize("last", ["", LIFE])
def test_the_last_incarnation_is_the_one_claimed_last(last: str) -> None:
    world = with_lives(claims={last: 1, next(iter({"", LIFE} - {last})): 0})
    topic = only(plan(world))
    assert topic.incarnation.id == last
    assert {p.source.incarnation for p in topic.partitions} == {last}


@pytest.mark.parametrize("life", ["", LIFE])
def test_a_selected_incarnation_needs_no_claims(life: str) -> None:
    assert only(plan(with_lives(claims={}), select(incarnation=life))).incarnation.id == life


def test_an_unknown_incarnation_is_refused_and_the_stored_ones_are_listed() -> None:
    with pytest.raises(ConfigError, match="no incarnation 'other'; stored: 'the plain path', 'a1b2"):
        plan(with_lives(claims={}), select(incarnation="other"))


@pytest.mark.parametrize(
    "claims",
    [{"": 0}, {"": 0, LIFE: 0}, {"": 0, LIFE: 2}, {"": 0, LIFE: 1, "a-third-one": 2}],
    ids=["one unclaimed", "the same number", "one between", "the last has nothing stored"],
)
def test_incarnations_of_unknown_order_are_refused(claims: Mapping[str, int]) -> None:
    with pytest.raises(ConfigError, match="the last incarnation is not known; choose one with --incarnation"):
        plan(with_lives(claims=claims))


def test_an_undecodable_claim_is_a_problem_of_its_topic() -> None:
    world = with_lives(claims={"": 0, LIFE: 1})
    world.objects.memory.replace(f"data/a/_control/v1/places/t@{LIFE}", b"rubbish")
    world.put(0, 9, topic="u")
    with pytest.raises(ConfigError) as raised:
        plan(world, select("t", "u"))
    [problem] = raised.value.problems
    assert problem.startswith("t: not a claim") or "rubbish" in problem


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_recorded_gaps_are_reported_and_no_conflict() -> None:
    world = World()
    world.put(0, 9)
    world.put(20, 29)
    topic = only(plan(world))
    assert set(reasons(topic)) == {ConflictKind.MISSING}
    assert topic.partitions[0].missing == [OffsetRange(10, 19)]
    world.record_gap(10, 19)
    topic = only(plan(world))
    assert not reasons(topic)
    assert topic.partitions[0].recorded == [OffsetRange(10, 19)]


def test_offsets_outside_the_selection_are_not_planned() -> None:
    world = World()
    for n in range(4):
        world.put(10 * n, 10 * n + 9)
    [partition] = only(plan(world, select(offsets=IntRange(15, 22)))).partitions
    assert partition.offsets == OffsetRange(15, 22)
    assert [i.segment.offsets.start for i in partition.infos] == [10, 20]


def test_a_damaged_segment_does_not_prevent_a_plan() -> None:
    world = World()
    world.damage(world.put(0, 9, partitions=9))
    world.put(0, 9, partition=1, partitions=3)
    topic = only(plan(world))
    assert (topic.partition_count, topic.footers_read, reasons(topic)) == (3, 1, {})


class ListedStore(FailingStore):
    """Records which partitions were listed."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.prefixes: list[str] = []

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        self.prefixes.append(prefix)
        return super().list(prefix, start_after=start_after, limit=limit)


def test_each_partition_is_listed_once() -> None:
    world = World()
    for p in range(3):
        for n in range(5):
            world.put(n, n, partition=p, level=n % 2, partitions=3)
    objects = ListedStore(world.clock)
    objects.memory = world.objects.memory
    selection = select(partitions=frozenset({0, 2}))
    found = planner(world, SegmentStore(objects, "data")).plan(selection, "x", TargetOptions(), None)
    assert len(only(found).partitions) == 2
    prefixes = [partition_prefix("data", SourcePartition(REGION, "t", p)) for p in range(3)]
    assert [objects.prefixes.count(prefix) for prefix in prefixes] == [1, 0, 1]


def test_an_unavailable_archive_or_cluster_is_not_an_empty_one() -> None:
    world = existing()
    world.objects.away = {"list"}
    with pytest.raises(StoreUnavailable):
        plan(world)
    world.objects.away = {"open"}
    with pytest.raises(StoreUnavailable):
        plan(world)
    world.objects.away = set()
    world.admin.away = True
    with pytest.raises(BrokerUnavailable):
        plan(world)


def test_an_unchanged_archive_gives_the_same_plan() -> None:
    world = existing()
    world.put(20, 29)
    first = plan(world)
    assert plan(world) == first
    world.clock.advance(timedelta(hours=1).total_seconds())
    assert [p.infos for p in plan(world).partitions] == [p.infos for p in first.partitions]


# --- its name ---------------------------------------------------------------------------------------------------------


def conflicts(found: RestorePlan) -> Collection[str]:
    assert all(c.kind is ConflictKind.CONFLICT for c in found.conflicts)
    return [c.reason for c in found.conflicts]


def test_a_restore_without_a_name_is_named_by_its_selection() -> None:
    world = existing()
    selection = select()
    assert plan(world, selection).checkpoint_topic == f"{CHECKPOINTS}{selection.digest}.{selection.digest}"
    assert plan(world, selection, restore_id="x").checkpoint_topic == f"{CHECKPOINTS}x.{selection.digest}"


def test_an_id_belongs_to_its_selection() -> None:
    world = existing()
    before, now = select(offsets=IntRange(0, 5)), select()
    world.broker.create(checkpoint_topic(before, "x"))
    found = plan(world, now, restore_id="x", accept=list(ConflictKind))
    assert found.refused
    [why] = conflicts(found)
    assert "x was started with another selection" in why
    assert "another --id" in why
    assert not conflicts(plan(world, before, restore_id="x"))
    assert not conflicts(plan(world, now, restore_id="y"))
    assert not conflicts(plan(world, now))


def test_an_id_with_the_prefix_of_another_is_another() -> None:
    world = existing()
    world.broker.create(checkpoint_topic(select(offsets=IntRange(0, 5)), "x-y"))
    assert not conflicts(plan(world, restore_id="x"))


@pytest.mark.parametrize("name", ["x.y", "", "x y", "x" * 101])
def test_an_illegal_id_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no name for a restore"):
        checkpoint_topic(select(), name)


@pytest.mark.parametrize(
    "change",
    [
        {"topics": [TopicPattern("t"), TopicPattern("u")]},
        {"incarnation": ""},
        {"partitions": frozenset({0})},
        {"offsets": IntRange(1)},
        {"timestamps": IntRange(1)},
        {"renaming": Renaming({"t": "u"})},
        {"renaming": Renaming(template="{topic}.x")},
        {"transforms": ["a:b"]},
    ],
)
def test_another_selection_is_another_restore(change: Mapping[str, object]) -> None:
    assert select(**change).digest != select().digest
    assert select(**change).digest == select(**change).digest


def test_partitions_and_topics_are_the_same_in_any_order() -> None:
    assert select("t", "u", partitions=[2, 1]).digest == select("u", "t", partitions=frozenset({1, 2})).digest


# --- a log that forked ------------------------------------------------------------------------------------------------


@pytest.fixture
def forked() -> World:
    """After `adopt --fork`: the log of one partition forked at 50; the other did not fork and continues at 100."""
    world = World()
    world.put(0, 99)
    world.put(0, 99, partition=1)
    control = ControlStore(world.objects.memory, "data")
    first = TopicClaim(topic_id="id", cluster_id="c", number=0, claimed_at=world.clock.at)
    control.claims.record(REGION, "t", first)
    control.claims.record(REGION, "t@id-fork1", replace(first, number=1, fork=1, forked_from="t"))
    world.record_begin(50, incarnation="id-fork1")
    world.record_begin(100, incarnation="id-fork1", partition=1)
    world.put(50, 129, incarnation="id-fork1")
    world.put(100, 109, incarnation="id-fork1", partition=1)
    return world


def test_leaving_out_the_archive_before_a_fork_is_a_conflict(forked: World) -> None:
    why = reasons(only(plan(forked)))[ConflictKind.FORKED]
    assert "t@id-fork1 holds it from there on (by partition, 0: 50, 1: 100), t what was archived before" in why
    assert "--incarnation '' --partition N" in why
    [accepted] = only(plan(forked, accept=[ConflictKind.FORKED])).conflicts
    assert accepted.accepted
    chosen = only(plan(forked, select(incarnation="id-fork1")))
    assert chosen.conflicts == []
    assert {str(p.source): str(p.offsets) for p in only(plan(forked, select(incarnation=""))).partitions} == {
        "a/t/0": "[0,99]",
        "a/t/1": "[0,99]",
    }


def test_verification_includes_the_archive_before_a_fork(forked: World) -> None:
    last = [SourcePartition(REGION, "t", n, "id-fork1") for n in (0, 1)]
    before = [SourcePartition(REGION, "t", n) for n in (0, 1)]
    assert list(sources_of(forked.archive, select())) == last
    assert list(of_all_incarnations(forked.archive, select())) == last + before
    of_one = of_all_incarnations(forked.archive, select(partitions=[1]))
    assert list(of_one) == [last[1], before[1]]
    assert list(of_all_incarnations(forked.archive, select(incarnation="id-fork1"))) == last


def test_a_fork_of_a_fork_has_two_earlier_paths(forked: World) -> None:
    again = TopicClaim(
        topic_id="id", cluster_id="c", number=2, claimed_at=forked.clock.at, fork=2, forked_from="t@id-fork1"
    )
    forked.control.claims.record(REGION, "t@id-fork2", again)
    forked.put(120, 129, incarnation="id-fork2")
    found = of_all_incarnations(forked.archive, select(partitions=[0]))
    assert list(found) == [SourcePartition(REGION, "t", 0, life) for life in ("id-fork2", "", "id-fork1")]


@pytest.mark.parametrize(("low", "begin"), [(0, 10), (10, 10), (15, 15)])
def test_the_start_of_the_archive_counts_from_the_first_selected_offset(low: int, begin: int) -> None:
    world = World()
    world.put(10, 29)
    world.record_begin(10)
    [partition] = only(plan(world, select(offsets=IntRange(low)))).partitions
    assert partition.archive_begin == begin
