"""The command `replicator demo`: runs the demo in an embedded stack, prints its report and returns the exit code."""

from __future__ import annotations

import json as jsonlib
import logging
import shlex
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from formats.errors import ReplicatorError
from infra.local.aws import AWS_VARIABLES
from infra.local.detached import StackState, up_detached
from infra.local.errors import LocalStackError
from infra.local.jars import KAFKA_VERSION, is_fetched
from infra.local.stack import LocalStack
from infra.runtime.logs import TextFormatter
from replicator.demo.flights import flights
from replicator.demo.report import DemoReport, show
from replicator.demo.screen import Screen
from replicator.demo.script import Play, Scenario
from replicator.demo.services import SOURCE, TARGET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    from pyarrow import RecordBatch

DONE, FAILED, DIFFERENT, INTERRUPTED = 0, 1, 3, 130


def run(
    *,
    keep: bool,
    console: Console,
    json: bool = False,
    limit: int | None = None,
    scenario: Scenario | None = None,
) -> int:
    """Run the demo. Returns the exit code: 0 all equal, 1 failed, 3 differences found, 130 interrupted. No process is
    left running, except with `keep`. With `json` the report goes to stdout and everything else to stderr. `limit`: of
    flights, for tests."""
    screen = Screen(Console(stderr=True) if json else console)
    demo = _Demo(
        screen,
        replace(scenario or Scenario(), ends_in_disaster=not keep),
        limit,
        show=(lambda _: None) if json else partial(show, console=console),
    )
    try:
        state = demo.run(keep=keep)
    except KeyboardInterrupt:
        screen.say("Interrupted; all processes have been ended.")
        return INTERRUPTED
    except ReplicatorError as error:
        screen.say(f"The demo failed: {error}", style="red")
        return FAILED
    if json:
        stack = {} if state is None else {"stack": state.to_json()}
        console.out(jsonlib.dumps(demo.report.to_json() | stack, indent=2), highlight=False)
    if state is not None:
        for line in _what_next(state, demo.configs):
            screen.say(line)
    return DONE if demo.report.equal else DIFFERENT


class _Demo:
    """One run, in a stack that ends with it, or in a detached one. `show` gets the report before the stack ends."""

    def __init__(
        self, screen: Screen, scenario: Scenario, limit: int | None, *, show: Callable[[DemoReport], None]
    ) -> None:
        self._screen, self._scenario, self._limit, self._show = screen, scenario, limit, show
        self._since = time.monotonic()
        self.configs: Mapping[str, Path] = {}
        self._report: DemoReport | None = None

    @property
    def report(self) -> DemoReport:
        assert self._report is not None  # set by `run`
        return self._report

    def run(self, *, keep: bool) -> StackState | None:
        """With `keep`, the stack and the services keep running, and their state is returned; else all are ended."""
        if not is_fetched():
            self._screen.say(f"Fetching Kafka {KAFKA_VERSION}, once, for half a minute ...")
        self._screen.say("Starting two Kafka brokers (regions a and b), S3 and SQS ...")
        with ThreadPoolExecutor(1, "flights") as pool:
            flights_read = pool.submit(flights, self._limit)  # while the brokers start
            if keep:
                return up_detached(prepare=lambda stack: self._play(stack, flights_read, keep=True))
            with LocalStack() as stack:
                self._play(stack, flights_read, keep=False)
        return None

    def _play(self, stack: LocalStack, flights_read: Future[RecordBatch], *, keep: bool) -> None:
        with _logged_to(stack.log_dir / "demo.log"), Play(stack, self._scenario, self._screen) as play:
            try:
                self._report = report = play.run(flights_read, since=self._since)
                self.configs = play.configs
                self._show(report)
                if keep:
                    play.settle()
            except BaseException as error:
                play.kill()
                if isinstance(error, ReplicatorError):
                    raise _with_kept_logs(error, stack) from error
                raise
            if not keep:
                play.kill()  # an orderly shutdown would take seconds, and its results are removed with the stack
        if not report.equal and not keep:
            self._screen.say(f"Logs: {stack.keep_logs()}; replicator demo --keep keeps everything for inspection.")


@contextmanager
def _logged_to(file: Path) -> Iterator[None]:
    """Write the log lines of our own Kafka and S3 clients to a file beside the other logs, not to the terminal."""
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(TextFormatter())
    logger = logging.getLogger("infra")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def _with_kept_logs(error: ReplicatorError, stack: LocalStack) -> LocalStackError:
    """The same error, with the path of a copy of the logs: their folder is removed with the stack."""
    kept = stack.keep_logs()
    message = str(error).replace(str(stack.log_dir), str(kept))
    return LocalStackError(message if str(kept) in message else f"{message}\nlogs: {kept}")


def _as_called() -> str:
    """The command that started this program, for a user to type again."""
    if Path(sys.argv[0]).name == "replicator":
        return shlex.quote(sys.argv[0])
    return f"{shlex.quote(sys.executable)} -m replicator"


def _what_next(state: StackState, configs: Mapping[str, Path]) -> list[str]:
    """Addresses and commands for a user who inspects the running demo."""
    variables = " ".join(f"{name}={value}" for name, value in AWS_VARIABLES.items())
    replicator = _as_called()
    return [
        "",
        "Everything keeps running: further records in topic flights are delivered to topic flights.copy.",
        f"  Kafka         region a {state.brokers[SOURCE]}, region b {state.brokers[TARGET]}",
        f"  S3 and SQS    {state.endpoint_url}   (export {variables})",
        f"  configuration {configs[SOURCE]}",
        f"                {configs[TARGET]}",
        f"  logs          {state.log_dir}",
        f"  inspect       {replicator} local status",
        f"                {replicator} explain topic flights --config {configs[SOURCE]}",
        f"  restore       {replicator} restore flights --rename flights=flights.restored --config {configs[SOURCE]}",
        f"  verify        {replicator} verify flights --source {configs[SOURCE]} --config {configs[SOURCE]}",
        f"  stop          {replicator} local down",
    ]
