"""What becomes of records whose timestamps the target would not store as they are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.kafka.producer.timestamps import TargetTimestamps
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.surroundings import HandClock
from tests.ingress.world import STAMP, records


def rule(**configs: str) -> TargetTimestamps:
    admin = FakeAdmin(FakeBroker())
    admin.settings["copy"] = {name.replace("_", "."): value for name, value in configs.items()}
    admin.broker.create("copy")
    return TargetTimestamps(admin, HandClock())


def test_timestamp_0_is_refused_with_the_one_remedy() -> None:
    checked = rule().check("copy", [records([7], stamp=STAMP), records([8, 9], stamp=0)], clamp=False)
    assert not checked.batches
    assert checked.refused.startswith(
        "source offset 8 has timestamp 0 (1970-01-01T00:00:00.000+00:00), which the Kafka"
    )
    assert "1 more" in checked.refused
    assert checked.refused.endswith("Set on_timestamp = 'clamp' for this source, which makes it 1")


@pytest.mark.parametrize("stamp", [0, 1])
def test_the_remedy_is_that_of_the_command(stamp: int) -> None:
    restoring = rule(message_timestamp_before_max_ms="1000")
    restoring.remedy = "start again with --accept"
    refused = restoring.check("copy", [records([8], stamp=stamp)], clamp=False).refused
    assert ("Start" if stamp == 0 else "or start") + " again with --accept" in refused
    assert "on_timestamp" not in refused


def test_what_the_topic_rejects_is_refused_with_both_remedies() -> None:
    checked = rule(message_timestamp_before_max_ms="1000").check("copy", [records([8], stamp=1)], clamp=False)
    assert "Raise copy's message.timestamp.before.max.ms" in checked.refused
    assert "on_timestamp = 'clamp'" in checked.refused


def test_a_topic_with_times_of_its_own_takes_any() -> None:
    batches = [records([8], stamp=0)]
    checked = rule(message_timestamp_type="LogAppendTime").check("copy", batches, clamp=False)
    assert (checked.batches, checked.refused) == (batches, "")


@settings(deadline=None)
@given(st.lists(st.sampled_from([0, 1, STAMP]), min_size=1))
def test_no_timestamp_is_changed_without_being_counted(stamps: list[int]) -> None:
    batches = [records([number], stamp=stamp) for number, stamp in enumerate(stamps)]
    checked = rule().check("copy", batches, clamp=True)
    after = [batch.column("timestamp").view("int64")[0].as_py() for batch in checked.batches]
    assert after == [stamp or 1 for stamp in stamps]
    assert checked.altered == stamps.count(0)
    assert not checked.refused
