"""Random schedules of faults over real processes. A seed that failed is played again by `make soak SEEDS=n-n`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.crash_points import WAYS, made
from tests.faults.schedule import membership, schedule
from tests.faults.soak import Soak

if TYPE_CHECKING:
    from infra.local.process import Supervisor
    from tests.faults.place import Place

SAMPLE = range(2)
MORE = range(5, 35)


def test_a_seed_says_everything() -> None:
    steps = list(WAYS)
    assert schedule(7, steps) == schedule(7, steps)
    assert schedule(7, steps) != schedule(8, steps)
    assert membership(5) == membership(9)


@pytest.mark.integration
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(SAMPLE, id="sample"),
        pytest.param(MORE, id="thirty", marks=pytest.mark.long),
    ],
)
def test_schedules(fault_place: Place, supervisor: Supervisor, seeds: range) -> None:
    soak = Soak(fault_place, supervisor, steps=sorted(made()))
    soak.run(seeds)
    print(soak.outcome)
    assert soak.outcome.failures == {}
    assert soak.outcome.tally.honest, f"most faults met nothing: {soak.outcome.tally}"
