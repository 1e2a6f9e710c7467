"""The two threads of a restore: what one of them raises ends both, and is raised."""

from __future__ import annotations

import pytest

from replicator.restore.worker import _run_in_parallel
from tests.fakes.kafka_target import Crashed
from tests.replicator.restore.restoring import Restoring, restorable


def test_a_failure_of_the_delivery_is_raised() -> None:
    world = restorable()
    world.put(0, 3)
    restoring = Restoring(world)
    restoring.restorer.turn()  # hands the only run to the delivery, whose thread reads it
    world.target.crash_next()
    with pytest.raises(Crashed):
        _run_in_parallel(restoring.delivery, restoring.restorer)
    assert restoring.stop.is_set(), "the other thread ended, too"
