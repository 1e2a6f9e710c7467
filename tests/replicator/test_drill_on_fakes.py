"""The decisions of a drill, without brokers: its sample, its stops, its differences and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from formats.control.claim import TopicClaim
from formats.control.gap import RETENTION, RecordedGap
from formats.errors import BrokerUnavailable, TargetError
from formats.segment import OffsetRange, SourcePartition
from formats.topic_selection import TopicPattern, TopicRule
from infra.contracts.cluster import LogEnds, TopicPartition
from infra.runtime.lifecycle import Stop
from infra.spark.driver import SparkSettings
from replicator.config import EgressSettings, EgressTopicSettings, from_mapping
from replicator.drill import Drill, Drilled, DrillStopped, _differences, write_metrics
from replicator.recovery_point import RecoveryPoint
from replicator.restore.plan import RestorePlan, TopicPlan
from replicator.restore.progress import RestoreOutcome
from replicator.restore.restore import Restore
from replicator.scratch_cluster import ScratchCluster
from replicator.selection import Selection
from replicator.verify.scope import Found
from replicator.verify.verify import Verification
from tests.fakes.cluster_facts import FakeProbe
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_catalog import FakeCatalogAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.ingress.world import REGION, World
from tests.replicator.restore.planned import plan as plan_of
from tests.replicator.restore.restoring import without_clients

CONFIG = from_mapping({"region": REGION, "s3": {"bucket": "b"}})
SCRATCH = from_mapping({"region": REGION, "kafka": {"bootstrap.servers": "b:9092"}, "s3": {"bucket": "b"}})
SELECTION = Selection(region=REGION, topics=[TopicPattern("t")])
DRILL = Drill(config=CONFIG, scratch=SCRATCH, selection=SELECTION)
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCatalogAdmin:
    """The scratch cluster."""
    admin = FakeCatalogAdmin(FakeAdmin(FakeBroker(), cluster="scratch"))
    monkeypatch.setattr("replicator.drill.open_scratch", lambda *_: ScratchCluster(admin.admin, admin, "the scratch"))
    monkeypatch.setattr("replicator.drill.cluster_id_of", lambda config: f"of {config.source}")
    monkeypatch.setattr("replicator.drill.open_archive", lambda *_: World().archive)
    return admin


@pytest.mark.parametrize(
    ("claimed", "source", "what"),
    [("scratch", "b.toml", "which this archive is of"), ("c", "scratch", "that of b.toml")],
    ids=["of the archive", "of --source"],
)
def test_a_cluster_that_is_no_scratch_cluster_is_refused(
    monkeypatch: pytest.MonkeyPatch, claimed: str, source: str, what: str
) -> None:
    world = World()
    claim = TopicClaim(topic_id="id-t", cluster_id=claimed, number=0, claimed_at=AT)
    world.control.claims.record(REGION, "t", claim)
    monkeypatch.setattr("replicator.drill.open_archive", lambda *_: world.archive)
    other = replace(SCRATCH, source="b.toml")
    monkeypatch.setattr("replicator.drill.cluster_id_of", lambda config: source if config is other else "")
    with pytest.raises(TargetError, match=f"the scratch is cluster scratch, {what}: give the file of a disposable"):
        replace(DRILL, source=other).run(Stop())


class CreatingRestore(Restore):
    """Creates its topics; the one that was there before is not its own."""

    broker: FakeBroker
    fails = False

    def plan(self) -> RestorePlan:
        assert self.selection.renaming("t").startswith("drill-")
        created = cast("TopicPlan", SimpleNamespace(destination="drill.t", facts=None, partitions=[]))
        there = cast("TopicPlan", SimpleNamespace(destination="there", facts=object(), partitions=[]))
        return RestorePlan(id=self.id, checkpoint_topic="own", topics=[created, there], warnings=["of the plan"])

    def run(self, *_: object) -> Sequence[RestoreOutcome]:
        for name in ("drill.t", "own", "own.offsetmap"):
            self.broker.create(name)
        if self.fails:
            raise BrokerUnavailable("planned")
        return [outcome(0)]


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_drill_created_is_deleted_at_its_end(
    monkeypatch: pytest.MonkeyPatch, cluster: FakeCatalogAdmin, *, fails: bool
) -> None:
    without_clients(World(), monkeypatch)
    broker = cluster.admin.broker
    broker.create("there")
    monkeypatch.setattr(CreatingRestore, "broker", broker, raising=False)
    monkeypatch.setattr(CreatingRestore, "fails", fails)
    monkeypatch.setattr("replicator.drill.Restore", CreatingRestore)
    drill = OldestRecord(config=CONFIG, scratch=SCRATCH, selection=SELECTION)
    if fails:
        with pytest.raises(BrokerUnavailable, match="planned"):
            drill.run(Stop())
    else:
        assert drill.run(Stop()).warnings == ["of the plan"]
    assert list(cluster.admin.topics()) == ["there"]
    cluster.keeps["own"] = "may not be deleted"
    left = "topic own is left in the scratch: may not be deleted"
    if fails:
        with pytest.raises(TargetError, match=f"planned; {left}"):
            drill.run(Stop())
    else:
        assert drill.run(Stop()).warnings == ["of the plan", left]


def test_a_sample_is_of_the_stored_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    stored = {("t", number) for number in range(3)}
    for _, partition in stored:
        world.put(0, 9, partition=partition)
    monkeypatch.setattr("replicator.drill.Verification", partial(Verification, objects=world.objects))
    for sample, count in ((1, 1), (2, 2), (9, 3)):
        chosen = replace(DRILL, sample=sample)._sampled(Stop()).only
        assert chosen is not None
        assert (len(chosen), set(chosen) <= stored) == (count, True)
    assert DRILL._sampled(Stop()) is SELECTION


class StoppedRestore(Restore):
    """Stopped before it restored anything."""

    def plan(self) -> RestorePlan:
        return RestorePlan(id=self.id, checkpoint_topic="", topics=[])

    def run(self, *_: object) -> Sequence[RestoreOutcome]:
        self.stop.set()
        return []


def test_a_drill_that_is_stopped_while_it_restores_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    without_clients(world, monkeypatch)
    monkeypatch.setattr("replicator.drill.Restore", StoppedRestore)
    monkeypatch.setattr("replicator.drill.Verification", partial(Verification, objects=world.objects))
    with pytest.raises(DrillStopped, match="before everything was restored: nothing was measured"):
        DRILL.run(Stop())


def test_a_drill_that_is_stopped_while_spark_compares_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, done = Stop(), list[int]()

    def on_spark(*given: object, **_: object) -> Iterator[Found]:
        progress: Callable[[int, int], None] = given[-1]  # type: ignore[assignment]
        for number in (1, 2):
            if number == 2:
                stop.set()
            progress(number, 2)
            done.append(number)
            yield {}, {}

    monkeypatch.setattr("replicator.drill.on_spark", on_spark)
    with pytest.raises(DrillStopped, match="before everything was compared: nothing was measured"):
        replace(DRILL, spark=SparkSettings())._compared(SCRATCH, SELECTION, {}, stop)
    assert done == [1]


def rpo(monkeypatch: pytest.MonkeyPatch, world: World, probe: FakeProbe, **hides: str) -> RecoveryPoint:
    """`hides`: topics that may not be described, with the reason."""
    broker = FakeBroker()
    broker.create("t", partitions=2)
    broker.create("other", partitions=1)
    monkeypatch.setattr("replicator.drill.open_archive", lambda *_: world.archive)
    admin = FakeAdmin(broker, ids={"t": "id-t"}, hides=hides)
    monkeypatch.setattr("replicator.drill.KafkaAdmin", lambda *_: admin)
    monkeypatch.setattr("replicator.drill.KafkaLogProbe", lambda *_, **__: probe)
    config = replace(SCRATCH, egress=EgressSettings(topics=(TopicRule(TopicPattern("^.*"), EgressTopicSettings()),)))
    return replace(DRILL, config=config)._behind(Stop())


def test_the_rpo_is_of_all_that_egress_selects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of partition 1 nothing is stored; the topic `other` is not selected."""
    world, now = World(), datetime.now(UTC)
    world.put(0, 9)
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    probe = FakeProbe({p: LogEnds(low=0, stable=10, high=10) for p in (first, second, TopicPartition("other", 0))})
    probe.stamped = {second: now - timedelta(hours=2), TopicPartition("other", 0): now - timedelta(hours=9)}
    found = rpo(monkeypatch, world, probe).seconds
    assert found is not None
    assert 7200 <= found < 7300
    removed, source = OffsetRange(0, 9), SourcePartition(REGION, "t", 1)  # all that there was
    world.control.gaps.record(
        RecordedGap(source=source, offsets=removed, reason=RETENTION, low=0, high=10, recorded_at=AT)
    )
    assert rpo(monkeypatch, world, probe) == RecoveryPoint(0.0)


