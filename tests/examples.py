"""How hard state machines are tried: as told in `make test`, ten thousand examples each in `make test-long`."""

from __future__ import annotations

import os

from hypothesis import settings

LONG = "REPLICATOR_TEST_LONG"
LONG_EXAMPLES = 10_000


def machine(examples: int) -> settings:
    """Fifty steps an example, no time limit for one."""
    count = LONG_EXAMPLES if os.environ.get(LONG) else examples
    return settings(max_examples=count, stateful_step_count=50, deadline=None)
