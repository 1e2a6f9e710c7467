"""The state of a process: what stopped, and what an operator has to look at."""

from __future__ import annotations

from infra.runtime.health import Health


def test_nothing_said_of_a_partition_or_a_subject_is_that_all_is_well() -> None:
    health = Health()
    health.started(True)
    health.stopped("a/t/0", "why")
    health.problem("sync", "what")
    assert not health.snapshot().is_ready
    health.stopped("a/t/0", "")
    health.problem("sync", "")
    assert (health.snapshot().stopped, health.snapshot().problems) == ({}, {})
    assert health.snapshot().is_ready
