"""What `delete_records` of every ClusterAdmin does."""

from __future__ import annotations

import pytest

from formats.errors import TargetError
from infra.contracts.cluster import ClusterAdmin, TopicPartition


class RecordDeletionContract:
    """Every ClusterAdmin passes these. Subclasses give the fixtures `admin`, `partitions`: two of one topic, with 3
    records in the first one; and `compacted`: one with a record, of a topic that is only compacted."""

    def ends(self, admin: ClusterAdmin, partitions: list[TopicPartition]) -> list[tuple[int, int]]:
        found = admin.watermarks(partitions)
        return [(found[p].low, found[p].high) for p in partitions]

    def test_records_go_and_offsets_stay(self, admin: ClusterAdmin, partitions: list[TopicPartition]) -> None:
        first, second = partitions
        admin.delete_records({})
        admin.delete_records({first: 2, second: 0})
        assert self.ends(admin, partitions) == [(2, 3), (0, 0)]
        admin.delete_records({first: 3})
        assert self.ends(admin, partitions) == [(3, 3), (0, 0)]

    def test_what_is_gone_is_no_error(self, admin: ClusterAdmin, partitions: list[TopicPartition]) -> None:
        for before in (3, 3, 1):
            admin.delete_records({partitions[0]: before})
        assert self.ends(admin, partitions)[0] == (3, 3)

    def test_beyond_the_end_nothing_is_deleted(self, admin: ClusterAdmin, partitions: list[TopicPartition]) -> None:
        with pytest.raises(TargetError, match=f"{partitions[0].topic}/0 before offset 4"):
            admin.delete_records({partitions[0]: 4})
        assert self.ends(admin, partitions)[0] == (0, 3)

    def test_a_partition_that_does_not_exist(self, admin: ClusterAdmin, partitions: list[TopicPartition]) -> None:
        with pytest.raises(TargetError, match=f"{partitions[0].topic}/9"):
            admin.delete_records({TopicPartition(partitions[0].topic, 9): 1})

    def test_a_topic_that_is_only_compacted_keeps_its_records(
        self, admin: ClusterAdmin, compacted: TopicPartition
    ) -> None:
        with pytest.raises(TargetError, match=f"delete the records of {compacted} before offset 1"):
            admin.delete_records({compacted: 1})
        assert self.ends(admin, [compacted]) == [(0, 1)]
