"""A proxy in front of an S3 and SQS server, with faults that hold until they are healed."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from infra.local.ports import HOST, free_ports
from tests.infra.proxied_answer import pass_on
from tests.processes.notices import Dropped, Mailbag, Notices, Shuffled, Twice

ANY = "*"  # every operation that has no fault of its own
TARGET = "X-Amz-Target"
SQS = frozenset({"ReceiveMessage", "DeleteMessageBatch", "DeleteMessage", "GetQueueUrl"})
UPSTREAM_SECONDS = 30
IDLE_SECONDS = 120
REMEMBERED = 10_000  # requests


@dataclass(frozen=True, slots=True)
class Answer:
    """The server is not asked."""

    status: int
    code: str


@dataclass(frozen=True, slots=True)
class Slow:
    """The server is asked after a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset in the middle of the request's body; the server is not asked."""


@dataclass(frozen=True, slots=True)
class Lose:
    """The server does it, and the connection ends without an answer."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The answer's body ends after so many bytes."""

    after_bytes: int


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer until `heal`, `mend` or `close`; then the connection ends."""


@dataclass(frozen=True, slots=True)
class Stale:
    """What was answered to the same request before the fault; the server is asked if there is nothing."""


@dataclass(frozen=True, slots=True)
class Older:
    """Objects are shown as so much older than they are here, as S3 shows replicas: with their originals' times."""

    by: timedelta


Fault = Answer | Slow | Reset | Lose | Cut | Hang | Stale | Older | Notices


Reply = tuple[int, dict[str, str], bytes]  # status, headers, body