def test_the_rpo_counts_from_a_segment_that_is_stored_after_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of a partition are uploaded in parallel."""
    world, here = World(), TopicPartition("t", 0)
    world.put(0, 9)
    world.put(20, 29)
    probe = FakeProbe({here: LogEnds(low=0, stable=30, high=30)})
    probe.stamped = {here: datetime.now(UTC) - timedelta(hours=2)}
    found = rpo(monkeypatch, world, probe).seconds
    assert found is not None
    assert found >= 7200
    world.put(10, 19)
    assert rpo(monkeypatch, world, probe) == RecoveryPoint(0.0)


def test_what_the_source_removed_before_it_was_archived_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had no age, so the RPO was 0."""
    world = World()
    world.put(0, 9)
    probe = FakeProbe({TopicPartition("t", 0): LogEnds(low=5000, stable=5000, high=5000)})
    why = "offsets 10 to 4999 of t/0 are lost: the source removed them before they were archived"
    assert rpo(monkeypatch, world, probe) == RecoveryPoint(None, why)


def test_a_loss_that_egress_recorded_is_lost_until_it_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    world, here = World(), TopicPartition("t", 0)
    world.put(0, 9)
    world.put(20, 29)
    probe = FakeProbe({here: LogEnds(low=20, stable=30, high=30)})
    gap = RecordedGap(
        source=SourcePartition(REGION, "t", 0),
        offsets=OffsetRange(10, 19),
        reason="late",
        low=20,
        high=30,
        recorded_at=AT,
    )
    world.control.gaps.record(gap)
    why = "offsets 10 to 19 of t/0 are lost: the source removed them before they were archived"
    assert rpo(monkeypatch, world, probe) == RecoveryPoint(None, why)
    world.control.gaps.record(replace(gap, is_accepted=True))
    assert rpo(monkeypatch, world, probe) == RecoveryPoint(0.0)


