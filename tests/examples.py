"""How hard properties are tried: a hundred examples each in `make test`, far more in `make test-long`."""

from __future__ import annotations

import os

from hypothesis import settings

LONG = "REPLICATOR_TEST_LONG"
LONG_EXAMPLES, LONG_PROPERTY_EXAMPLES = 10_000, 2_000


def machine(examples: int) -> settings:
    """Of a state machine: fifty steps an example, no time limit for one."""
    count = LONG_EXAMPLES if os.environ.get(LONG) else examples
    return settings(max_examples=count, stateful_step_count=50, deadline=None)


def property_examples() -> settings:
    """Of any other property; no time limit for one example."""
    return settings(max_examples=LONG_PROPERTY_EXAMPLES if os.environ.get(LONG) else 100, deadline=None)
