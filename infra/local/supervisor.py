"""A small process that owns the long-lived ones, so that none of them outlives its user's process.

    parent ──stdin──> supervisor ──> broker-a, broker-b, moto     (each in a session of its own)
           <─stdout──

Rules:
1. Only the supervisor starts, signals and reaps the processes; therefore a pid that it uses is never another process's.
2. Unless detached, it ends when the parent does, however that ended: the pipe closes, or the parent's pid changes
   (the second also works when a forked child of the parent keeps the pipe open).
3. When it ends, it sends SIGTERM to every process group, latest first, SIGKILL to those left at the deadline, and then
   removes the folders given to it.
4. It runs by path with the standard library only (`python -I -S supervisor.py`): it starts in milliseconds and has no
   dependency that could be missing.

Requests and answers are JSON, one per line. The supervisor answers at once; the parent does the waiting.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

PARENT_CHECK_SECONDS = 0.5
CHUNK_BYTES = 65_536


class Processes:
    """The processes by name, in order of their start."""

    def __init__(self) -> None:
        self._by_name: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *, argv: list[str], env: dict[str, str], cwd: str, log: str) -> int:
        """Start a process and return its pid. Raises OSError if it cannot be started, ValueError if `name` runs."""
        if name in self._by_name and self.poll(name) is None:
            raise ValueError(f"{name} runs already")
        self._by_name.pop(name, None)  # keeps the order of the latest starts
        with open(log, "ab") as output:
            process = subprocess.Popen(
                argv,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a terminal's Ctrl-C goes to the parent only
            )
        self._by_name[name] = process
        return process.pid

    def poll(self, name: str) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        process = self._by_name[name]
        if process.returncode is None and process.poll() is not None:
            self._end_group(process)
        return process.returncode

    def signal(self, name: str, number: int) -> bool:
        """Send a signal to the whole process group. True if the process ran and was signalled."""
        process = self._by_name[name]
        if self.poll(name) is not None:
            return False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
            return True
        return False

    def end(self, grace_seconds: float) -> None:
        """SIGTERM to all, SIGKILL to those left after `grace_seconds`. No process runs afterwards."""
        latest_first = [name for name in reversed(self._by_name) if self.poll(name) is None]
        for name in latest_first:
            self.signal(name, signal.SIGTERM)
            self.signal(name, signal.SIGCONT)  # a frozen process would never handle it
        deadline = time.monotonic() + grace_seconds
        for name in latest_first:
            process = self._by_name[name]
            try:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.signal(name, signal.SIGKILL)
                process.wait()
            self._end_group(process)

    @staticmethod
    def _end_group(process: subprocess.Popen[bytes]) -> None:
        """Kill the remaining processes of a group. Only right after its leader was reaped: the number of an empty group
        may be reused."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def main(argv: list[str]) -> None:
    """Serve requests from stdin until the parent ends or SIGTERM arrives. `argv`: one JSON object."""
    options = json.loads(argv[0])
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    processes = Processes()
    try:
        _serve(processes, options["parent"], wakeup_read)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        processes.end(options["grace_seconds"])
        for folder in options["remove"]:
            shutil.rmtree(folder, ignore_errors=True)


def _serve(processes: Processes, parent: int, wakeup: int) -> None:
    detached = False
    buffer = b""
    while True:
        watched = [wakeup] if detached else [wakeup, 0]
        timeout = None if detached else PARENT_CHECK_SECONDS
        ready, _, _ = select.select(watched, [], [], timeout)
        if wakeup in ready or (not detached and os.getppid() != parent):
            return
        if 0 not in ready:
            continue
        chunk = os.read(0, CHUNK_BYTES)
        if not chunk:
            return
        buffer += chunk
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            request = json.loads(line)
            detached = request["do"] == "detach"
            try:
                answer = _answer(processes, request)
            except (OSError, ValueError) as error:
                answer = {"error": str(error)}
            try:
                os.write(1, json.dumps(answer).encode() + b"\n")
            except OSError:
                return


def _answer(processes: Processes, request: dict[str, Any]) -> dict[str, Any]:
    match request:
        case {"do": "start", **arguments}:
            return {"pid": processes.start(**arguments)}
        case {"do": "poll", "name": name}:
            return {"code": processes.poll(name)}
        case {"do": "signal", "name": name, "number": number}:
            return {"sent": processes.signal(name, number)}
        case {"do": "detach"}:
            return {}
        case _:
            raise ValueError(f"unknown request {request}")


if __name__ == "__main__":
    main(sys.argv[1:])
