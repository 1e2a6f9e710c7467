"""What every CheckpointStore does."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from formats.errors import BrokerUnavailable, CheckpointConflict
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey
from formats.segment import SourcePartition
from infra.contracts.internal_topics import CheckpointStore

AT = datetime(2026, 3, 4, 5, 6, 7, 890123, tzinfo=UTC)


def key(partition: int, destination: str = "orders.copy") -> CheckpointKey:
    return CheckpointKey(SourcePartition("eu-1", "orders", partition), destination)


def checkpoint(next_offset: int) -> Checkpoint:
    return Checkpoint(next_offset, "topic-id", AT + timedelta(seconds=next_offset))


class CheckpointContract:
    """Every CheckpointStore passes these. Subclasses give the fixture `store`, an empty one, and write past it."""

    def put(self, key: CheckpointKey, checkpoint: Checkpoint | None) -> None:
        """Acknowledged when this returns. None removes."""
        raise NotImplementedError

    def away(self) -> AbstractContextManager[None]:
        """The cluster does not answer."""
        raise NotImplementedError

    def test_nothing_yet(self, store: CheckpointStore) -> None:
        assert store.read() == {}
        assert store.read() == {}

    def test_what_was_acknowledged_is_read(self, store: CheckpointStore) -> None:
        for n in range(20):
            self.put(key(n % 3), checkpoint(n))
            assert store.read()[key(n % 3)] == checkpoint(n)
        assert store.read() == {key(0): checkpoint(18), key(1): checkpoint(19), key(2): checkpoint(17)}

    def test_destinations_are_kept_apart(self, store: CheckpointStore) -> None:
        self.put(key(0, "a"), checkpoint(1))
        self.put(key(0, "b"), checkpoint(2))
        assert store.read() == {key(0, "a"): checkpoint(1), key(0, "b"): checkpoint(2)}

    def test_a_position_goes_back_by_a_seed_only(self, store: CheckpointStore) -> None:
        self.put(key(0), checkpoint(9))
        self.put(key(0), checkpoint(4))  # a latecomer
        assert store.read() == {key(0): checkpoint(9)}
        seed = replace(checkpoint(4), author=Author.SEED)
        self.put(key(0), seed)
        assert store.read() == {key(0): seed}

    def test_a_skip_takes_no_position_back(self, store: CheckpointStore) -> None:
        self.put(key(0), checkpoint(4))
        skip = replace(checkpoint(5), author=Author.SEED, given_at=4)
        self.put(key(0), skip)
        assert store.read() == {key(0): skip}
        self.put(key(0), checkpoint(9))
        self.put(key(0), skip)
        assert store.read() == {key(0): checkpoint(9)}

    def test_two_transactions_that_contradict_each_other(self, store: CheckpointStore) -> None:
        """Both are named; other partitions go on; a seed decides."""
        first, second = (replace(checkpoint(n), author=Author.EXACTLY_ONCE) for n in (9, 4))
        self.put(key(0), first)
        self.put(key(1), checkpoint(1))
        self.put(key(0), second)
        self.put(key(0), replace(checkpoint(20), author=Author.EXACTLY_ONCE))
        found = store.read()
        assert found[key(1)] == checkpoint(1)
        assert isinstance(found[key(0)], CheckpointConflict)
        assert "says 9 " in str(found[key(0)])
        assert "one 4 " in str(found[key(0)])
        seed = replace(checkpoint(4), author=Author.SEED)
        self.put(key(0), seed)
        assert store.read()[key(0)] == seed

    def test_removed(self, store: CheckpointStore) -> None:
        self.put(key(0), checkpoint(1))
        self.put(key(1), checkpoint(2))
        assert len(store.read()) == 2
        self.put(key(0), None)
        assert store.read() == {key(1): checkpoint(2)}

    def test_an_answer_does_not_change_afterwards(self, store: CheckpointStore) -> None:
        self.put(key(0), checkpoint(1))
        answer = store.read()
        self.put(key(0), checkpoint(2))
        store.read()
        assert answer == {key(0): checkpoint(1)}

    def test_no_answer_rather_than_a_part_of_one(self, store: CheckpointStore) -> None:
        self.put(key(0), checkpoint(1))
        store.read()
        self.put(key(0), checkpoint(2))
        with self.away(), pytest.raises(BrokerUnavailable):
            store.read()
        assert store.read() == {key(0): checkpoint(2)}
