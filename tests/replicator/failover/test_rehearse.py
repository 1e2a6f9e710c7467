"""What a rehearsal may delete: topics that a rehearsal made, and no destination."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from formats.errors import TargetError
from formats.messages.ledger import CreationIntent, OwnedTopic
from infra.runtime.lifecycle import Stop
from replicator.failover.rehearse import Rehearsal
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.kafka_ledger import FakeLedger
from tests.fakes.surroundings import HandClock


def test_a_destination_whose_name_begins_with_the_prefix_is_no_topic_of_a_rehearsal() -> None:
    """`orders` of one region and `us.orders` of another, with `--prefix us.`: both are ours by the ledger."""
    broker, ledger, clock = FakeBroker(), FakeLedger(), HandClock()
    broker.create("us.orders", partitions=1)
    admin = FakeAdmin(broker, ids={"us.orders": "id"})
    owned = OwnedTopic(name="us.orders", topic_id="id", source="us/orders", at=clock.at)
    ledger.write([CreationIntent(name="us.orders", at=clock.at), owned])
    sources: Any = SimpleNamespace(clients=SimpleNamespace(admin=admin))
    rehearsal = Rehearsal(sources=sources, ledger=ledger, clock=clock, stop=Stop(), prefix="us.")
    with pytest.raises(TargetError, match=r"us\.orders exists and was not made by a rehearsal"):
        rehearsal._removed({"orders": 1})
    assert "us.orders" in admin.topics()
