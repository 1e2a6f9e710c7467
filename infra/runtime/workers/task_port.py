"""The driver's end of the tasks' connections: one port, one thread, one `Roster`.

A connection is unproven until its hello proves that the sender knows the job's secret; it may send 4 KiB, within
HELLO_WITHIN. A proven one that is silent for SILENCE is closed: its machine is gone.
"""

from __future__ import annotations

import logging
import secrets
import selectors
import socket
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import assert_never

from formats.errors import ConfigError, MalformedEvent
from infra.runtime import log_fields
from infra.runtime.lifecycle import Clock, Closing, Deadline
from infra.runtime.workers.gathered import decode_health
from infra.runtime.workers.messages import (
    MEMBER_BYTES,
    AttemptDrained,
    AttemptFailed,
    Frames,
    Hello,
    Message,
    Order,
    PackedMetrics,
    State,
    Welcome,
    changed_settings,
    encode,
    is_proven,
    metrics_text,
)
from infra.runtime.workers.roster import BeginAttempt, Effect, EndAttempt, HoldAttempt, MoveAttempt, Roster, TaskState

SILENCE = timedelta(seconds=15)
PING = timedelta(seconds=1)
HELLO_WITHIN = timedelta(seconds=10)
CLOSE_WITHIN = timedelta(seconds=2)
METRICS_WITHIN = timedelta(seconds=8)  # Prometheus waits for ten by default; a thousand partitions may take four
MOST_UNPROVEN = 64
_CHUNK = 256 << 10

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Connection:
    number: int
    socket: socket.socket
    nonce: str
    heard_at: datetime
    frames: Frames = field(default_factory=Frames)
    unsent: bytearray = field(default_factory=bytearray)
    hello: Hello | None = None
    error: str = ""
    drained: bool = False


