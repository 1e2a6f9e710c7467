"""The source consumer on older brokers."""

from __future__ import annotations

import pytest

from tests.infra.kafka.consumer import test_source_consumer as current
from tests.infra.kafka.consumer.test_source_consumer import (  # noqa: F401 - collected here once more, with this folder's stack
    test_a_commit_rejected_by_the_broker_is_a_failure_not_an_exception,
    test_a_frozen_broker_blocks_no_call,
    test_a_replaced_static_member_ends,
    test_lost_partitions_are_reported_as_lost,
    test_m19_a_second_member_is_assigned_only_the_partitions_that_must_move,
    world,
)

pytestmark = [pytest.mark.integration, pytest.mark.long]


class TestKafkaSourceConsumer(current.TestKafkaSourceConsumer):
    pass
