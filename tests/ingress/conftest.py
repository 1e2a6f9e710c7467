"""The world of the tests of ingress."""

from __future__ import annotations

import pytest

from tests.ingress.world import World


@pytest.fixture
def world() -> World:
    return World()
