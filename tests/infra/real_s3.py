"""versitygw for tests; without Go they are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.local.versitygw import VersityGateway


@contextmanager
def versitygw(folder: Path) -> Iterator[str]:
    """Run the server; yields its endpoint URL. The first run on a machine builds it (minutes)."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed: no real S3 server can be built")
    with VersityGateway(folder) as server:
        yield server.endpoint_url
