"""Fixtures of the fault suite: a stack of its own kind, whose groups and transactions time out within a case."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infra.local.process import Supervisor
from tests.conftest import RUNNING_STACK
from tests.faults.place import Place, place
from tests.processes.harness import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from infra.local.stack import LocalStack


@pytest.fixture(scope="session")
def fault_place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place() as running:
        request.config.stash[RUNNING_STACK] = running.stack
        try:
            yield running
        finally:
            del request.config.stash[RUNNING_STACK]


@pytest.fixture(scope="session")
def stack(fault_place: Place) -> LocalStack:
    return fault_place.stack


@pytest.fixture(scope="session")
def supervisor(stack: LocalStack) -> Iterator[Supervisor]:
    """Ends every process of the product, however this one ends."""
    owner = Supervisor(log=stack.log_dir / "processes.log")
    try:
        yield owner
    finally:
        owner.close()


@pytest.fixture
def site(stack: LocalStack, supervisor: Supervisor, unique: Callable[[str], str]) -> Iterator[Site]:
    with Site(stack, supervisor, set(), unique("f")) as made:
        yield made
