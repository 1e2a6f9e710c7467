"""Positions of groups after a restore to a moment: which there are, and what is set of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from formats.control.restore_cut import Cut, CutTopic
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.segment import SourcePartition
from infra.contracts.cluster import Committed, TopicPartition
from ingress.groups.sync_plan import SyncOutcome
from ingress.groups.translation import Exactness, Translation
from replicator.restore.group_plan import GroupPlan, RestoredTopics, group_plan
from replicator.restore.group_restore import GroupRestore
from tests.fakes.target_groups import MemoryGroups
from tests.replicator.restore.published import snapshot

T0 = datetime(2026, 3, 4, tzinfo=UTC)
CUT = Cut(
    region="us",
    wanted_at=T0,
    generation=1,
    observed_at=T0,
    settled_at=None,
    next_observed_at=None,
    is_transactional=False,
    topics={name: CutTopic(topic_id=f"id-{name}", ends=(9, 9), settled=frozenset()) for name in ("orders", "carts")},
)
KEYS = [CheckpointKey(SourcePartition("us", "orders", partition), "copy") for partition in (0, 1)]
RESTORED = RestoredTopics.of(CUT, KEYS)
FIRST, SECOND = TopicPartition("copy", 0), TopicPartition("copy", 1)
GROUPS: Mapping[str, Mapping[str, Mapping[int, int]]] = {
    "billing": {"orders": {0: 4, 1: 7}, "carts": {0: 1}},
    "mails": {"orders": {1: 12}},
    "carts-only": {"carts": {0: 3}},
}


@pytest.fixture
def groups() -> MemoryGroups:
    return MemoryGroups()


@pytest.fixture
def restore(groups: MemoryGroups) -> Iterator[GroupRestore]:
    with ThreadPoolExecutor(2) as pool:
        yield GroupRestore(groups=groups, writer=groups, pool=pool)


def planned() -> GroupPlan:
    return group_plan(3, snapshot(T0, **GROUPS), RESTORED)


def translate(key: CheckpointKey, sources: Sequence[int]) -> Sequence[Translation] | str:
    """The target has nine records of each, ten offsets further."""
    return [
        Translation(min(source, 9) + 10, Exactness.EXACT if source <= 9 else Exactness.CLAMPED) for source in sources
    ]


def test_groups_with_positions_in_what_is_restored() -> None:
    made = planned()
    assert (made.number, made.observed_at, made.partitions) == (3, T0, {"billing": 2, "mails": 1})
    assert made.snapshot.groups.keys() == {"billing", "mails"}


def test_positions_in_another_incarnation_are_not_those_of_this_one() -> None:
    other = replace(CUT, topics={"orders": replace(CUT.topics["orders"], topic_id="another")})
    assert group_plan(3, snapshot(T0, **GROUPS), RestoredTopics.of(other, KEYS)).partitions == {}
    unknown = replace(CUT, topics={"orders": replace(CUT.topics["orders"], topic_id="")})
    assert len(group_plan(3, snapshot(T0, **GROUPS), RestoredTopics.of(unknown, KEYS)).partitions) == 2


def test_each_is_set_on_the_record_and_at_most_at_the_end(restore: GroupRestore, groups: MemoryGroups) -> None:
    made = restore.set(planned(), RESTORED, translate, T0)
    assert {one.outcome for some in made.values() for one in some} == {SyncOutcome.WRITE}
    assert groups.offsets == {
        "billing": {FIRST: Committed(14, ""), SECOND: Committed(17, "")},
        "mails": {SECOND: Committed(19, "")},
    }
    again = restore.set(planned(), RESTORED, translate, T0)
    assert {one.outcome for some in again.values() for one in some} == {SyncOutcome.SAME}


def test_neither_active_groups_nor_those_that_went_on_are_touched(restore: GroupRestore, groups: MemoryGroups) -> None:
    groups.members["mails"] = 1
    groups.offsets["billing"] = {FIRST: Committed(15, ""), SECOND: Committed(3, "")}
    made = restore.set(planned(), RESTORED, translate, T0)
    assert [one.outcome for one in made["mails"]] == [SyncOutcome.ACTIVE]
    assert [one.outcome for one in made["billing"]] == [SyncOutcome.AHEAD, SyncOutcome.WRITE]
    assert groups.offsets["billing"] == {FIRST: Committed(15, ""), SECOND: Committed(17, "")}
