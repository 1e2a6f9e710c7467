"""Placement on older brokers."""

from __future__ import annotations

import pytest

from tests.infra.kafka.consumer.test_placement import (  # noqa: F401 - collected here once more, with this folder's stack
    bootstrap,
    make,
    partitions,
    test_nothing_is_fetched,
    test_partitions_are_shared_out_and_taken_over,
    test_what_a_listener_raises_comes_out_of_poll,
)

pytestmark = [pytest.mark.integration, pytest.mark.long]
