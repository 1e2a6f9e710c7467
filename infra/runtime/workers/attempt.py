"""A process that runs a service for as long as its driver wants it: a task of Spark, or a child of a local parent.

    connect ── hello ──> wait ──run──> build, start ──> serve: state each second, metrics when asked
                          │                               │
                          └──end──> return                ├─ end: drain the service, return
                                                          ├─ move: drain the service, raise ─> Spark begins it elsewhere
                                                          ├─ the service fails: raise ─> Spark tries again
                                                          └─ the driver is gone: drain the service, raise

The connection's end is the driver's end. END_WITHIN after its last word the process ends, whatever hangs.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Protocol

from formats.errors import MalformedEvent, ReplicatorError
from infra.runtime import log_fields
from infra.runtime.health import Health
from infra.runtime.lifecycle import Clock, Deadline, SystemClock
from infra.runtime.process_exit import exit_immediately
from infra.runtime.service import Service
from infra.runtime.tuning import tune
from infra.runtime.workers.gathered import encode_health
from infra.runtime.workers.messages import (
    MEMBER_BYTES,
    AttemptDrained,
    AttemptFailed,
    ChangedSettings,
    Frames,
    Hello,
    Message,
    Order,
    State,
    Welcome,
    encode,
    packed_metrics,
    pickled_settings,
    proof_of,
)

END_WITHIN = timedelta(seconds=30)  # of the driver's last word
SILENCE = timedelta(seconds=15)  # after which the driver's machine counts as gone
CONNECT_WITHIN = timedelta(seconds=20)
REPORT = timedelta(seconds=1)
_CHUNK = 64 << 10

log = logging.getLogger(__name__)


class DriverUnreachable(ReplicatorError):
    """A task cannot connect to the driver."""


class ServiceInterrupted(ReplicatorError):
    """The service of a task ended although the driver did not order it to: the driver is gone, or a signal came."""


class ServiceMoved(ReplicatorError):
    """The service of a task was drained because its executor is decommissioned: Spark begins the task on another."""


def _nothing_changes(_pickled: bytes) -> None:
    """Of a service that reads its settings once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedService:
    """A service that was built and has not started, and what can be seen of it. `change`: takes over settings that the
    driver sends, pickled; called on another thread, also before the start, and again with the same ones."""

    service: Service
    health: Health
    metrics_text: Callable[[str], str]  # for an `Accept` header
    change: Callable[[bytes], None] = _nothing_changes


