"""What a command's parts ask of its cluster, each of them once."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from formats.errors import BrokerUnavailable
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.segment import SourcePartition
from infra.contracts.internal_topics import CheckpointStore
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.config.load import parse
from replicator.services.clients import CheckpointsOnceThere, Clients
from replicator.services.ingress_status import ingress_sources
from replicator.services.routing import routed
from tests.fakes.cluster_facts import FakeGroups
from tests.fakes.executors import HandExecutor
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.kafka_target import FakeTarget

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = """
region = "b"
[kafka]
"bootstrap.servers" = "one:9092"
[s3]
bucket = "archive"
[sqs]
queue = "q"
[ingress]
[[ingress.sources]]
region = "a"
topic = "^.*"
"""


def test_the_cluster_is_asked_for_its_id_once_for_all_that_a_command_prints() -> None:
    admin = FakeAdmin(FakeBroker())
    with Clients(parse(CONFIG), with_logs=False) as reach:
        vars(reach).update(
            admin=admin,
            groups=FakeGroups(),
            objects=MemoryObjectStore(),
            checkpoints=FakeTarget().checkpoint_store(),
        )
        found = ingress_sources(reach, routed(reach))
        assert found.read(NOW, HandExecutor()).partitions == ()
        assert found.cluster_id == reach.cluster_id == "cluster"
        assert admin.asked["cluster_id"] == 1


def test_an_id_that_could_not_be_asked_for_is_asked_for_again() -> None:
    admin = FakeAdmin(FakeBroker(), away=True)
    with Clients(parse(CONFIG), with_logs=False) as reach:
        vars(reach).update(admin=admin)
        with pytest.raises(BrokerUnavailable):
            _ = reach.cluster_id
        admin.away = False
        assert reach.cluster_id == "cluster"


def test_checkpoints_of_a_topic_that_does_not_exist_yet_are_read_once_it_does() -> None:
    """A command that reads again and again, such as `top`, may be older than the topic."""
    target = FakeTarget()
    made: list[CheckpointStore | None] = []

    def open_store() -> CheckpointStore | None:
        made.append(target.checkpoint_store() if made else None)
        return made[-1]

    store = CheckpointsOnceThere(open_store)
    assert store.read() == {}
    assert (store.parked(), store.skipped(), store.waiting(), store.claims()) == ({}, (), {}, ())
    checkpoint = Checkpoint(7, "id", NOW)
    target.put_checkpoint(CheckpointKey(SourcePartition("a", "orders", 0), "orders"), checkpoint)
    assert list(store.read().values()) == list(store.read().values()) == [checkpoint]
    assert len(made) == 2
