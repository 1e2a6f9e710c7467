"""What every GroupReader does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest

from formats.control.group_snapshot import CLASSIC, CONSUMER
from infra.contracts.cluster import Committed, TopicPartition
from infra.contracts.groups import GroupReader
from infra.local.waiting import wait_until

PATIENCE = timedelta(seconds=60)


class GroupReaderContract:
    """Every GroupReader passes these. Subclasses give the fixtures `reader`, `group_id`, of no group yet, and
    `partitions`: two of one topic."""

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Without being a member."""
        raise NotImplementedError

    def member(self, group_id: str, kind: str, partition: TopicPartition) -> AbstractContextManager[None]:
        """A member while the body runs, which has committed 1 in `partition`."""
        raise NotImplementedError

    def share(self, group_id: str, partition: TopicPartition) -> AbstractContextManager[None]:
        """A member of a share group."""
        raise NotImplementedError

    def test_a_group_that_does_not_exist(
        self, reader: GroupReader, group_id: str, partitions: list[TopicPartition]
    ) -> None:
        assert group_id not in reader.listing().kinds
        assert not reader.facts(group_id).is_known
        assert reader.committed(group_id, partitions) == {}

    def test_a_group_without_members(
        self, reader: GroupReader, group_id: str, partitions: list[TopicPartition]
    ) -> None:
        first, second = partitions
        self.commit(group_id, {second: Committed(7, "note", 0)})
        listing = reader.listing()
        assert (listing.kinds[group_id], listing.problem) == (CLASSIC, "")
        facts = reader.facts(group_id)
        assert (facts.state, facts.members, facts.is_known) == ("empty", 0, True)
        assert reader.committed(group_id, partitions) == {second: Committed(7, "note", 0)}
        assert reader.committed(group_id, [first]) == reader.committed(group_id, []) == {}
        assert group_id not in reader.others()

    @pytest.mark.parametrize("kind", [CLASSIC, CONSUMER])
    def test_a_group_with_a_member(
        self, reader: GroupReader, group_id: str, partitions: list[TopicPartition], kind: str
    ) -> None:
        first, _ = partitions
        with self.member(group_id, kind, first):
            assert reader.listing().kinds[group_id] == kind
            assert (reader.facts(group_id).state, reader.facts(group_id).members) == ("stable", 1)
            assert {p: one.next_offset for p, one in reader.committed(group_id, partitions).items()} == {first: 1}
            assert group_id not in reader.others()
        assert wait_until(lambda: reader.facts(group_id).state == "empty", PATIENCE)
        assert {p: one.next_offset for p, one in reader.committed(group_id, partitions).items()} == {first: 1}
        assert reader.listing().kinds[group_id] == kind

    def test_a_group_of_another_kind(
        self, reader: GroupReader, group_id: str, partitions: list[TopicPartition]
    ) -> None:
        with self.share(group_id, partitions[0]):
            assert wait_until(lambda: group_id in reader.others(), PATIENCE)
            assert group_id not in reader.listing().kinds
            assert not reader.facts(group_id).is_known
            assert reader.others()[group_id] not in (CLASSIC, CONSUMER)
