"""A small HTTP server on one thread, for a process with other work to do. Each connection gets one response.

    accepted ── reading ──(the head is complete)──> answering ──> closed
                   └──────────── its deadline has passed ────────────^

A client is untrusted: it may send a byte a second, never read its response, or open a thousand connections. Therefore
no client has a thread, every connection ends at its deadline in any state, and the number of connections is limited: a
new connection beyond CONNECTIONS ends the one whose request has been incomplete for longest. A well-behaved client
sends its request at once, so its connection is not the one to end. Responses in progress are limited likewise, because
each holds its body in memory.
"""

from __future__ import annotations

import contextlib
import logging
import select
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus

from infra.runtime import log_fields
from infra.runtime.lifecycle import Closing, Deadline

CONNECTIONS = 64
ANSWERS = 8
REQUEST_BYTES = 16 << 10  # of a request's head
REQUEST_WITHIN = timedelta(seconds=5)  # from accepting a connection to the last byte of its answer
FINISH_WITHIN = timedelta(seconds=1)  # for responses in progress when the server is closed
CLOSE_WITHIN = timedelta(seconds=2)
_BACKLOG = 1024  # the client's system retries a connection beyond it after a second
_ACCEPTS = 128  # per turn of the loop
_CHUNK = 64 << 10
_METHODS = ("GET", "HEAD")
_NO_DESCRIPTOR_WAIT = timedelta(milliseconds=100)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The head of a GET or a HEAD. Nothing in it is checked."""

    path: str  # with its query, as the client sent it
    headers: Sequence[tuple[str, str]] = ()  # names in small letters, in the order sent
    peer: str = ""  # address of the other end of the connection

    def header(self, name: str) -> str:
        """All values of a header, joined by commas; empty when it was not sent."""
        return ", ".join(self.values(name))

    def values(self, name: str) -> Sequence[str]:
        return [value for known, value in self.headers if known == name]


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    content_type: str
    body: bytes
    headers: Sequence[tuple[str, str]] = ()  # more of them; the server's own are added


@dataclass(slots=True, eq=False)
class _Client:
    socket: socket.socket
    peer: str
    deadline: Deadline
    received: bytearray = field(default_factory=bytearray)
    answer: memoryview | None = None  # the unsent rest of the response


class HttpServer(Closing):
    """Serves on a thread of its own until it is closed. `respond` is called on that thread."""

    def __init__(
        self,
        host: str,
        port: int,
        respond: Callable[[Request], Response],
        *,
        request_within: timedelta = REQUEST_WITHIN,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """`host` may be an IPv6 address; port 0 chooses a free port. `headers` are those of every response, also of a
        refused request. Raises OSError when it cannot bind the port."""
        self._respond, self._request_within, self._headers = respond, request_within, headers
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.socket(family)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((host, port))
            self._listener.listen(_BACKLOG)
            self._listener.setblocking(False)
        except BaseException:
            self._listener.close()
            raise
        self.host, self.port = self._listener.getsockname()[:2]
        self._wake, self._woken = socket.socketpair()
        self._clients: dict[socket.socket, _Client] = {}  # in order of arrival
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    @property
    def connections(self) -> int:
        return len(self._clients)

    def close(self) -> None:
        """Release the port and end every connection; responses in progress get FINISH_WITHIN. Returns within
        CLOSE_WITHIN. May be called again."""
        if self._closed:
            return
        self._closed = True
        with suppress(OSError):  # the thread may have noticed `_closed` and ended
            self._wake.send(b"x")
        self._thread.join(CLOSE_WITHIN.total_seconds())

    # --- the server's thread ---

    def _run(self) -> None:
        with self._wake, self._woken, selectors.DefaultSelector() as selector:
            try:
                with self._listener:
                    selector.register(self._woken, selectors.EVENT_READ)
                    selector.register(self._listener, selectors.EVENT_READ)
                    while not self._closed:
                        self._turn(selector)
                    selector.unregister(self._listener)
                selector.unregister(self._woken)
                self._finish(selector)
            finally:
                for client in list(self._clients.values()):
                    self._end(selector, client)

    def _turn(self, selector: selectors.BaseSelector) -> None:
        wait = min((c.deadline.left for c in self._clients.values()), default=None)
        for key, _ in selector.select(None if wait is None else wait.total_seconds()):
            if key.fileobj is self._listener:
                self._accept(selector)
            elif isinstance(key.data, _Client) and key.data.socket in self._clients:
                self._proceed(selector, key.data)
        for client in [c for c in self._clients.values() if c.deadline.expired]:
            self._end(selector, client)

    def _finish(self, selector: selectors.BaseSelector) -> None:
        deadline = Deadline(FINISH_WITHIN)
        for client in [c for c in self._clients.values() if c.answer is None]:
            self._end(selector, client)
        while self._clients and not deadline.expired:
            for key, _ in selector.select(deadline.left.total_seconds()):
                self._proceed(selector, key.data)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        """Accept all pending connections. Their requests have usually arrived already."""
        for _ in range(_ACCEPTS):
            try:
                accepted, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no free file descriptor, or the client has disconnected
                log.warning("connection_refused", extra={log_fields.ERROR: str(error)})
                if self._clients:
                    self._make_room(selector)
                else:
                    select.select([self._woken], [], [], _NO_DESCRIPTOR_WAIT.total_seconds())
                return
            accepted.setblocking(False)
            if len(self._clients) >= CONNECTIONS:
                self._make_room(selector)
            client = self._clients[accepted] = _Client(accepted, str(address[0]), Deadline(self._request_within))
            selector.register(accepted, selectors.EVENT_READ, client)
            self._proceed(selector, client)

    def _make_room(self, selector: selectors.BaseSelector) -> None:
        """End the connection whose request has been incomplete for longest, else the oldest response."""
        waiting = (c for c in self._clients.values() if c.answer is None)
        self._end(selector, next(waiting, None) or next(iter(self._clients.values())))

    def _proceed(self, selector: selectors.BaseSelector, client: _Client) -> None:
        try:
            if client.answer is None:
                self._read(selector, client)
            if client.answer is not None:
                client.answer = client.answer[client.socket.send(client.answer) :]
                if not client.answer:
                    self._end(selector, client)
        except BlockingIOError:
            pass
        except OSError:  # the client has disconnected
            self._end(selector, client)

    def _read(self, selector: selectors.BaseSelector, client: _Client) -> None:
        data = client.socket.recv(_CHUNK)
        if not data:
            raise ConnectionResetError
        client.received += data
        head, is_whole = _head(client.received)
        if not is_whole and len(client.received) < REQUEST_BYTES:
            return
        answering = [c for c in self._clients.values() if c.answer is not None]
        if len(answering) >= ANSWERS:
            self._end(selector, answering[0])
        client.answer = memoryview(self._answer(head if is_whole else None, client.peer))
        client.received.clear()
        selector.modify(client.socket, selectors.EVENT_WRITE, client)

    def _end(self, selector: selectors.BaseSelector, client: _Client) -> None:
        if self._clients.pop(client.socket, None) is None:
            return
        selector.unregister(client.socket)
        with contextlib.suppress(OSError):  # unread bytes after the request would turn the close into a reset
            client.socket.recv(_CHUNK)
        client.socket.close()

    def _answer(self, head: bytes | None, peer: str) -> bytes:
        if head is None:
            return self._bytes(_plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), has_body=True)
        line, *fields = head.decode("latin-1").splitlines() or [""]
        method, path, *_ = *line.split(" "), "", ""
        if not path:
            return self._bytes(_plain(HTTPStatus.BAD_REQUEST), has_body=True)
        if method not in _METHODS:
            allow = ("Allow", ", ".join(_METHODS))
            return self._bytes(_plain(HTTPStatus.METHOD_NOT_ALLOWED, allow), has_body=True)
        headers = [(name.strip().lower(), value.strip()) for name, _, value in (f.partition(":") for f in fields)]
        try:
            answer = self._respond(Request(path=path, headers=headers, peer=peer))
        except Exception:  # the failure of one response must not end the server
            log.exception("http_answer_failed")
            answer = _plain(HTTPStatus.INTERNAL_SERVER_ERROR)
        return self._bytes(answer, has_body=method == "GET")

    def _bytes(self, answer: Response, *, has_body: bool) -> bytes:
        more = "".join(f"{name}: {value}\r\n" for name, value in (*self._headers, *answer.headers))
        head = (
            f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\nContent-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(answer.body)}\r\n{more}Connection: close\r\n\r\n"
        )
        return head.encode("latin-1") + (answer.body if has_body else b"")


def _head(received: bytearray) -> tuple[bytes, bool]:
    """The request up to its empty line, and whether that line has arrived."""
    ends = [at for mark in (b"\r\n\r\n", b"\n\n") if (at := received.find(mark)) >= 0]
    return (bytes(received[: min(ends)]), True) if ends else (b"", False)


def _plain(status: HTTPStatus, *headers: tuple[str, str]) -> Response:
    return Response(status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode(), headers)