class S3Proxy:
    """`proxy.break_("PutObject", Answer(503, "SlowDown"))` until `proxy.heal()`."""

    def __init__(self, endpoint_url: str) -> None:
        self._upstream = urlsplit(endpoint_url).netloc
        self._faults: Mapping[str, Fault] = {}
        self._healed = threading.Event()
        self._lock = threading.Lock()
        self._met: dict[Fault, int] = {}
        self._asked: deque[tuple[str, str]] = deque(maxlen=REMEMBERED)
        self._listings: dict[str, Reply] = {}
        self._mail = Mailbag()
        self._port = free_ports(1)[0]  # none of those for outgoing connections: it may have to be taken again
        self._listen()

    @property
    def endpoint_url(self) -> str:
        return f"http://{HOST}:{self._port}"

    def break_(self, operation: str, fault: Fault) -> None:
        """`operation` by S3's or SQS's name, or ANY, which is any of S3's."""
        with self._lock:
            self._faults = {**self._faults, operation: fault}

    def mend(self, operation: str) -> None:
        """This one only; but everything that hangs is let go."""
        with self._lock:
            self._faults = {name: fault for name, fault in self._faults.items() if name != operation}
            healed, self._healed = self._healed, threading.Event()
        healed.set()

    def heal(self) -> None:
        """No fault any more; it listens again, too."""
        with self._lock:
            self._faults = {}
            healed, self._healed = self._healed, threading.Event()
        healed.set()
        if not self._thread.is_alive():
            self._listen()

    def refuse_connections(self) -> None:
        """Cut those that are open, and take none until `heal`."""
        self.heal()
        self._end()

    def met(self, fault: Fault) -> int:
        """How many requests ran into it."""
        with self._lock:
            return self._met.get(fault, 0)

    def asked(self, operation: str) -> list[str]:
        """Paths of the requests for it since this was called last for any operation."""
        with self._lock:
            asked = list(self._asked)
            self._asked.clear()
        return [path for name, path in asked if name == operation]

    def close(self) -> None:
        """Also ends what hangs. Clients should be gone by now: their idle connections are cut."""
        self.heal()
        self._end()

    def _listen(self) -> None:
        handler = _handler(self._upstream, self._fault, self._listings, self._mail)
        self._server = _Server((HOST, self._port), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def _end(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.cut_connections()
        self._server.server_close()

    def _fault(self, operation: str, path: str) -> tuple[Fault | None, threading.Event]:
        with self._lock:
            self._asked.append((operation, path))
            others = None if operation in SQS else self._faults.get(ANY)
            fault = self._faults.get(operation) or others
            if fault is not None:
                self._met[fault] = self._met.get(fault, 0) + 1
            return fault, self._healed


@contextmanager
def proxied(endpoint_url: str) -> Iterator[S3Proxy]:
    proxy = S3Proxy(endpoint_url)
    try:
        yield proxy
    finally:
        proxy.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that server_close waits for them
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open: set[socket.socket] = set()

    def process_request_thread(self, request: object, client_address: object) -> None:
        assert isinstance(request, socket.socket)
        self._open.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)

    def cut_connections(self) -> None:
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it ended by itself

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that were killed, and connections that we cut."""


def _handler(
    upstream: str,
    ask: Callable[[str, str], tuple[Fault | None, threading.Event]],
    listings: dict[str, Reply],
    mail: Mailbag,
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = IDLE_SECONDS

        def setup(self) -> None:
            super().setup()
            self.server_side = HTTPConnection(upstream, timeout=UPSTREAM_SECONDS)

        def finish(self) -> None:
            self.server_side.close()
            super().finish()

        def handle_any(self) -> None:
            asked = operation(self.command, self.path, self.headers.get(TARGET, ""))
            fault, healed = ask(asked, urlsplit(self.path).path)
            length = int(self.headers.get("Content-Length", 0))
            if isinstance(fault, Reset):
                self.rfile.read(length // 2)
                self._reset()
                return
            body = self.rfile.read(length)
            match fault:
                case Answer(status, code):
                    error = f"<Error><Code>{code}</Code><Message>as the test says</Message></Error>".encode()
                    pass_on(self, status, {"Content-Type": "application/xml"}, error)
                case Hang():
                    healed.wait(UPSTREAM_SECONDS * 4)
                    self.close_connection = True
                case Lose():
                    self._forward(body)
                    self._reset()
                case Cut(after_bytes):
                    pass_on(self, *self._forward(body), cut=after_bytes)
                    self.close_connection = True
                case Slow(seconds):
                    healed.wait(seconds)
                    pass_on(self, *self._forward(body))
                case Older(by):
                    status, headers, listing = self._forward(body)
                    pass_on(self, status, headers, older(listing, by))
                case Stale():
                    pass_on(self, *(listings.get(self.path) or self._forward(body)))
                case Twice() | Shuffled() | Dropped():
                    self._receive(body, fault)
                case None | Reset():
                    if asked == "ReceiveMessage":
                        self._receive(body, None)
                        return
                    answer = self._forward(body)
                    if asked == "ListObjectsV2":
                        listings[self.path] = answer
                    pass_on(self, *answer)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815, the library calls them so

        def _receive(self, body: bytes, fault: Notices | None) -> None:
            status, headers, answer = self._forward(body)
            if status != HTTPStatus.OK:
                pass_on(self, status, headers, answer)
                return
            queue = json.loads(body)["QueueUrl"]

            def delete(receipt: str) -> None:
                asked = json.dumps({"QueueUrl": queue, "ReceiptHandle": receipt}).encode()
                self._forward(asked, {TARGET: "AmazonSQS.DeleteMessage", "Content-Length": str(len(asked))})

            pass_on(self, status, headers, mail.received(answer, fault, delete))

        def _forward(self, body: bytes, others: Mapping[str, str] | None = None) -> Reply:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
            headers |= others or {}
            try:
                self.server_side.request(self.command, self.path, body, headers)
                answer = self.server_side.getresponse()
                return answer.status, dict(answer.getheaders()), answer.read()
            except (OSError, HTTPException):
                self.server_side.close()  # connects anew with the next request
                raise

        def _reset(self) -> None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002, the library's name
            """No line per request."""

    return Handler


def older(listing: bytes, by: timedelta) -> bytes:
    def shift(match: re.Match[bytes]) -> bytes:
        at = datetime.fromisoformat(match[1].decode()) - by
        return f"<LastModified>{at.isoformat().replace('+00:00', 'Z')}</LastModified>".encode()

    return re.sub(rb"<LastModified>([^<]+)</LastModified>", shift, listing)


def operation(method: str, target: str, service: str = "") -> str:
    """S3's name of a path-style request; SQS says its own in the header TARGET, `service`."""
    if service:
        return service.rpartition(".")[2]
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True)
    if "/" not in parts.path.strip("/"):
        return {"GET": "ListObjectsV2", "POST": "DeleteObjects", "HEAD": "HeadBucket"}.get(method, method)
    if "uploads" in query:
        return "CreateMultipartUpload"
    if "uploadId" in query:
        return {"PUT": "UploadPart", "POST": "CompleteMultipartUpload"}.get(method, "AbortMultipartUpload")
    return {"GET": "GetObject", "PUT": "PutObject", "HEAD": "HeadObject"}.get(method, method)
