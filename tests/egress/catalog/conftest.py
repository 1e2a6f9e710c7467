from __future__ import annotations

import pytest

from tests.egress.catalog.published_region import Region


@pytest.fixture
def region() -> Region:
    return Region()
