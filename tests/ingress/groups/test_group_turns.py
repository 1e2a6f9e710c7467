"""The turns of the groups' rounds: when they run, and what metrics and health say of them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from formats.messages.map_key import MapKey
from infra.contracts.internal_topics import PartitionPages
from infra.runtime.failures import ALARM
from infra.runtime.health import Health
from infra.settings.current import Current
from ingress.groups.groups import Groups
from ingress.groups.round import GroupRound
from ingress.groups.settings import GroupSettings
from tests.fakes.executors import HandExecutor
from tests.fakes.surroundings import CountedMetrics
from tests.ingress.groups.regions import REGIONS, Regions, checkpoints

SECONDS = GroupSettings().interval.total_seconds()


@dataclass
class Turns:
    """Of one process."""

    world: Regions = field(default_factory=Regions)
    adopt: bool = False
    kept: Collection[str] = tuple(f"{region}.orders" for region in REGIONS)
    metrics: CountedMetrics = field(default_factory=CountedMetrics)
    health: Health = field(default_factory=Health)

    def __post_init__(self) -> None:
        self.groups = self._made(self.world.process(adopt=self.adopt))

    def _made(self, process: GroupRound | None) -> Groups:
        return Groups(
            settings=Current(self.world.settings),
            groups=GroupSettings(sync=True),
            round=process,
            pool=HandExecutor(),
            metrics=self.metrics,
            health=self.health,
        )

    def take_over(self, *, adopt: bool) -> None:
        """The process starts again with another setting."""
        self.groups = self._made(self.world.process(adopt=adopt))

    def poll(self, seconds: float = SECONDS) -> None:
        """So much later; once more, since an answer is taken in by the next turn."""
        self.world.clock.advance(seconds)
        for _ in range(2):
            self.groups.poll(self.world.table, lambda: self.kept, self.world.positions, self.world.clock.now())

    @property
    def problems(self) -> Mapping[str, str]:
        return self.health.snapshot().problems


@pytest.fixture
def turns() -> Iterator[Turns]:
    made = Turns()
    yield made
    made.world.close()


def test_a_round_is_measured(turns: Turns) -> None:
    turns.world.publish("us", billing=107, ahead=130)
    turns.poll(20)
    metrics = turns.metrics
    assert metrics.value("group_snapshot_age_seconds", region="us") == 20
    assert metrics.value("group_checkpoint_latency_seconds", region="us") == 20
    assert metrics.by_label("group_checkpoints", region="us") == 2
    assert metrics.value("group_positions", region="us", exactness="exact") == 1
    assert metrics.value("group_positions", region="us", exactness="clamped") == 1
    assert metrics.value("group_positions", region="us", exactness="unknown") == 0
    assert metrics.value("group_offsets", region="us", outcome="write") == 2
    assert metrics.value("group_snapshot_age_seconds", region="ap") == 0, "at least: none has arrived"
    assert metrics.value("group_positions", region="ap", exactness="exact") is None, "not known"
    assert turns.problems == {}


def test_a_snapshot_that_never_arrives_has_an_age(turns: Turns) -> None:
    """Since the first round: a series that is absent raises no alert."""
    turns.poll(20)
    assert turns.metrics.value("group_snapshot_age_seconds", region="us") == 0
    turns.poll(600)
    assert turns.metrics.value("group_snapshot_age_seconds", region="us") == 600
    turns.world.publish("us", billing=107)
    turns.poll()
    assert turns.metrics.value("group_snapshot_age_seconds", region="us") == SECONDS
    assert turns.metrics.value("group_snapshot_age_seconds", region="ap") == 600 + SECONDS
    turns.kept = ("us.orders",)
    turns.poll()
    assert turns.metrics.value("group_snapshot_age_seconds", region="ap") is None, "another process has it"


def test_a_snapshot_that_cannot_be_read_is_a_problem(turns: Turns) -> None:
    turns.world.damage("us")
    turns.poll()
    assert list(turns.problems) == ["groups of us"]
    assert "the newest snapshot of consumer groups of us cannot be read" in turns.problems["groups of us"]
    assert turns.metrics.value("group_snapshot_age_seconds", region="us") == 0
    turns.world.publish("us", billing=107)
    turns.poll()
    assert turns.problems == {}
    turns.world.damage("us")
    turns.poll()
    assert "the last good one stays in force" in turns.problems["groups of us"]
    assert turns.metrics.value("group_snapshot_age_seconds", region="us") == 2 * SECONDS


def test_the_latency_is_that_of_the_last_checkpoint(turns: Turns) -> None:
    turns.world.publish("us", billing=107)
    turns.poll(20)
    turns.poll()
    assert turns.metrics.value("group_checkpoint_latency_seconds", region="us") == 20
    assert turns.metrics.value("group_snapshot_age_seconds", region="us") == 20 + SECONDS
    assert turns.metrics.value("group_offsets", region="us", outcome="same") == 1
    assert turns.metrics.value("group_offsets", region="us", outcome="write") == 0


def test_rounds_follow_each_other_at_the_interval(turns: Turns) -> None:
    turns.world.publish("us", billing=107)
    turns.poll(0)
    turns.world.publish("us", billing=110)
    turns.poll(SECONDS - 1)
    assert turns.world.checkpoints("us")["billing"] == (107, 7, "note")
    turns.poll(1)
    assert turns.world.checkpoints("us")["billing"] == (110, 10, "note")


def test_only_for_regions_whose_first_partition_is_here(turns: Turns) -> None:
    for region in REGIONS:
        turns.world.publish(region, billing=107)
    turns.kept = ("ap.orders",)
    turns.poll()
    assert (bool(turns.world.checkpoints("ap")), bool(turns.world.checkpoints("us"))) == (True, False)


def test_a_region_that_another_process_has_is_forgotten(turns: Turns) -> None:
    turns.world.foreign(checkpoints("us"))
    turns.world.publish("us", billing=107)
    turns.poll()
    assert list(turns.problems) == ["groups of us"]
    turns.kept = ("ap.orders",)
    turns.poll()
    assert turns.problems == {}
    assert not [one for one in turns.metrics.gauges if ("region", "us") in one[1]]


def test_a_problem_is_named_logged_once_and_solved(turns: Turns, caplog: pytest.LogCaptureFixture) -> None:
    turns.world.foreign(checkpoints("us"))
    turns.world.publish("us", billing=107)
    with caplog.at_level(logging.WARNING):
        turns.poll()
        turns.poll()
    assert "groups.adopt = true" in turns.problems["groups of us"]
    assert [one.message for one in caplog.records] == ["groups_not_written"]
    turns.take_over(adopt=True)
    turns.poll()
    assert turns.world.checkpoints("us") == {"billing": (107, 7, "note")}


def test_a_lasting_failure_is_an_alarm_until_it_ends(turns: Turns) -> None:
    turns.world.publish("us", billing=107)
    turns.world.offset_map.away = True
    turns.poll()
    assert turns.problems == {}
    turns.poll(ALARM.total_seconds())
    assert "to translate the offsets of consumer groups" in turns.problems["groups"]
    turns.world.offset_map.away = False
    turns.poll()
    assert turns.problems == {}
    assert turns.world.checkpoints("us") == {"billing": (107, 7, "note")}


def test_a_full_disk_does_not_end_the_process(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> Mapping[MapKey, PartitionPages]:
        raise OSError("no space left")

    turns.world.publish("us", billing=107)
    monkeypatch.setattr(turns.world.offset_map, "read", full)
    turns.poll()
    turns.poll(ALARM.total_seconds())
    assert "no space left" in turns.problems["groups"]


def test_without_checkpoints_nothing_runs(turns: Turns) -> None:
    turns.world.publish("us", billing=107)
    turns.groups.round = None
    turns.poll()
    assert (turns.problems, turns.metrics.gauges, dict(turns.world.records.records)) == ({}, {}, {})
