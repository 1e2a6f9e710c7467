"""A log that was cut while a backfill read it, and brokers that do not say."""

from __future__ import annotations

import pytest

from infra.contracts.cluster import TopicPartition
from replicator.backfill.log_check import changed_log
from replicator.backfill.request import RangeOutcome
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.kafka_probe import BrokerProbe

P = TopicPartition("t", 0)


def outcome(last_offset: int | None, last_epoch: int | None) -> RangeOutcome:
    return RangeOutcome(source="a/t/0", start=0, end=9, last_offset=last_offset, last_epoch=last_epoch)


@pytest.fixture
def probe() -> BrokerProbe:
    broker = FakeBroker()
    broker.create("t")
    broker.append(P, *[b"x"] * 10)
    return BrokerProbe(broker)


def test_the_last_record_of_all_ranges_is_confirmed(probe: BrokerProbe) -> None:
    assert changed_log(probe, P, [outcome(9, 0), outcome(4, 0)]) == ""


def test_a_log_that_was_cut_is_named(probe: BrokerProbe) -> None:
    probe.broker.truncate(P, 7)
    assert "its log was cut while it was read" in changed_log(probe, P, [outcome(4, 0), outcome(9, 0)])


def test_no_answer_is_no_confirmation(probe: BrokerProbe) -> None:
    """The begin of the archive would be lowered over records of another log."""
    probe.silent.add(P)
    assert "give the same command again" in changed_log(probe, P, [outcome(9, 0)])


@pytest.mark.parametrize("outcomes", [[], [outcome(None, None)], [outcome(9, None)]])
def test_where_no_leader_epoch_is_known_nothing_can_be_asked(probe: BrokerProbe, outcomes: list[RangeOutcome]) -> None:
    probe.silent.add(P)
    assert changed_log(probe, P, outcomes) == ""
