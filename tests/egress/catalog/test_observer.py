"""What the source cluster has, where topics change while they are asked for: a removal is recorded then, or never."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

import pytest

from egress.catalog.lineage import Lineages
from egress.catalog.observer import CatalogObserver, SelectedTopics
from formats.messages.ledger import CreationIntent, Ownership
from formats.policies.topic_configs import CREATED_WITH
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_catalog import FakeCatalogAdmin
from tests.fakes.kafka_consumer import FakeBroker

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def broker() -> FakeBroker:
    found = FakeBroker()
    for name in ("stays", "goes", "deselected"):
        found.create(name, partitions=1)
    return found


def test_a_topic_that_is_deleted_after_it_was_listed_was_removed(broker: FakeBroker) -> None:
    admin = FakeAdmin(broker)
    every = SelectedTopics(admin, FakeCatalogAdmin(admin), select=lambda names: names)
    before = CatalogObserver(every, Lineages(Ownership), "w").observe(None, NOW)

    def select(names: Collection[str]) -> Collection[str]:
        broker.delete("goes")
        return [name for name in names if name != "deselected"]

    topics = SelectedTopics(admin, FakeCatalogAdmin(admin), select=select)
    found = CatalogObserver(topics, Lineages(Ownership), "w").observe(before, NOW)
    assert (set(found.topics), set(found.removed_names)) == ({"stays"}, {"goes"})


def test_the_topic_before_one_that_waits_for_its_ledger_entry_was_removed(broker: FakeBroker) -> None:
    admin = FakeAdmin(broker)
    catalog_admin, ledger = FakeCatalogAdmin(admin), Ownership()
    topics = SelectedTopics(admin, catalog_admin, select=lambda names: names)
    observer = CatalogObserver(topics, Lineages(lambda: ledger), "w")
    before = observer.observe(None, NOW)
    broker.delete("goes")
    broker.create("goes", partitions=1)
    catalog_admin.configs["goes"] = dict(CREATED_WITH)
    ledger = Ownership(intents={"goes": CreationIntent(name="goes", at=NOW)})
    found = observer.observe(before, NOW)
    assert "goes" not in found.topics
    assert [(one.name, one.topic_id) for one in found.removed] == [("goes", before.topics["goes"].topic_id)]
