"""What `replicator offsets translate --apply` leaves behind when the group comes into use in that moment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from formats.messages.ledger import GroupHold
from infra.contracts.cluster import Committed, TopicPartition
from infra.contracts.groups import GroupIsActive
from ingress.groups.translation import Exactness
from replicator import offsets
from replicator.offsets import TranslatedOffset, TranslatedOffsets
from tests.fakes.kafka_ledger import FakeLedger
from tests.fakes.surroundings import T0
from tests.fakes.target_groups import MemoryGroups

HERE, OTHER = TopicPartition("us.orders", 0), TopicPartition("us.clicks", 0)


class Held:
    """A group at 9 in two topics, which an operator moves, back to 5 if nothing else is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups, self.ledger = MemoryGroups(), FakeLedger()
        self.groups.offsets["billing"] = {HERE: Committed(9, ""), OTHER: Committed(9, "")}
        monkeypatch.setattr(offsets, "KafkaGroupCommits", lambda _: self.groups)
        monkeypatch.setattr(offsets, "ledger_in", lambda *_, **__: self.ledger)

    def commit(self, offset: int = 5, *, rewind: bool = True) -> None:
        config = SimpleNamespace(cluster=SimpleNamespace(properties=lambda _: {}))
        clients: Any = SimpleNamespace(config=config, groups=self.groups)
        nothing: Any = None
        translated = TranslatedOffsets(clients=clients, region="us", routes={}, lookup=nothing, topic_ids=nothing)
        some = [
            TranslatedOffset(
                source=f"us/{one.topic}/0",
                target=one,
                source_offset=105,
                target_offset=offset,
                exactness=Exactness.EXACT,
            )
            for one in (HERE, OTHER)
        ]
        translated.commit("billing", some, rewind=rewind, hold=rewind)

    @property
    def topics(self) -> set[str]:
        return {topic for _, topic in self.ledger.read().held}


def test_a_group_that_is_moved_back_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Held(monkeypatch)
    world.commit()
    assert world.groups.offsets["billing"] == {HERE: Committed(5, ""), OTHER: Committed(5, "")}
    assert world.topics == {HERE.topic, OTHER.topic}


def test_a_group_that_was_not_moved_since_it_has_members_is_held_only_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would not be synchronised any more, and a failover would leave it where it stands."""
    world = Held(monkeypatch)
    world.ledger.write([GroupHold(group="billing", topic=OTHER.topic, is_held=True, at=T0)])
    world.groups.before_commit = lambda: world.groups.members.update(billing=1)
    with pytest.raises(GroupIsActive):
        world.commit()
    assert world.groups.offsets["billing"] == {HERE: Committed(9, ""), OTHER: Committed(9, "")}
    assert world.topics == {OTHER.topic}


def test_a_group_that_was_used_since_it_was_read_is_not_moved_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its consumer has ended by the time of the commit, which Kafka takes then; to open the ledger takes a while."""
    world = Held(monkeypatch)

    def ledger(*_: object, **__: object) -> FakeLedger:
        world.groups.offsets["billing"][HERE] = Committed(20, "")
        return world.ledger

    monkeypatch.setattr(offsets, "ledger_in", ledger)
    with pytest.raises(GroupIsActive):
        world.commit(10, rewind=False)
    assert world.groups.offsets["billing"] == {HERE: Committed(20, ""), OTHER: Committed(9, "")}
