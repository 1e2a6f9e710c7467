"""The same contracts and integration tests on older brokers: each test of this folder runs once per version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from infra.local.stack import LocalStack

OLDER = ("3.9.1", "3.3.2", "3.0.2")  # the last before transactions changed; the first with a KRaft for production;
# the first whose KRaft has transactions: older ones need ZooKeeper


@pytest.fixture(scope="session", params=OLDER, ids=lambda version: f"kafka-{version}")
def stack(
    request: pytest.FixtureRequest, run_stack: Callable[..., AbstractContextManager[LocalStack]]
) -> Iterator[LocalStack]:
    """As the stack of all other tests, of an older Kafka. Tests are ordered so that each version starts once."""
    with run_stack(kafka_version=request.param) as running:
        yield running


@pytest.fixture(autouse=True)
def only_what_the_broker_has(request: pytest.FixtureRequest) -> None:
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and "consumer" in callspec.params.values():
        pytest.skip("the group protocol of KIP-848 is for use since Kafka 4.0")
