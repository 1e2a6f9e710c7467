"""Every metric there is was seen to move by some process of the tests in this folder."""

from __future__ import annotations

import pytest

from infra.runtime.metrics import COUNTERS, GAUGES, HISTOGRAMS

pytestmark = pytest.mark.integration

OTHERS = (
    "test_kills",
    "test_outages",
    "test_garbage",
    "test_bucket_sync",
    "test_compacted_while_read",
    "test_drill",
    "test_dropped_at_source",
    "test_found_later",
    "test_replicated_buckets",
    "test_shutdown",
)


def test_every_metric_moves(moved_metrics: set[str], request: pytest.FixtureRequest) -> None:
    """Comes last; the others collect (see conftest.py)."""
    ran = {item.path.stem for item in request.session.items}
    missing = [name for name in OTHERS if name not in ran]
    if missing:
        pytest.skip(f"not run with it: {', '.join(missing)}")
    assert moved_metrics - {*COUNTERS, *GAUGES, *HISTOGRAMS} == set()
    assert sorted({*COUNTERS, *GAUGES, *HISTOGRAMS} - moved_metrics) == []