class TaskPort(Closing):
    """Serves on a thread of its own until it is closed. Every method may be called from any thread."""

    def __init__(self, roster: Roster, *, host: str, port: int, clock: Clock, setting: str = "") -> None:
        """Binds `host`; port 0 chooses a free port. `setting`: where `host` is from. Raises ConfigError."""
        self.secret = secrets.token_hex(32)
        self._roster, self._clock = roster, clock
        try:
            self._listener = socket.create_server(
                (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128
            )
        except OSError as error:
            raise ConfigError(
                [f"{setting and setting + ': '}cannot listen on {host}:{port} for the tasks: {error.strerror or error}"]
            ) from error
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._wake, self._woken = socket.socketpair()
        self._lock = threading.Lock()  # of the roster, and of what is below
        self._connections: dict[int, _Connection] = {}
        self._count = 0
        self._pinged_at = clock.now()
        self._packed: dict[int, PackedMetrics] = {}  # by task, answers to the latest question
        self._asked_for = ""  # its format
        self._asking = threading.Lock()  # taken before the other one
        self._settings: bytes | None = None  # pickled, since the first change
        self._answered = threading.Condition(self._lock)
        self._closed = False
        self.error: Exception | None = None  # what ended the thread: no task is supervised any more
        self._thread = threading.Thread(target=self._run, name="task-port", daemon=True)
        self._thread.start()

    def job_begins(self, job: int) -> None:
        with self._lock:
            self._obey(self._roster.job_begins(job))

    def change_settings(self, pickled: bytes) -> None:
        """Send them to every task that works, and to each attempt that begins from now on, before it does."""
        with self._lock:
            self._settings = pickled
            for one in self._working():
                self._send_settings(one)

    def move(self, attempts: Collection[int], reason: str) -> None:
        """Let these attempts drain, and begin on other executors."""
        with self._lock:
            self._obey(self._roster.move(attempts, reason))

    def drain(self, reason: str) -> None:
        with self._lock:
            self._obey(self._roster.drain(reason))

    def states(self) -> Sequence[TaskState]:
        with self._lock:
            return self._roster.states()

    def attempts(self) -> Collection[tuple[int, int]]:
        """Task and attempt of every connection."""
        with self._lock:
            return self._roster.attempts

    @property
    def has_connected(self) -> bool:
        """Whether any task has ever connected."""
        return self._roster.has_connected

    @property
    def lost(self) -> int:
        """Attempts so far that worked and did not drain."""
        return self._roster.lost

    def metrics(self, accept: str, timeout: timedelta = METRICS_WITHIN) -> Mapping[int, str]:
        """The page of metrics of each task that works and answers within `timeout`, in the format of `accept`."""
        deadline = Deadline(timeout)
        with self._asking, self._answered:  # one question at a time: another one may be for another format
            self._packed, self._asked_for = {}, accept
            asked = {state.task for state in self._roster.states() if state.hello is not None}
            for one in self._working():
                self._send(one, Order(what="metrics", accept=accept))
            while not asked <= self._packed.keys() and not deadline.expired:
                self._answered.wait(deadline.left.total_seconds())
            answers = dict(self._packed)
        return {task: metrics_text(answer) for task, answer in answers.items()}

    def close(self) -> None:
        """End every connection, which ends the tasks. May be called again."""
        if not self._closed:
            self._closed = True
            with suppress(OSError):  # the thread may have ended
                self._wake.send(b"x")
            self._thread.join(CLOSE_WITHIN.total_seconds())

    # --- the port's thread ---

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            self.error = error

    def _serve(self) -> None:
        with self._wake, self._woken, self._listener, selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            selector.register(self._listener, selectors.EVENT_READ)
            try:
                while not self._closed:
                    events = selector.select(PING.total_seconds() / 2)
                    with self._lock:
                        self._turn(selector, [key for key, _ in events], self._clock.now())
            finally:
                for one in self._connections.values():
                    one.socket.close()

    def _turn(self, selector: selectors.BaseSelector, keys: Sequence[selectors.SelectorKey], now: datetime) -> None:
        for key in keys:
            if key.fileobj is self._listener:
                self._accept(selector, now)
            elif isinstance(key.data, _Connection):
                self._receive(selector, key.data, now)
        self._end_silent(selector, now)
        for one in self._connections.values():
            self._flush(one)
        if now - self._pinged_at >= PING:
            self._pinged_at = now
            for one in self._connections.values():
                if one.hello is not None:
                    self._send(one, Order(what="ping"))
        self._obey(self._roster.turn(now))

    def _accept(self, selector: selectors.BaseSelector, now: datetime) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError:  # it is gone again, or there is no descriptor: the client tries again
            return
        unproven = [one for one in self._connections.values() if one.hello is None]
        if len(unproven) >= MOST_UNPROVEN:
            self._end(selector, unproven[0], now)
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._count += 1
        new = _Connection(number=self._count, socket=accepted, nonce=secrets.token_hex(16), heard_at=now)
        self._connections[new.number] = new
        selector.register(accepted, selectors.EVENT_READ, new)
        self._send(new, Welcome(nonce=new.nonce))

    def _receive(self, selector: selectors.BaseSelector, one: _Connection, now: datetime) -> None:
        if one.number not in self._connections:  # ended by an event of the same turn
            return
        try:
            data = one.socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end(selector, one, now)
            return
        try:
            for message in one.frames.feed(data):
                self._take(one, message, now)
        except MalformedEvent as error:
            if one.hello is None:
                log.warning("connection_refused", extra={log_fields.REASON: str(error)})
            else:
                one.error = str(error)
            self._end(selector, one, now)
        else:
            if one.hello is not None:
                one.heard_at = now

    def _take(self, one: _Connection, message: Message, now: datetime) -> None:
        """Raises MalformedEvent for a message that has no place here."""
        match message:
            case Hello() if one.hello is None:
                if not is_proven(self.secret, one.nonce, message):
                    raise MalformedEvent("a connection without the secret of this application")
                one.hello, one.frames.limit_bytes = message, MEMBER_BYTES
                self._obey(self._roster.joined(one.number, message, now))
            case State() if one.hello is not None:
                self._roster.reported(one.number, decode_health(message.health, now), now)
            case PackedMetrics() if one.hello is not None:
                if message.accept == self._asked_for:
                    self._packed[one.hello.task] = message
                    self._answered.notify_all()
            case AttemptFailed() if one.hello is not None:
                one.error = message.error
            case AttemptDrained() if one.hello is not None:
                one.drained = True
            case _:
                raise MalformedEvent(f"an unexpected message of a task: {type(message).__name__}")

    def _end_silent(self, selector: selectors.BaseSelector, now: datetime) -> None:
        for one in list(self._connections.values()):
            limit = HELLO_WITHIN if one.hello is None else SILENCE
            if now - one.heard_at >= limit:
                one.error = one.error or f"it was silent for {limit.total_seconds():.0f} s"
                self._end(selector, one, now)

    def _end(self, selector: selectors.BaseSelector, one: _Connection, now: datetime) -> None:
        del self._connections[one.number]
        selector.unregister(one.socket)
        one.socket.close()
        if one.hello is None:
            return
        event = "task_drained" if one.drained else "task_lost"
        log.log(
            logging.INFO if one.drained else logging.WARNING,
            event,
            extra={**_fields(one.hello), **({log_fields.ERROR: one.error} if one.error else {})},
        )
        self._obey(self._roster.left(one.number, now, error=one.error, drained=one.drained))

    # --- with the lock ---

    def _obey(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            one = self._connections.get(effect.connection)
            if one is None or one.hello is None:
                continue
            match effect:
                case BeginAttempt():
                    log.info("task_runs", extra=_fields(one.hello))
                    self._send_settings(one)
                    self._send(one, Order(what="run"))
                case HoldAttempt(reason=reason):
                    log.info("task_waits", extra={**_fields(one.hello), log_fields.REASON: reason})
                    self._send(one, Order(what="wait", reason=reason))
                case EndAttempt(reason=reason):
                    self._send(one, Order(what="end", reason=reason))
                case MoveAttempt(reason=reason):
                    log.info("task_moves", extra={**_fields(one.hello), log_fields.REASON: reason})
                    self._send(one, Order(what="move", reason=reason))
                case _:
                    assert_never(effect)

    def _working(self) -> list[_Connection]:
        working = {state.hello for state in self._roster.states() if state.hello is not None}
        return [one for one in self._connections.values() if one.hello in working]

    def _send_settings(self, one: _Connection) -> None:
        if self._settings is not None:
            self._send(one, changed_settings(self.secret, one.nonce, self._settings))

    def _send(self, one: _Connection, message: Message) -> None:
        one.unsent += encode(message)
        self._flush(one)

    def _flush(self, one: _Connection) -> None:
        """What the system's buffer does not take now follows in later turns; a task that reads nothing is silent
        soon."""
        with suppress(OSError):
            while one.unsent:
                del one.unsent[: one.socket.send(one.unsent)]


def _fields(hello: Hello) -> dict[str, object]:
    return {
        log_fields.TASK: hello.task,
        log_fields.ATTEMPT: hello.attempt,
        log_fields.ADDRESS: hello.host,
        log_fields.PROCESS: hello.pid,
        log_fields.INSTANCE: hello.instance,
    }
