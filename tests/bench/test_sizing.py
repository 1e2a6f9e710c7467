"""The arithmetic of sizing against the real rules: segments are counted by playing `EgressPartition`, no clock."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bench.deployment import Deployment
from bench.sizing import main
from egress.partition import EgressPartition, Seal, SealPolicy
from egress.settings import EgressTopicSettings

ROOT = Path(__file__).resolve().parents[2]
START = datetime(2026, 1, 1, tzinfo=UTC)


def seals(deployment: Deployment, seconds: float) -> int:
    """Segments that the core seals of the one partition, whose records arrive at random."""
    rule = deployment.topic_settings
    policy = SealPolicy(
        max_messages=rule.max_segment_messages, max_bytes=rule.max_segment_size, max_age=rule.max_segment_age
    )
    core, chance = EgressPartition(policy, next_offset=0), random.Random(1)
    core.begin()
    core.started(core.epoch)
    now, end, count, offset = START, START + timedelta(seconds=seconds), 0, 0
    while now < end:
        now += timedelta(seconds=chance.expovariate(deployment.records_per_second))
        effects = []
        while core.deadline is not None and core.deadline <= now:
            effects += core.tick(core.deadline)
            for seal in [one for one in effects if isinstance(one, Seal)]:
                core.stored(seal.offsets)
                count += 1
            effects = []
        for effect in core.consumed(offset, offset, 1, deployment.record_bytes, now):
            if isinstance(effect, Seal):
                core.stored(effect.offsets)
                count += 1
        offset += 1
    return count


@pytest.mark.parametrize(
    ("records_per_second", "rule"),
    [
        (0.002, EgressTopicSettings()),  # rarer than the age
        (0.02, EgressTopicSettings()),
        (5.0, EgressTopicSettings(max_segment_age=timedelta(seconds=1))),
        (50.0, EgressTopicSettings(max_segment_messages=500)),
        (50.0, EgressTopicSettings(max_segment_size=200_000)),
    ],
)
def test_segments_are_sealed_as_often_as_computed(records_per_second: float, rule: EgressTopicSettings) -> None:
    deployment = Deployment(
        partitions=1, topics=1, bytes_per_second=records_per_second * 1_000, record_bytes=1_000, topic_settings=rule
    )
    seconds = 400 / deployment.segments_per_second  # about so many segments
    assert seals(deployment, seconds) == pytest.approx(deployment.segments_per_second * seconds, rel=0.12)


def test_rates_add_up_with_any_skew() -> None:
    for skew in (0.0, 0.7, 1.3):
        deployment = Deployment(partitions=500, topics=7, bytes_per_second=1e6, skew=skew)
        assert sum(deployment.rates) == pytest.approx(1e6)
        assert deployment.rates == sorted(deployment.rates, reverse=True)


def test_large_segments_are_uploaded_in_parts() -> None:
    whole = Deployment(partitions=1, topics=1, bytes_per_second=50e6)
    assert whole.puts_per_second > 3 * whole.segments_per_second  # 25 MiB stored: two parts, begin and complete
    small = replace(whole, topic_settings=EgressTopicSettings(max_segment_size=1_000_000))
    assert small.puts_per_second == pytest.approx(small.segments_per_second)


def test_a_group_breaks_by_topics_and_members_and_by_partitions() -> None:
    few = Deployment(partitions=20_000, topics=20, processes=2)
    many = Deployment(partitions=100_000, topics=5_000, processes=40)
    for name in ("record of a classic group, bytes", "write of a KIP-848 group, bytes"):
        (used, limit, _), (many_used, _, remedy) = few.loads()[name], many.loads()[name]
        assert used < limit < many_used
        assert "__consumer_offsets" in remedy


@pytest.mark.parametrize("wrong", [{"topics": 0}, {"topics": 2_000}, {"record_bytes": 0}, {"skew": -1.0}])
def test_impossible_deployments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"topic|positive"):
        Deployment(**wrong)


def test_the_page_shows_what_the_script_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    found = re.search(r"python -m bench\.sizing (?P<options>[^\n]+)\n```\n\n(?P<output>\| .*?)\n\n##", page, re.S)
    assert found is not None
    main(found["options"].split())
    assert capsys.readouterr().out.strip() == found["output"].strip()
