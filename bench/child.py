"""Runs one measured program in a process of its own, and returns its result and its CPU time."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOG_END = 4000  # characters of a failed program's log that are shown


class ChildFailed(Exception):
    """A measured program has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """`seconds` and `cpu_seconds`: between the program's own start and end marks. `whole_cpu_seconds`: user and system
    time of the whole process."""

    seconds: float
    cpu_seconds: float
    whole_cpu_seconds: float
    peak_rss_mib: float
    other: dict[str, Any] = field(default_factory=dict)


def run(
    module: str,
    what: str,
    spec: dict[str, Any],
    *,
    log: Path,
    timeout_seconds: float,
    python: Path = Path(sys.executable),
    folder: Path = ROOT,
    under: Sequence[str] = (),
    before: str = "",
) -> Measurement:
    """Run `python -m module what` with the spec on stdin and the result on stdout. `python` and `folder`: of another
    version of this project, whose `bench/` is in `folder`. `under`: the command of a profiler that starts it. `before`:
    Python code that the process runs first. Raises ChildFailed."""
    # a program as it is installed: modules are compiled once, not by each process
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**inherited, "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
    output = log.with_suffix(".json")
    with log.open("wb") as errors, output.open("wb") as results:
        process = subprocess.Popen(
            [*under, str(python), *_module(module, before), what],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=results,
            stderr=errors,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(spec).encode())
        process.stdin.close()
        status, usage = _wait(process.pid, timeout_seconds)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        end = log.read_text(errors="replace")[-LOG_END:]
        raise ChildFailed(f"{module} {what} ended with {process.returncode}:\n{end}")
    lines = output.read_bytes().splitlines()
    if (result := next((line for line in reversed(lines) if line.startswith(b"{")), None)) is None:
        raise ChildFailed(f"{module} {what} has no result")
    found = json.loads(result)  # of the last line that is one: a profiler writes after it
    return Measurement(
        seconds=found.pop("seconds"),
        cpu_seconds=found.pop("cpu_seconds"),
        whole_cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak_rss_mib=found.pop("peak_rss_kib") / 1024,
        other=found,
    )


def _module(name: str, before: str) -> Sequence[str]:
    if not before:
        return ("-m", name)
    return ("-c", f"{before}\nimport runpy\nrunpy.run_module({name!r}, run_name='__main__', alter_sys=True)")


def output(command: Sequence[str], *, folder: Path, timeout_seconds: float = 600.0) -> str:
    """What a program writes to stdout. Raises ChildFailed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=timeout_seconds)
    if done.returncode:
        raise ChildFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-LOG_END:]}")
    return done.stdout


def peak_rss_kib() -> int:
    """Peak RSS of this process. `ru_maxrss` would include memory of the process that started this one."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines() if sys.platform == "linux" else []
    found = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return found[0] if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measured(program: Callable[[Any], dict[str, Any]]) -> None:
    """The child's side of `run`: spec from stdin, result to stdout. Times in the program's result take precedence."""
    spec = json.loads(sys.stdin.read())
    began, cpu = time.perf_counter(), time.process_time()
    found = program(spec)
    took = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    print(json.dumps({**took, "peak_rss_kib": peak_rss_kib(), **found}))


def _wait(pid: int, timeout_seconds: float) -> tuple[int, Any]:
    """Exit status and resource usage. Kills the process after the timeout, or when we are interrupted."""
    deadline = time.monotonic() + timeout_seconds
    try:
        while True:
            waited, status, usage = os.wait4(pid, os.WNOHANG)
            if waited:
                return status, usage
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                deadline = float("inf")
            time.sleep(0.02)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.wait4(pid, 0)
        raise
