"""What the processes of one service have of their own."""

from __future__ import annotations

from typing import Any

import pytest

from infra.runtime.workers.processes import WorkerProcesses
from replicator.config import parse
from replicator.services import processes
from replicator.services.flow_task import INSTANCE

CONFIG = """
region = "a"
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
{consumer}
[s3]
bucket = "b"
[egress]
[egress.topics.t]
"""


def members(monkeypatch: pytest.MonkeyPatch, consumer: str = "") -> list[str | None]:
    """`group.instance.id` of each of three processes."""
    given: dict[str, Any] = {}

    def recorded(**parts: Any) -> WorkerProcesses:
        given.update(parts)
        return WorkerProcesses(**parts)

    monkeypatch.setattr(processes, "WorkerProcesses", recorded)
    processes.build_processes(parse(CONFIG.format(consumer=consumer)), "egress", processes=3)
    given["parts"].resources.close()
    assert given["count"] == 3
    configs = [given["builder"].config_of(number) for number in range(3)]
    assert all(config.metrics.listen is None for config in configs), "the parent serves for all"
    return [config.cluster.properties("consumer").get(INSTANCE) for config in configs]


def test_a_configured_instance_is_the_beginning_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = f'[kafka.consumer]\n"{INSTANCE}" = "site-7"'
    assert members(monkeypatch, consumer) == ["site-7-0", "site-7-1", "site-7-2"]


def test_without_one_members_are_dynamic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of other machines have the same numbers."""
    assert members(monkeypatch) == [None, None, None]
