"""Runs tests on a copy of the repository in which one module is another: each in a fork that has imported everybody
else's packages already, so that a jury sits within a second.

    Jury ──{"arguments", limits}──> server, in the copy ──fork──> pytest ──> exit code

Limits are of processor time, so that a busy machine convicts no mutant; and of wall time, ten times as much, for those
that wait for ever.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO

COPIED = ("replicator", "egress", "ingress", "compaction", "formats", "infra", "bench", "tests", "docs")
FILES = (
    *("pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "NOTICE"),
    *("constraints.txt", "mkdocs.yml"),
)
TIMES_WALL = 10
MEMORY_BYTES = 6 << 30
POLL_SECONDS = 0.02
END_SECONDS = 60.0
OURS = ("egress", "ingress", "compaction", "formats", "replicator", "infra", "tests", "bench")
THEIRS = (
    "boto3",
    "confluent_kafka.admin",
    "hypothesis.stateful",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pytest",
    "tenacity",
)
QUICK = "not long and not real_s3 and not integration and not cpu"
BROKER = "(guard or not long) and not real_s3 and integration"
# Hypothesis neither shrinks nor remembers, and draws the same examples each time.
PLUGIN = "tests.mutants.settled"


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    NO_TESTS = "no tests"
    BROKEN = "broken"  # no verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    verdict: Verdict
    seconds: float  # by the clock
    by: str  # the first test that failed


class Jury:
    """A context manager. One trial at a time, on one core; several sit side by side, each on its copy."""

    def __init__(self, root: Path, folder: Path) -> None:
        """`folder` is emptied, and gets the copy."""
        self.copy, self.log = folder / "copy", folder / "trial.log"
        shutil.rmtree(folder, ignore_errors=True)
        self.copy.mkdir(parents=True)
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        for name in COPIED:
            shutil.copytree(root / name, self.copy / name, ignore=ignored)
        for name in FILES:
            shutil.copy(root / name, self.copy / name)
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.jury"],
            cwd=self.copy,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(self.copy)},
        )

    def __enter__(self) -> Jury:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()  # which ends a trial that is under way
        self._server.wait(END_SECONDS)

    def try_(self, tests: Sequence[str], *, broker: bool, cpu_seconds: float) -> Trial:
        """As the copy is now."""
        imported = "ignore::pytest.PytestAssertRewriteWarning"  # that of plugins, before pytest began
        arguments = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", PLUGIN, "-W", imported]
        asked = {
            "arguments": [*arguments, "-m", BROKER if broker else QUICK, *tests],
            "cpu_seconds": cpu_seconds,
            "log": str(self.log),
        }
        began = time.monotonic()
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(asked) + "\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        return Trial(verdict=_verdict(answer), seconds=time.monotonic() - began, by=self._culprit())

    def _culprit(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.split(" ")[1] for line in lines if line.startswith(("FAILED ", "ERROR "))), "")


def _verdict(answer: Mapping[str, int | None]) -> Verdict:
    match answer["code"]:
        case 0:
            return Verdict.PASSED
        case 1 | 2:
            return Verdict.FAILED  # 2: a module cannot be imported
        case 4 | 5:
            return Verdict.NO_TESTS
        case None:
            return Verdict.TIMED_OUT
        case code if code is not None and code < 0:
            return Verdict.TIMED_OUT if -code in (signal.SIGXCPU, signal.SIGKILL) else Verdict.FAILED
        case _:
            return Verdict.BROKEN


# --- in the copy ------------------------------------------------------------------------------------------------------


def serve(requests: IO[str], answers: IO[str]) -> None:
    while line := requests.readline():
        asked = json.loads(line)
        code = _forked(asked["arguments"], asked["cpu_seconds"], asked["log"])
        with suppress(BrokenPipeError):
            answers.write(json.dumps({"code": code}) + "\n")
            answers.flush()


def _forked(arguments: Sequence[str], cpu_seconds: float, log: str) -> int | None:
    """Exit code, minus the signal that ended it, None: it was ended because it took too long."""
    pid = os.fork()
    if pid == 0:
        _child(arguments, cpu_seconds, log)
    end = time.monotonic() + TIMES_WALL * cpu_seconds
    code = None
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        if select.select([sys.stdin], [], [], POLL_SECONDS)[0]:  # it has ended: the answer is not wanted any more
            break
    _sweep(pid)
    if not done:
        os.waitpid(pid, 0)
    return code


def _sweep(group: int) -> None:
    """Whatever a trial started ends with it. Brokers see their owner's end and end by themselves."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _child(arguments: Sequence[str], cpu_seconds: float, log: str) -> None:
    os.setsid()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for target in (1, 2):
        os.dup2(file, target)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    soft = int(cpu_seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    import pytest  # noqa: PLC0415

    code = 3
    try:
        code = int(pytest.main(list(arguments)))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _warm_up() -> None:
    """Everybody else's packages. Ours are imported by each fork: one of them is another one there."""
    for name in THEIRS:
        importlib.import_module(name)
    ours = [name for name in sys.modules if name.partition(".")[0] in OURS and not name.startswith("tests.mutants")]
    assert ours in ([], ["tests"]), ours


if __name__ == "__main__":
    _warm_up()
    serve(sys.stdin, sys.stdout)
