"""Probes of notifications: sent, answered and removed, ended before and after each step."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from formats.control.keys import is_of_one_bucket, seen_probe_key, sent_probe_key
from infra.archive.notification_probes import LEFT_BEHIND, NotificationProbes
from infra.runtime.crash_points import Step
from infra.storage.memory_and_folder import MemoryObjectStore
from tests.fakes.surroundings import HandClock
from tests.ingress.catalog.test_killed_applier import dies_at

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = (Step.SEND_PROBE, Step.ANSWER_PROBE, Step.REMOVE_PROBE)
SENT, SEEN = sent_probe_key("data", "there", "id"), seen_probe_key("data", "here", "id")


class Bench:
    def __init__(self) -> None:
        self.clock = HandClock(NOW)
        self.objects = MemoryObjectStore(now=self.clock.now)
        self.probes = NotificationProbes(self.objects, "data", "here")

    def keys(self) -> set[str]:
        return {info.key for info in self.objects.list("")}

    def whole(self) -> None:
        self.probes.send("there", "id")
        self.probes.answer("id")
        self.probes.remove("there", "id", self.clock.now())


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_probe_lies_below_the_source_and_its_answer_below_the_own_region(bench: Bench) -> None:
    bench.probes.send("there", "id")
    assert bench.keys() == {SENT}
    assert not bench.probes.is_answered("id")
    for _ in range(2):
        bench.probes.answer("id")
    assert bench.keys() == {SENT, SEEN}
    assert bench.probes.is_answered("id")
    assert not bench.probes.is_answered("another")
    bench.probes.remove("there", "id", bench.clock.now())
    assert bench.keys() == set()


def test_copies_of_a_bucket_do_not_have_them() -> None:
    assert all(is_of_one_bucket(key.removeprefix("data/")) for key in (SENT, SEEN))


def test_those_of_others_stay_while_a_doctor_may_wait_for_them(bench: Bench) -> None:
    bench.probes.send("there", "other")
    bench.probes.send("elsewhere", "id")
    bench.clock.advance(LEFT_BEHIND.total_seconds())
    bench.probes.remove("there", "id", bench.clock.now())
    assert len(bench.keys()) == 2
    bench.clock.advance(1)
    bench.probes.remove("there", "id", bench.clock.now())
    assert bench.keys() == {sent_probe_key("data", "elsewhere", "id")}


@pytest.mark.parametrize("number", range(2 * len(STEPS)))
def test_ended_at_any_step_the_next_run_removes_what_is_left(bench: Bench, number: int) -> None:
    with dies_at(number) as deaths:
        bench.whole()
    assert len(deaths) == 1
    bench.clock.advance((LEFT_BEHIND + timedelta(seconds=1)).total_seconds())
    bench.probes.send("there", "next")
    bench.probes.remove("there", "next", bench.clock.now())
    assert bench.keys() == set()
