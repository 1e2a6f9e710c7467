"""Lineages by the ledger: read once for each topic, and never wrong while one is being created."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from egress.catalog.lineage import COMPLETED_WITHIN, Lineages
from formats.errors import BrokerUnavailable
from formats.messages.ledger import CreationIntent, OwnedTopic
from tests.fakes.kafka_ledger import FakeLedger

T0 = datetime(2026, 1, 1, tzinfo=UTC)
OWNED = OwnedTopic(name="a.t", topic_id="1", source="a/t", at=T0, lineage=("a", "z"))
INTENT = CreationIntent(name="a.t", at=T0)


def test_the_ledger_is_read_once_for_each_topic() -> None:
    ledger = FakeLedger()
    ledger.write([INTENT, OWNED])
    lineages = Lineages(ledger.read)
    for _ in range(3):
        assert lineages.of({("a.t", "1"), ("t", "2")}, T0) == {("a.t", "1"): ("a", "z"), ("t", "2"): ()}
    assert ledger.reads == 1
    assert lineages.of({("a.t", "9")}, T0 + timedelta(hours=1)) == {("a.t", "9"): ()}, "created anew by somebody else"
    assert ledger.reads == 2


def test_a_topic_that_is_being_created_waits_for_its_entry() -> None:
    ledger = FakeLedger()
    ledger.write([INTENT])
    lineages = Lineages(ledger.read)
    assert lineages.of({("a.t", "1")}, T0) == {}
    ledger.write([OWNED])
    assert lineages.of({("a.t", "1")}, T0) == {("a.t", "1"): ("a", "z")}


def test_an_intent_that_nothing_came_of_holds_up_a_topic_of_that_name_for_minutes() -> None:
    ledger = FakeLedger()
    ledger.write([INTENT])
    lineages = Lineages(ledger.read)
    assert lineages.of({("a.t", "1")}, T0 + COMPLETED_WITHIN) == {}
    assert lineages.of({("a.t", "1")}, T0 + COMPLETED_WITHIN + timedelta(seconds=1)) == {("a.t", "1"): ()}


def test_a_ledger_that_cannot_be_read_is_no_lineage() -> None:
    ledger = FakeLedger()
    ledger.away = True
    lineages = Lineages(ledger.read)
    with pytest.raises(BrokerUnavailable):
        lineages.of({("a.t", "1")}, T0)
    ledger.away = False
    ledger.write([OWNED])
    assert lineages.of({("a.t", "1")}, T0) == {("a.t", "1"): ("a", "z")}