@pytest.mark.parametrize("stable", [5, 500])
def test_nothing_of_a_topic_that_was_created_again_is_archived(monkeypatch: pytest.MonkeyPatch, stable: int) -> None:
    world, here = World(), TopicPartition("t", 0)
    world.put(0, 9)
    claim = TopicClaim(topic_id="before", cluster_id="c", number=0, claimed_at=AT)
    world.control.claims.record(REGION, "t", claim)
    probe = FakeProbe({here: LogEnds(low=0, stable=stable, high=stable)})
    probe.stamped = {here: datetime.now(UTC) - timedelta(hours=6)}
    found = rpo(monkeypatch, world, probe).seconds
    assert found is not None
    assert 21_600 <= found < 21_700


def test_the_rpo_is_not_known_where_the_log_ends_before_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.put(0, 9)
    probe = FakeProbe({TopicPartition("t", 0): LogEnds(low=0, stable=6, high=6)})
    found = rpo(monkeypatch, world, probe)
    assert found.seconds is None
    assert found.unknown.startswith("the archive has t/0 up to 9, and its log ends at 5: was that log cut")


def test_the_rpo_is_not_known_where_a_topic_may_not_be_described(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.put(0, 9)
    found = rpo(monkeypatch, world, FakeProbe({}), t="TOPIC_AUTHORIZATION_FAILED")
    assert (found.seconds, found.unknown.endswith("was asked: TOPIC_AUTHORIZATION_FAILED")) == (None, True)


def test_a_record_without_an_answer_has_no_age(monkeypatch: pytest.MonkeyPatch) -> None:
    world, here = World(), TopicPartition("t", 0)
    world.put(0, 9)
    probe = FakeProbe({here: LogEnds(low=0, stable=20, high=20)})
    why = (
        "the timestamp of the first record that waits is not known of t/0 at offset 10: it was not read in time, or "
        "has none"
    )
    assert rpo(monkeypatch, world, probe) == RecoveryPoint(None, why)
    probe.empty.add(here)  # of markers alone
    assert rpo(monkeypatch, world, probe) == RecoveryPoint(0.0)


def outcome(partition: int, **changes: object) -> RestoreOutcome:
    whole = RestoreOutcome(
        source=f"a/t/{partition}", target=f"t/{partition}", records=10, size_bytes=100, next_offset=10, is_done=True
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def test_whatever_was_not_restored_is_a_difference() -> None:
    outcomes = [
        outcome(0),
        outcome(1, failed="no segment holds [3,4]"),
        outcome(2, corrupt=("a/t/2/segment: its digest differs",)),
        outcome(3, missing=((5, 6), (8, 8))),
        outcome(4, expired=((0, 4), (7, 8))),
        outcome(5, given_up=((2, 3),)),
    ]
    assert _differences(outcomes[:1]) == []
    assert _differences(outcomes) == [
        "a/t/1: no segment holds [3,4]",
        "corrupt: a/t/2/segment: its digest differs",
        "a/t/4: removed by retention meanwhile: [0,4]",
        "a/t/4: removed by retention meanwhile: [7,8]",
        "a/t/3: missing [5,6]",
        "a/t/3: missing [8,8]",
        "a/t/5: missing [2,3]",
    ]


class OldestRecord(Drill):
    """Of an archive that is 3 s behind its source; what was restored is equal."""

    def _behind(self, stop: Stop) -> RecoveryPoint:
        return RecoveryPoint(3.0)

    def _compared(self, *_: object) -> Sequence[Mapping[str, Any]]:
        return []


@pytest.mark.parametrize(
    ("second", "behind", "unknown"),
    [
        (outcome(1), 3.0, ""),
        (outcome(1, missing=((5, 6),)), None, "1 partitions would not be back, or not as they were"),
        (outcome(1, failed="no segment holds [3,4]"), None, "1 partitions would not be back, or not as they were"),
        (outcome(1, expired=((0, 4),)), None, "1 partitions would not be back, or not as they were"),
        (outcome(1, given_up=((2, 3),)), None, "1 partitions would not be back, or not as they were"),
    ],
    ids=["whole", "missing", "failed", "expired", "given up"],
)
def test_there_is_no_rpo_where_a_partition_is_not_back(
    monkeypatch: pytest.MonkeyPatch, second: RestoreOutcome, behind: float | None, unknown: str
) -> None:
    class EndedRestore(Restore):
        def plan(self) -> RestorePlan:
            return RestorePlan(id=self.id, checkpoint_topic="", topics=[])

        def run(self, *_: object) -> Sequence[RestoreOutcome]:
            return [outcome(0), second]

    world = World()
    without_clients(world, monkeypatch)
    monkeypatch.setattr("replicator.drill.Restore", EndedRestore)
    drilled = OldestRecord(config=CONFIG, scratch=SCRATCH, selection=SELECTION).run(Stop())
    assert (drilled.behind_seconds, drilled.behind_unknown, drilled.is_good) == (behind, unknown, behind is not None)


@pytest.mark.parametrize("removed", ["", "before it was read", "since"])
def test_what_retention_removed_after_it_was_restored_is_not_called_unequal(
    monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    """The topic rightly has more than the archive has by then."""
    world = World()
    for start in (0, 10):
        world.put(start, start + 9)
    unequal = {"kind": "target", "source": "a/t/0", "target": "t/0", "equal": False, "records": 0, "wanted": None}
    unequal |= {"found": None, "difference": "offset 3 differs", "unreadable": ""}

    class RemovingRestore(Restore):
        def plan(self) -> RestorePlan:
            return plan_of(world)

        def run(self, *_: object) -> Sequence[RestoreOutcome]:
            if removed:
                world.record_gap(0, 9)
            return [outcome(0, expired=((0, 9),) if removed == "before it was read" else ())]

    class Unequal(OldestRecord):
        def _compared(self, *_: object) -> Sequence[Mapping[str, Any]]:
            return [unequal]

    without_clients(world, monkeypatch)
    monkeypatch.setattr("replicator.drill.open_archive", lambda *_: world.archive)
    monkeypatch.setattr("replicator.drill.Restore", RemovingRestore)
    *_, last = Unequal(config=CONFIG, scratch=SCRATCH, selection=SELECTION).run(Stop()).differences
    if removed == "since":
        assert last == "a/t/0: not compared: [0,9] was removed by retention since it was restored"
    else:
        assert last.endswith("offset 3 differs")


def test_what_egress_reported_and_is_not_stored_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    class ShortRestore(Restore):
        def plan(self) -> RestorePlan:
            lost = (SourcePartition("a", "t", 1), OffsetRange(0, 9))
            return RestorePlan(id=self.id, checkpoint_topic="", topics=[], lacking=[lost])

        def run(self, *_: object) -> Sequence[RestoreOutcome]:
            return [outcome(0)]

    without_clients(World(), monkeypatch)
    monkeypatch.setattr("replicator.drill.Restore", ShortRestore)
    drilled = OldestRecord(config=CONFIG, scratch=SCRATCH, selection=SELECTION).run(Stop())
    assert drilled.differences == ["a/t/1: missing [0,9], which egress reported as archived"]
    assert (drilled.bad, drilled.behind_seconds, drilled.is_good) == (1, None, False)
    drilled = OldestRecord(config=CONFIG, scratch=SCRATCH, selection=SELECTION, as_stored=True).run(Stop())
    assert (drilled.bad, drilled.behind_seconds, drilled.is_good) == (0, 3.0, True)


def test_topics_keep_their_names_in_a_cluster_of_the_drill_alone() -> None:
    """With a name of this drill before it, a long one would be none that Kafka takes."""
    assert replace(DRILL, renames=False)._apart(SELECTION) is SELECTION
    assert DRILL._apart(SELECTION).renaming("t").startswith("drill-")


def test_drills_of_the_same_moment_are_restores_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Into one cluster, by cron: with one id, each would go on with the other's checkpoints, or refuse to."""
    ids = list[str]()

    class NamedRestore(Restore):
        def plan(self) -> RestorePlan:
            ids.append(self.id)
            return RestorePlan(id=self.id, checkpoint_topic="", topics=[])

        def run(self, *_: object) -> Sequence[RestoreOutcome]:
            return [outcome(0)]

    class SameMoment:
        def now(self) -> datetime:
            return AT

    without_clients(World(), monkeypatch)
    monkeypatch.setattr("replicator.drill.Restore", NamedRestore)
    monkeypatch.setattr("replicator.drill.SystemClock", SameMoment)
    drill = OldestRecord(config=CONFIG, scratch=SCRATCH, selection=SELECTION)
    assert [drill.run(Stop()).at, drill.run(Stop()).at] == [AT, AT]
    assert ids[0] != ids[1]
    assert [name.startswith("drill-20260101000000-") for name in ids] == [True, True]


def test_the_metrics_of_a_drill_hold_the_time_of_its_end(tmp_path: Path) -> None:
    drilled = Drilled(
        region=REGION,
        at=AT,
        partitions=2,
        records=20,
        size_bytes=200,
        restore_seconds=40.0,
        verify_seconds=2.0,
        behind_seconds=7.0,
        behind_unknown="",
        bad=1,
        differences=["a/t/3: missing [5,6]"],
    )
    assert metrics_of(tmp_path / "drill.prom", drilled) == {
        "timestamp_seconds": AT.timestamp() + 42,
        "restore_seconds": 40,
        "behind_seconds": 7,
        "records": 20,
        "differences": 1,
    }
    unknown = metrics_of(tmp_path / "unknown.prom", replace(drilled, behind_seconds=None))
    assert "behind_seconds" not in unknown


def metrics_of(file: Path, drilled: Drilled) -> dict[str, float]:
    write_metrics(file, drilled)
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    named = [line.rsplit(" ", 1) for line in lines]
    return {name.partition("{")[0].removeprefix("replicator_drill_"): float(value) for name, value in named}
