"""A server process with ports of its own, which is usable once it answers: a broker, or moto."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import TYPE_CHECKING

from infra.local.errors import LocalStackError, with_log
from infra.local.ports import HOST, free_ports, is_free, listens, lost_race
from infra.local.waiting import wait_until

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    from infra.local.process import Process

START_TIMEOUT = timedelta(seconds=90)
PORT_ATTEMPTS = 3


class Server:
    """Start, stop, freeze and kill one process. Not safe to start and stop from two threads at once.

    `launch` starts the process on the given ports; `answers` sends a request that only this process can answer, since
    another process may have taken its port. The ports are chosen at the first start and kept from then on.
    """

    def __init__(
        self,
        *,
        name: str,
        log: Path,
        port_count: int,
        launch: Callable[[tuple[int, ...]], Process],
        answers: Callable[[], bool],
        abort: threading.Event,
    ) -> None:
        """`port_count`: number of ports; clients use the first one. `abort`: set it to end every wait."""
        self.name = name
        self.log = log
        self._port_count = port_count
        self._launch = launch
        self._answers = answers
        self._abort = abort
        self._ports: tuple[int, ...] = ()
        self._log_start = 0
        self._process: Process | None = None
        self._should_run = False

    @property
    def address(self) -> str:
        """host:port. Raises LocalStackError before the first start."""
        return f"{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """Fixed by the first start. Raises LocalStackError before it."""
        return self.ports[0]

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports. Fixed by the first start. Raises LocalStackError before it."""
        if not self._ports:
            raise LocalStackError(f"{self.name} was never started: it has no port yet")
        return self._ports

    def logged(self) -> str:
        """The process's log since its latest start."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as handle:
            handle.seek(self._log_start)
            return handle.read().decode("utf-8", errors="replace")

    def start(self, timeout: timedelta) -> None:
        """Start the process; it answers when this returns. No error if it runs already. Raises LocalStackError with the
        last lines of the log."""
        if self._should_run and self._process is not None and self._process.poll() is None:
            return
        if self._ports:
            self._refuse_taken_ports()
            self._start_once(timeout)
            return
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self._ports = free_ports(self._port_count)
            try:
                self._start_once(timeout)
            except LocalStackError:
                if attempt == PORT_ATTEMPTS or self._abort.is_set() or not lost_race(self.logged()):
                    raise
            else:
                return

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after a deadline. No error if it does not run."""
        self._should_run = False
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """SIGKILL. No error if it does not run."""
        self._should_run = False
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, until `thaw`."""
        self._running().signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._running().signal(signal.SIGCONT)

    def restore(self, timeout: timedelta = START_TIMEOUT) -> None:
        """Thaw or start it, if it was frozen, stopped or killed."""
        if self._process is not None:
            self._process.signal(signal.SIGCONT)
        self.start(timeout)

    def check(self) -> None:
        """Raises LocalStackError if it should run and has died."""
        if self._should_run and self._process is not None and (code := self._process.poll()) is not None:
            raise LocalStackError(with_log(f"{self.name} died: {_exit_text(code)}", self.log))

    def _running(self) -> Process:
        self.check()
        if self._process is None or not self._should_run:
            raise LocalStackError(f"{self.name} does not run: start it first")
        return self._process

    def _refuse_taken_ports(self) -> None:
        for port in self._ports:
            if not is_free(port):
                raise LocalStackError(
                    f"{self.name} cannot reuse its port {port}: another process listens there (see ss -ltnp)"
                )

    def _start_once(self, timeout: timedelta) -> None:
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._process = process = self._launch(self._ports)

        def dead() -> bool:
            return process.poll() is not None

        answered = wait_until(lambda: dead() or (listens(self.port) and self._answers()), timeout, stop=self._abort)
        if answered and not dead():
            self._should_run = True
            return
        code = process.poll()
        if code is None:
            process.kill()
        how = "did not answer" if code is None else _exit_text(code)
        what = f"{self.name} did not start on {self.address} within {timeout.total_seconds():.0f} s: {how}"
        raise LocalStackError(with_log(what, self.log))


def _exit_text(code: int) -> str:
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
