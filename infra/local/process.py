"""The long-lived processes of a stack, on their user's side; `supervisor.py` is the other side."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from infra.local import supervisor
from infra.local.errors import LocalStackError
from infra.local.identity import ProcessIdentity, identify
from infra.local.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

GRACE = timedelta(seconds=10)
KILL_TIMEOUT = timedelta(seconds=10)


class Supervisor:
    """Starts processes that end with this process, however that ends. Safe to call from several threads."""

    def __init__(self, *, log: Path, remove: Sequence[Path] = (), grace: timedelta = GRACE) -> None:
        """`remove`: folders that are deleted once everything has ended."""
        options = {
            "parent": os.getpid(),
            "grace_seconds": grace.total_seconds(),
            "remove": [str(folder.absolute()) for folder in remove],
        }
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__, json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd="/",
                start_new_session=True,
            )
        self._lock = threading.Lock()
        self._grace = grace
        self._remove = tuple(remove)
        self._identities: dict[str, ProcessIdentity] = {}
        self._closed = False
        self._record("supervisor", self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def identities(self) -> Mapping[str, ProcessIdentity]:
        """The last process started under each name, and the supervisor itself."""
        return dict(self._identities)

    def start(self, name: str, argv: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str]) -> Process:
        """Run `argv` with its output appended to `log`. Raises LocalStackError if that is impossible."""
        answer = self._ask(
            {"do": "start", "name": name, "argv": list(argv), "env": dict(env), "cwd": str(cwd), "log": str(log)}
        )
        self._record(name, answer["pid"])
        return Process(self, name, answer["pid"], log)

    def poll(self, name: str) -> int | None:
        """Exit code of the process `name`, negative for a signal; None while it runs."""
        code: int | None = self._ask({"do": "poll", "name": name})["code"]
        return code

    def signal(self, name: str, number: signal.Signals) -> bool:
        """Send a signal to the group of process `name`. True if it ran and was signalled."""
        return bool(self._ask({"do": "signal", "name": name, "number": int(number)})["sent"])

    def detach(self) -> None:
        """Let all processes outlive this one; a SIGTERM to the supervisor ends them. No call may follow."""
        self._ask({"do": "detach"})
        with self._lock:
            self._closed = True
            self._close_pipes()
            self._process.returncode = 0  # no longer waited for: avoids a ResourceWarning

    def close(self) -> None:
        """End every process and remove the folders. May be called twice. Raises LocalStackError if a process is
        left."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._close_pipes()
        try:
            self._process.wait(timeout=(self._grace + KILL_TIMEOUT).total_seconds())
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        left = [identity for identity in self._identities.values() if identity.alive()]
        for identity in left:  # only if the supervisor itself was killed
            with contextlib.suppress(ProcessLookupError):
                os.kill(identity.pid, signal.SIGKILL)
        if not wait_until(lambda: not any(identity.alive() for identity in left), KILL_TIMEOUT):
            raise LocalStackError(f"these processes do not end: {', '.join(str(i.pid) for i in left)}; kill them")
        for folder in self._remove:
            shutil.rmtree(folder, ignore_errors=True)

    def _record(self, name: str, pid: int) -> None:
        if (identity := identify(pid)) is not None:
            self._identities[name] = identity

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        line = b""
        with self._lock:
            if self._closed or self._process.stdin is None or self._process.stdout is None:
                raise LocalStackError(f"the stack has ended: cannot {request['do']} {request.get('name', '')}")
            with contextlib.suppress(OSError):
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
        if not line:
            raise LocalStackError(
                f"the supervisor (pid {self.pid}) has ended: cannot {request['do']}; start the stack again"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LocalStackError(f"cannot {request['do']} {request.get('name', '')}: {answer['error']}")
        return answer


class Process:
    """One process of a supervisor."""

    def __init__(self, owner: Supervisor, name: str, pid: int, log: Path) -> None:
        self._owner = owner
        self.name = name
        self.pid = pid
        self.log = log

    def poll(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        return self._owner.poll(self.name)

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal. True if the process ran and was signalled."""
        return self._owner.signal(self.name, number)

    def wait(self, timeout: timedelta, *, stop: threading.Event | None = None) -> int | None:
        """Exit code; None if it still runs after `timeout`, or once `stop` is set."""
        wait_until(lambda: self.poll() is not None, timeout, stop=stop)
        return self.poll()

    def stop(self, grace: timedelta = GRACE) -> None:
        """SIGTERM, and SIGKILL if it still runs after `grace`. Thaws a frozen process. No error if it has ended."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if self.wait(grace) is None:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait until the process has ended."""
        self.signal(signal.SIGKILL)
        if self.wait(KILL_TIMEOUT) is None:
            raise LocalStackError(f"{self.name} (pid {self.pid}) did not end after SIGKILL; see {self.log}")
