"""Egress, archive and ingress, exactly once, between older brokers."""

from __future__ import annotations

import pytest

from tests.integration.test_library import (  # noqa: F401 - collected here once more, with this folder's stack
    flow,
    run,
    test_a_topic_arrives_whole_and_in_order,
    test_stop_stores_and_commits_what_is_open,
)

pytestmark = [pytest.mark.integration, pytest.mark.long]
