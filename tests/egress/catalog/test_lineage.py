"""Lineages by the ledger: read once for each topic, and never wrong while one is being created."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from egress.catalog.lineage import Configs, Lineages
from egress.catalog.observer import CatalogObserver, SelectedTopics
from formats.errors import BrokerUnavailable, TargetError
from formats.messages.ledger import COMPLETED_WITHIN, CreationIntent, OwnedTopic, Ownership
from formats.policies.topic_configs import CREATED_WITH, ConfigSource, ConfigValue
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_catalog import FakeCatalogAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.kafka_ledger import FakeLedger

T0 = datetime(2026, 1, 1, tzinfo=UTC)
OWNED = OwnedTopic(name="a.t", topic_id="1", source="a/t", at=T0, lineage=("a", "z"))
INTENT = CreationIntent(name="a.t", at=T0)
OURS = {name: ConfigValue(value, ConfigSource.TOPIC) for name, value in CREATED_WITH.items()}


def test_the_ledger_is_read_once_for_each_topic() -> None:
    ledger = FakeLedger()
    ledger.write([INTENT, OWNED])
    lineages = Lineages(ledger.read)
    for _ in range(3):
        assert lineages.of({("a.t", "1"): {}, ("t", "2"): {}}, T0) == {("a.t", "1"): ("a", "z"), ("t", "2"): ()}
    assert ledger.reads == 1
    assert lineages.of({("a.t", "9"): {}}, T0 + timedelta(hours=1)) == {("a.t", "9"): ()}, (
        "created anew by somebody else"
    )
    assert ledger.reads == 2


@pytest.mark.parametrize("configs", [OURS, None], ids=["ours", "not known"])
def test_a_topic_whose_creation_is_unfinished_waits_for_its_entry(configs: Configs) -> None:
    ledger = FakeLedger()
    ledger.write([INTENT])
    lineages = Lineages(ledger.read)
    assert lineages.of({("a.t", "1"): configs}, T0) == {}
    assert lineages.of({("a.t", "1"): configs}, T0 + timedelta(hours=23)) == {}, "its creator died, and is still away"
    ledger.write([OWNED])
    assert lineages.of({("a.t", "1"): configs}, T0) == {("a.t", "1"): ("a", "z")}
    assert lineages.of({("a.t", "2"): configs}, T0) == {("a.t", "2"): ()}, "created anew by somebody else"


@pytest.mark.parametrize(("configs", "after"), [({}, timedelta()), (OURS, COMPLETED_WITHIN)])
def test_an_intent_that_nothing_came_of_holds_up_no_topic_of_that_name(configs: Configs, after: timedelta) -> None:
    ledger = FakeLedger()
    ledger.write([INTENT])
    assert Lineages(ledger.read).of({("a.t", "1"): configs}, T0 + after) == {("a.t", "1"): ()}


def test_a_ledger_that_cannot_be_read_is_no_lineage() -> None:
    ledger = FakeLedger()
    ledger.away = True
    lineages = Lineages(ledger.read)
    with pytest.raises(BrokerUnavailable):
        lineages.of({("a.t", "1"): {}}, T0)
    ledger.away = False
    ledger.write([OWNED])
    assert lineages.of({("a.t", "1"): {}}, T0) == {("a.t", "1"): ("a", "z")}


def test_a_ledger_that_cannot_be_read_makes_no_copy_an_original() -> None:
    broker = FakeBroker()
    admin = FakeAdmin(broker, ids={"t": "id-t", "u": "id-u"})
    broker.create("t", partitions=1)
    owned = OwnedTopic(name="t", topic_id="id-t", source="b/t", at=T0, lineage=("b", "c"))
    topics = SelectedTopics(admin, FakeCatalogAdmin(admin), select=lambda names: names)

    def refused() -> Ownership:
        raise TargetError("no READ on the ledger")

    before = CatalogObserver(topics, Lineages(lambda: Ownership(topics={("t", "id-t"): owned})), "w").observe(None, T0)
    broker.create("u", partitions=1)
    found = CatalogObserver(topics, Lineages(refused), "w").observe(before, T0)
    assert {name: one.lineage for name, one in found.topics.items()} == {"t": ("b", "c"), "u": ()}
    assert "no READ on the ledger" in found.problems["lineage"]
    admin.cluster = "another"
    assert not CatalogObserver(topics, Lineages(refused), "w").observe(before, T0).topics["t"].lineage
