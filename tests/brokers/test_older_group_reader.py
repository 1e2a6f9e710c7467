"""What the control plane asks about the groups of older brokers: those before Kafka 3.8 name no kind."""

from __future__ import annotations

import pytest

from infra.contracts.cluster import TopicPartition
from infra.contracts.groups import GroupReader
from tests.infra.kafka.cluster import test_groups as current

pytestmark = [pytest.mark.integration, pytest.mark.long]

NO_SHARE = "share groups are for use since Kafka 4.2"


class TestKafkaGroups(current.TestKafkaGroups):
    def test_a_group_of_another_kind(
        self, reader: GroupReader, group_id: str, partitions: list[TopicPartition]
    ) -> None:
        pytest.skip(NO_SHARE)

    def test_a_share_group_has_a_kind_that_the_client_does_not_show(
        self, reader: GroupReader, group_id: str, partitions: list[TopicPartition]
    ) -> None:
        pytest.skip(NO_SHARE)
