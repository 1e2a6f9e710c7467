"""One of several processes: with which settings it begins."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from infra.runtime.lifecycle import Stop
from infra.runtime.threaded_service import ThreadedService
from replicator.config import Config, from_mapping
from replicator.services import ingress
from replicator.services.flow_task import FlowTask, SentConfig


def config(**source: Any) -> Config:
    return from_mapping(
        {
            "region": "us",
            "kafka": {"bootstrap.servers": "k:1"},
            "s3": {"bucket": "b"},
            "sqs": {"queue": "q"},
            "ingress": {
                "processes": 2,
                "sources": [{"region": "eu", "topic": "customers", "destination_topic": "eu.customers", **source}],
            },
        }
    )


def test_one_that_begins_after_a_change_begins_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it delivers for seconds what is excluded since, or what is to be masked."""
    begun: list[tuple[Config, Config]] = []

    def recorded(running: Config, *, around: Any, file: SentConfig) -> ThreadedService:
        begun.append((running, file.parse(file.read())))
        return ThreadedService({}, Stop(), around.resources, timedelta())

    monkeypatch.setattr(ingress, "build_ingress", recorded)
    task = FlowTask(flow="ingress", config=config(), instance_base="")
    for settings in (None, task.changed(config(exclude=["customers"]))):
        task.build(0, settings)
    excluded = [[source.exclude for source in one.ingress.sources] for pair in begun for one in pair if one.ingress]
    assert [bool(found[0]) for found in excluded] == [False, False, True, True]
