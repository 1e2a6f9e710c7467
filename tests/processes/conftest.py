"""Fixtures of the tests that run real processes against real brokers."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from infra.local.process import Supervisor
from tests.processes.harness import Site
from tests.processes.moved_metrics import MOVED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from infra.local.stack import LocalStack


@pytest.fixture(scope="session")
def moved_metrics(request: pytest.FixtureRequest) -> set[str]:
    """Names of metrics that moved in some process of some test so far."""
    return request.config.stash[MOVED]


@pytest.fixture(scope="session")
def supervisor(stack: LocalStack) -> Iterator[Supervisor]:
    """Ends every process of the product, however this one ends."""
    with closing(Supervisor(log=stack.log_dir / "processes.log")) as owner:
        yield owner


@pytest.fixture
def make_site(
    stack: LocalStack, supervisor: Supervisor, moved_metrics: set[str], unique: Callable[[str], str]
) -> Iterator[Callable[[str], Site]]:
    with ExitStack() as sites:

        def make(word: str) -> Site:
            return sites.enter_context(Site(stack, supervisor, moved_metrics, unique(word)))

        yield make


@pytest.fixture
def site(make_site: Callable[[str], Site]) -> Site:
    return make_site("site")
