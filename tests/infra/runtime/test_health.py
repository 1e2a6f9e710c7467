"""The state of a process: stopped subjects, and problems for an operator."""

from __future__ import annotations

from infra.runtime.health import Health


def test_an_empty_reason_or_text_removes_a_subject() -> None:
    health = Health()
    health.started(True)
    health.stopped("a/t/0", "why")
    health.problem("sync", "what")
    assert not health.snapshot().is_ready
    health.stopped("a/t/0", "")
    health.problem("sync", "")
    assert (health.snapshot().stopped, health.snapshot().problems) == ({}, {})
    assert health.snapshot().is_ready
