"""A proxy in front of an S3 server that injects the faults of a test on the wire."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.infra.proxied_answer import pass_on


@dataclass(frozen=True)
class Answer:
    """The proxy answers; the request is not forwarded."""

    status: int
    code: str
    message: str = "as the test says"
    region: str = ""  # where the bucket is, if the answer says so


@dataclass(frozen=True)
class Lose:
    """The server executes the request, and the connection is closed without an answer."""


@dataclass(frozen=True)
class Cut:
    """The body of the answer ends after this many bytes."""

    after_bytes: int


@dataclass(frozen=True)
class Garble:
    """One bit in the body of the answer is flipped."""


@dataclass(frozen=True)
class Hang:
    """No answer until `reset`."""


Fault = Answer | Lose | Cut | Garble | Hang | None


class FaultyS3:
    """`fail("UploadPart", None, Lose())`: loses the second UploadPart from now on; all other requests succeed."""

    def __init__(self, endpoint_url: str) -> None:
        self.upstream = urlsplit(endpoint_url).netloc
        self.hanging = threading.Event()
        self.hung = 0  # requests that hang now
        self.connections = 0
        self.requests: list[str] = []
        self.headers: list[tuple[str, dict[str, str]]] = []  # of each request, names in lower case
        self.unconditional: set[str] = set()  # operations whose If-None-Match does not reach the server
        self._faults: dict[str, list[Fault]] = {}
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False
        self._server.block_on_close = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def fail(self, operation: str, *faults: Fault) -> None:
        with self._lock:
            self._faults[operation] = list(faults)

    def take(self, operation: str) -> Fault:
        with self._lock:
            self.requests.append(operation)
            waiting = self._faults.get(operation)
            return waiting.pop(0) if waiting else None

    def reset(self) -> None:
        """Remove all faults, release hanging requests, and reset the counts."""
        with self._lock:
            self._faults.clear()
        self.hanging.set()
        self.hanging = threading.Event()
        self.connections = 0
        self.requests = []
        self.headers = []
        self.unconditional = set()

    def close(self) -> None:
        """Also ends the clients' connections, which would otherwise stay open until a garbage collection."""
        self.hanging.set()
        self._server.shutdown()
        for connection in tuple(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.server_close()

    def _handler(proxy) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the handler below
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 20

            def setup(self) -> None:
                proxy.connections += 1
                proxy._open.add(self.connection_to_client)
                super().setup()

            def finish(self) -> None:
                proxy._open.discard(self.connection_to_client)
                super().finish()

            @property
            def connection_to_client(self) -> socket.socket:
                client: socket.socket = self.request
                return client

            def handle_any(self) -> None:
                operation = named(self.command, self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                proxy.headers.append((operation, {name.lower(): value for name, value in self.headers.items()}))
                match proxy.take(operation):
                    case Answer(status, code, message, region):
                        where = f"<Region>{region}</Region>" if region else ""
                        error = f"<Error><Code>{code}</Code><Message>{message}</Message>{where}</Error>".encode()
                        more = {"x-amz-bucket-region": region} if region else {}
                        pass_on(self, status, {"Content-Type": "application/xml", **more}, error)
                    case Hang():
                        with proxy._lock:
                            proxy.hung += 1
                        proxy.hanging.wait(20)
                        with proxy._lock:
                            proxy.hung -= 1
                        self.close_connection = True
                    case Lose():
                        self.forward(body)
                        self.close_connection = True
                    case Cut(after_bytes):
                        pass_on(self, *self.forward(body), cut=after_bytes)
                        self.close_connection = True
                    case Garble():
                        status, headers, data = self.forward(body)
                        pass_on(self, status, headers, bytes([data[0] ^ 1]) + data[1:])
                    case None:
                        pass_on(self, *self.forward(body))

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815 - the library's names

            def forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
                connection = HTTPConnection(proxy.upstream, timeout=20)
                try:
                    dropped = {"expect"}
                    if named(self.command, self.path) in proxy.unconditional:
                        dropped.add("if-none-match")
                    headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
                    connection.request(self.command, self.path, body, headers)
                    answer = connection.getresponse()
                    return answer.status, dict(answer.getheaders()), answer.read()
                finally:
                    connection.close()

            def log_message(self, *args: object) -> None:
                pass

        return Handler


def named(method: str, target: str) -> str:
    """The S3 operation of a path-style request."""
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True)
    if "/" not in parts.path.strip("/"):
        return {"GET": "ListObjectsV2", "POST": "DeleteObjects", "HEAD": "HeadBucket"}.get(method, method)
    if "uploads" in query:
        return "CreateMultipartUpload"
    if "uploadId" in query:
        return {"PUT": "UploadPart", "POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload"}[method]
    return {"GET": "GetObject", "PUT": "PutObject", "HEAD": "HeadObject"}.get(method, method)


@contextmanager
def faulty(endpoint_url: str) -> Iterator[FaultyS3]:
    proxy = FaultyS3(endpoint_url)
    try:
        yield proxy
    finally:
        proxy.close()
