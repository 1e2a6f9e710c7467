"""Fixtures of the tests on a cluster of three brokers, which is source and target at once."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from infra.local.process import Supervisor
from tests.processes.harness import A, B, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from infra.local.cluster import BrokerCluster
    from infra.local.stack import LocalStack

CLUSTER = "c"


@pytest.fixture(scope="session")
def stack(run_stack: Callable[..., AbstractContextManager[LocalStack]]) -> Iterator[LocalStack]:
    """The cluster, S3 and SQS. A test that stops a broker starts it again."""
    with run_stack(regions=(), clusters=(CLUSTER,)) as running:
        yield running


@pytest.fixture
def cluster(stack: LocalStack) -> BrokerCluster:
    """Whole: every replica of every topic is in sync."""
    found = stack.clusters[CLUSTER]
    found.wait_until_in_sync(found.brokers)
    return found


@pytest.fixture(scope="session")
def supervisor(stack: LocalStack) -> Iterator[Supervisor]:
    """Ends every process of the product, however this one ends."""
    with closing(Supervisor(log=stack.log_dir / "processes.log")) as owner:
        yield owner


@pytest.fixture
def site(
    stack: LocalStack, cluster: BrokerCluster, supervisor: Supervisor, unique: Callable[[str], str]
) -> Iterator[Site]:
    both = {A: cluster.bootstrap, B: cluster.bootstrap}
    with Site(stack, supervisor, set(), unique("site"), bootstrap=both) as made:
        yield made