class ServiceBuilder(Protocol):
    """Pickled. Runs on a worker, in a process of its own."""

    def instance(self, task: int, /) -> str:
        """Id of the task's member in its consumer group."""

    def set_up(self, task: int, /) -> None:
        """Set up the process: its logs."""

    def build(self, task: int, settings: bytes | None, /) -> WatchedService:
        """The service of a task. `settings`: those that the driver has sent, in force from the start; None: those that
        it was pickled with. Raises what the service raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerJob:
    """Where the driver of N tasks listens, and what each of them runs. Pickled."""

    host: str  # of the driver
    port: int
    secret: str = field(repr=False)
    job: int
    builder: ServiceBuilder

    def run(self, task: int, attempt: int) -> None:
        """Set up this process and run its service, on the main thread, until the driver orders the end. `attempt`:
        unique in a job. Raises DriverUnreachable, and as `TaskAttempt.run`."""
        tune()
        self.builder.set_up(task)
        hello = Hello(
            job=self.job,
            task=task,
            attempt=attempt,
            host=socket.gethostname(),
            pid=os.getpid(),
            instance=self.builder.instance(task),
        )
        with _connected(self.host, self.port) as connection:
            running = TaskAttempt(connection, self.secret, hello, SystemClock())
            # a process manager may send it to every process of a machine; a handler must not wait for a lock
            signal.signal(
                signal.SIGTERM, lambda *_: threading.Thread(target=running.interrupt, args=("SIGTERM",)).start()
            )
            running.run(partial(self.builder.build, task))
        sys.stderr.flush()


def _connected(host: str, port: int) -> socket.socket:
    try:
        connection = socket.create_connection((host, port), CONNECT_WITHIN.total_seconds())
    except OSError as error:
        raise DriverUnreachable(
            f"a task on {socket.gethostname()} cannot reach the driver at {host}:{port}: {error}; set "
            "spark.driver.host to an address that the executors reach, and spark.replicator.port "
            "to a port that is open to them"
        ) from error
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class TaskAttempt:
    """One attempt of a task, from its connection on."""

    def __init__(
        self,
        connection: socket.socket,
        secret: str,
        hello: Hello,
        clock: Clock,
        leave: Callable[[int], None] = exit_immediately,
    ) -> None:
        """`leave` ends the process, with a drain that hangs."""
        self._leave = leave
        self._connection, self._secret, self._hello, self._clock = connection, secret, hello, clock
        self._frames = Frames(MEMBER_BYTES)
        self._sending = threading.Lock()
        self._may_run = threading.Event()  # or has to end
        self._over = threading.Event()  # nothing more is reported
        self._is_ordered = False  # to end
        self._moved = ""  # why this is to be begun on another executor
        self._nonce = ""
        self._settings: bytes | None = None  # the latest ones that came
        self._changing = threading.Lock()  # of the settings and what they are passed on to: older ones never follow
        self._lost = ""  # why the driver counts as gone, or which signal came
        self._heard = Deadline(SILENCE)
        self._watched: WatchedService | None = None

    def run(self, build: Callable[[bytes | None], WatchedService]) -> None:
        """`build`: with the settings that came before. Returns when the driver ordered the end. Raises what the service
        raised, ServiceInterrupted and ServiceMoved."""
        self._connection.settimeout(SILENCE.total_seconds())
        threading.Thread(target=self._listen, name="orders", daemon=True).start()
        self._may_run.wait()
        if self._lost:
            raise ServiceInterrupted(f"the service was stopped: {self._lost}")
        try:
            if not self._is_ordered and not self._moved:
                self._serve(build)
        except Exception as error:
            log.error("service_failed", extra={log_fields.ERROR: str(error) or repr(error)})
            self._over.set()
            self._send(AttemptFailed(error=str(error) or repr(error)))
            raise
        self._over.set()
        self._send(AttemptDrained())
        if not self._is_ordered:
            raise ServiceMoved(self._moved)

    def _serve(self, build: Callable[[bytes | None], WatchedService]) -> None:
        settings = self._settings
        watched = build(settings)
        with self._changing:
            self._watched = watched
            if self._settings is not None and self._settings is not settings:  # came meanwhile
                watched.change(self._settings)
        watched.service.start()
        if self._is_ordered or self._moved or self._lost:
            watched.service.stop()
        watched.service.join()
        if self._lost:
            raise ServiceInterrupted(f"the service was stopped: {self._lost}")
        if not self._is_ordered and not self._moved:
            raise ServiceInterrupted("the service ended by itself")

    # --- the thread of orders ---

    def _listen(self) -> None:
        try:
            while not self._over.is_set():
                data = self._connection.recv(_CHUNK)
                if not data:
                    raise ConnectionError("the driver has closed the connection")
                self._heard = Deadline(SILENCE)
                for message in self._frames.feed(data):
                    self._take(message)
        except TimeoutError:
            self.interrupt(f"the driver was silent for {SILENCE.total_seconds():.0f} s")
        except (OSError, MalformedEvent) as error:
            self.interrupt(str(error))
        except Exception as error:  # without this thread no order arrives, and the driver's end is not seen
            log.exception("service_failed", extra={log_fields.ERROR: repr(error)})
            self.interrupt(f"an order could not be carried out: {error!r}")

    def _take(self, message: Message) -> None:
        match message:
            case Welcome(nonce=nonce):
                self._nonce = nonce
                self._send(replace(self._hello, proof=proof_of(self._secret, nonce, self._hello)))
                threading.Thread(target=self._report, name="report", daemon=True).start()
            case Order(what="run"):
                self._may_run.set()
            case Order(what="metrics", accept=accept):
                self._send(packed_metrics(accept, self._metrics_text(accept)))
            case ChangedSettings():
                settings = pickled_settings(self._secret, self._nonce, message)
                with self._changing:
                    self._settings = settings
                    if self._watched is not None:
                        self._watched.change(settings)
            case Order(what="move", reason=reason):
                log.info("stopping", extra={log_fields.REASON: reason})
                self._moved = reason
                self._stop()
            case Order(what="end", reason=reason):
                log.info("stopping", extra={log_fields.REASON: reason})
                self._is_ordered = True
                self._stop()
            case _:
                pass  # "ping", and "wait": the driver logs who waits for what

    def _metrics_text(self, accept: str) -> str:
        """Empty when there is none: records matter more."""
        try:
            return "" if self._watched is None else self._watched.metrics_text(accept)
        except Exception:
            log.exception("metrics_failed")
            return ""

    def interrupt(self, why: str) -> None:
        """Drain the service; the process ends at the latest END_WITHIN after the driver's last word."""
        if self._over.is_set():
            return
        log.warning("task_interrupted", extra={log_fields.REASON: why})
        self._lost = why
        left = max(END_WITHIN - (SILENCE - self._heard.left), timedelta())
        watchdog = threading.Timer(left.total_seconds(), self._leave, (1,))  # a drain may hang
        watchdog.daemon = True
        watchdog.start()
        self._stop()

    def _stop(self) -> None:
        if self._watched is not None:
            self._watched.service.stop()
        self._may_run.set()

    # --- the thread of reports ---

    def _report(self) -> None:
        """Each report also says that this process lives."""
        while True:
            health = Health() if self._watched is None else self._watched.health
            self._send(State(health=encode_health(health.snapshot(), self._clock.now())))
            if self._over.wait(REPORT.total_seconds()):
                return

    def _send(self, message: Message) -> None:
        with self._sending, suppress(OSError):  # the thread of orders finds out
            self._connection.sendall(encode(message))
