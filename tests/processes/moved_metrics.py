"""Fails a run in which a metric never moved in any process of this folder's tests. The run is judged at its end, over
all workers of pytest-xdist.

Only a run of the whole folder is judged, as in `make test-long`. `make test` never is: some files of NEEDED have only
long tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infra.runtime.metrics import COUNTERS, GAUGES, HISTOGRAMS

if TYPE_CHECKING:
    from collections.abc import Iterable

MOVED = pytest.StashKey[set[str]]()
FILES = pytest.StashKey[set[str]]()
NAME = "moved_metrics"  # key in the output that an xdist worker sends to the main process

NEEDED = frozenset({
    "test_kills.py",
    "test_outages.py",
    "test_garbage.py",
    "test_bucket_sync.py",
    "test_compacted_while_read.py",
    "test_drill.py",
    "test_dropped_at_source.py",
    "test_found_later.py",
    "test_on_spark.py",
    "test_replicated_buckets.py",
    "test_shutdown.py",
})  # fmt: skip
"""Files whose tests move the metrics: a run that leaves one of them out is not judged."""


def verdict(moved: Iterable[str]) -> str:
    """Empty when every metric moved, and nothing moved that is no metric of ours."""
    known, seen = {*COUNTERS, *GAUGES, *HISTOGRAMS}, set(moved)
    wrong = [f"never moved: {', '.join(sorted(known - seen))}"] if known - seen else []
    wrong += [f"unknown: {', '.join(sorted(seen - known))}"] if seen - known else []
    return "; ".join(wrong)


class MovedMetrics:
    """A pytest plugin. An xdist worker sends the names of its metrics; the main process collects them and judges."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        config.stash[MOVED] = set()
        config.stash[FILES] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.config.stash[FILES] |= {item.path.name for item in session.items}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        output = getattr(node, "workeroutput", {})
        self.config.stash[MOVED] |= set(output.get(NAME, {}).get("moved", ()))
        self.config.stash[FILES] |= set(output.get(NAME, {}).get("files", ()))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        moved, files = self.config.stash[MOVED], self.config.stash[FILES]
        if (output := getattr(self.config, "workeroutput", None)) is not None:
            output[NAME] = {"moved": sorted(moved), "files": sorted(files)}
        elif exitstatus == pytest.ExitCode.OK and files >= NEEDED and verdict(moved):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        moved, files = self.config.stash[MOVED], self.config.stash[FILES]
        if files >= NEEDED and (wrong := verdict(moved)):
            terminalreporter.section("metrics of the tests of processes")
            terminalreporter.line(wrong, red=True)
