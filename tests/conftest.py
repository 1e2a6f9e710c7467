"""Fixtures of all tests: the embedded stack, started once and only if a test asks for it, and unique names."""

from __future__ import annotations

import gc
import logging
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from infra.local.errors import LocalStackError
from infra.local.stack import LocalStack
from infra.runtime import tuning
from infra.runtime.logs import JsonFormatter, TextFormatter
from tests.examples import property_examples
from tests.processes.moved_metrics import MovedMetrics

if TYPE_CHECKING:
    from xdist.remote import Producer

FAULTS, PROCESSES = "faults", "processes"
RUNNING_STACKS = pytest.StashKey[dict[LocalStack, Callable[[pytest.Item], bool]]]()
"""Each with the tests that may use it."""
STACKED = pytest.StashKey[set[Path]]()
"""Files with a test that needs a stack."""

# A third of what an idle broker costs is threads that poll for work a few times a second: 28, as Kafka has them.
FEW_THREADS: Mapping[str, str] = {"num.network.threads": "1", "num.io.threads": "3"}

# Brokers and Spark live for a minute here: a compiler for programs that run for days takes half of their start.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# also of a property that names none of its own: two cores under load are slower than Hypothesis's deadline allows
settings.register_profile("project", property_examples())
settings.load_profile("project")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(MovedMetrics(config))


@pytest.fixture(scope="session")
def run_stack(request: pytest.FixtureRequest) -> Callable[..., AbstractContextManager[LocalStack]]:
    """A LocalStack of the given options, registered as long as it runs: see `whole_stack`. `needed`: whether a test
    may use it; it ends before the first that may not, since an idle broker takes processor time."""
    stacks = request.config.stash.setdefault(RUNNING_STACKS, {})

    @contextmanager
    def run(*, needed: Callable[[pytest.Item], bool] = lambda _: True, **options: Any) -> Iterator[LocalStack]:
        with LocalStack(**options) as running:
            stacks[running] = needed
            try:
                yield running
            finally:
                stacks.pop(running, None)

    return run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    yield
    stacks = item.config.stash.get(RUNNING_STACKS, {})
    for running in [one for one, needed in stacks.items() if nextitem is not None and not needed(nextitem)]:
        del stacks[running]
        gc.collect()  # clients of tests that are over would try to reach its brokers until the end, and log it
        running.close()


@pytest.fixture(scope="session")
def stack(
    request: pytest.FixtureRequest, run_stack: Callable[..., AbstractContextManager[LocalStack]]
) -> Iterator[LocalStack]:
    """Brokers "a" and "b", S3 and SQS, for all tests that need a stack. A test that stops a part of it starts it again.
    The brokers have a listener with ACLs, too: tests/infra/principal.py."""
    stacked = request.config.stash[STACKED]
    with run_stack(secured=True, broker_config=FEW_THREADS, needed=lambda item: item.path in stacked) as running:
        yield running


@pytest.fixture(autouse=True)
def whole_stack(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test the stack is whole again; a test during which a part of it died by itself fails."""
    yield
    for running in request.config.stash.get(RUNNING_STACKS, {}):
        try:
            running.check()
        finally:
            running.restore()


@pytest.fixture(autouse=True)
def no_logs_of_ours() -> Iterator[None]:
    """A command that a test runs in this process sets up logging; its stream is the test's and ends with it."""
    yield
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler.formatter, JsonFormatter | TextFormatter):
            root.removeHandler(handler)
            root.setLevel(logging.WARNING)


@pytest.fixture(autouse=True)
def not_tuned() -> Iterator[None]:
    """A command that a test runs in this process tunes it, for good: for its own process that is right."""
    pool, thresholds = pa.default_memory_pool(), gc.get_threshold()
    yield
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != tuning.__name__]
    if gc.get_threshold() != thresholds:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    if pa.default_memory_pool().backend_name != pool.backend_name:
        pa.set_memory_pool(pool)


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Makes a name from a word that no other test and no other run has: fit for topics, buckets, queues and groups."""

    def name(word: str = "test") -> str:
        return f"{word}-{uuid.uuid4().hex[:12]}"

    return name


@pytest.fixture
def topic_name(unique: Callable[[str], str]) -> str:
    """The name of a topic that does not exist yet."""
    return unique("topic")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that wait most come first, and the last of them is not waited for alone: first those that run processes,
    then those that need a stack; the others fill the gaps at the end, when no stack runs any more. The order within a
    file stays."""
    stacked = config.stash[STACKED] = {item.path for item in items if item.get_closest_marker("integration")}

    def rank(item: pytest.Item) -> int:
        folder = item.path.parent.name
        if folder == FAULTS:  # all of them, or its stack would have to start again
            return 0
        if item.path not in stacked:
            return 3
        return 1 if folder == PROCESSES else 2

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """The modules and tests of a whole run are a million objects, of which none is garbage: not searched again and
    again. Young objects are searched less often, too: properties make many, and few cycles."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


class OneStackOfFaults(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Each file goes to one worker, and the fault suite as a whole: its stack starts once, and not once per worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return FAULTS if f"/{FAULTS}/" in file else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    return OneStackOfFaults(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Say where the stack's logs are when an integration test fails, and what died if something did."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.failed and item.get_closest_marker("integration"):
        for running in item.config.stash.get(RUNNING_STACKS, {}):
            lines = [f"logs: {running.log_dir}, and then {running.keep_logs()}"]
            try:
                running.check()
            except LocalStackError as error:
                lines.append(str(error))
            report.sections.append(("embedded stack", "\n".join(lines)))
    return report  # type: ignore[return-value]
