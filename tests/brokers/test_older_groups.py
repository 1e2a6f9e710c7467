"""Placement on older brokers."""

from __future__ import annotations

import pytest

from tests.infra.kafka.consumer.test_placement import (  # noqa: F401 - collected here once more, with this folder's stack
    bootstrap,
    make,
    partitions,
    test_an_exception_of_a_listener_is_reported_by_poll,
    test_nothing_is_fetched,
    test_partitions_are_distributed_and_taken_over,
)

pytestmark = [pytest.mark.integration, pytest.mark.long]
