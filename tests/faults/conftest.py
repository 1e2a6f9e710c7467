"""Fixtures of the fault suite: a stack of its own kind, whose groups and transactions time out within a case."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.local.process import Supervisor
from tests.faults.place import Place, place
from tests.processes.harness import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from infra.local.stack import LocalStack


@pytest.fixture(scope="session")
def fault_place(run_stack: Callable[..., AbstractContextManager[LocalStack]]) -> Iterator[Place]:
    here = Path(__file__).parent
    with place(partial(run_stack, needed=lambda item: item.path.parent == here)) as running:
        yield running


@pytest.fixture(scope="session")
def stack(fault_place: Place) -> LocalStack:
    return fault_place.stack


@pytest.fixture(scope="session")
def supervisor(stack: LocalStack) -> Iterator[Supervisor]:
    """Ends every process of the product, however this one ends."""
    with closing(Supervisor(log=stack.log_dir / "processes.log")) as owner:
        yield owner


@pytest.fixture
def site(stack: LocalStack, supervisor: Supervisor, unique: Callable[[str], str]) -> Iterator[Site]:
    with Site(stack, supervisor, set(), unique("f")) as made:
        yield made
