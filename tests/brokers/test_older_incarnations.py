"""Incarnations of a topic and open transactions on older brokers: both depend on what the brokers report."""

from __future__ import annotations

import pytest

from tests.integration.test_incarnations_and_gaps import (  # noqa: F401 - collected here once more, with this folder's stack
    source,
    test_an_incarnation_that_the_consumer_entered_silently_is_found_out_before_it_is_stored,
    test_an_open_transaction_holds_the_archive_at_the_last_stable_offset,
    test_created_again_while_egress_is_down,
)

pytestmark = [pytest.mark.integration, pytest.mark.long]
