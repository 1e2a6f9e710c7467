"""One port for those who watch: `/metrics`, `/healthz`, `/readyz`.

/healthz   200 while every loop turns, 503 when one did not for a minute: restart the process
/readyz    200 when the work has begun and there is nothing to look at; else 503 with what is stopped or wrong, and why
"""

from __future__ import annotations

import json
import socket
import threading
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from replicator.errors import ConfigError
from replicator.health import Health, HealthSnapshot
from replicator.lifecycle import Closing
from replicator.protocols import Clock

STALLED_AFTER = timedelta(seconds=60)
_CLIENT_TIMEOUT_S = 2  # a client that says nothing holds a thread no longer
_JSON = "application/json; charset=utf-8"


class HealthServer(Closing):
    """Serves from its own threads until it is closed."""

    def __init__(self, listen: str, registry: CollectorRegistry, health: Health, *, clock: Clock) -> None:
        """Takes the port and serves. `listen` is "host:port", port 0 takes a free one. Raises ConfigError."""
        host, _, port = listen.rpartition(":")
        self._started_at = clock.now()
        self._registry, self._health, self._clock = registry, health, clock
        server_class = _ServerV6 if host.startswith("[") else _Server
        try:
            self._server = server_class((host.strip("[]"), int(port)), self._handler())
        except OSError as error:
            raise ConfigError([f"metrics.listen: cannot listen on {listen}: {error.strerror or error}"]) from error
        self._closed = False
        # A close waits for the poll to end; the library's default is half a second.
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="http", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> str:
        """As bound: "host:port"."""
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    def close(self) -> None:
        """Finish what is being answered, free the port, end every thread. May be called again."""
        if self._closed:
            return
        self._closed = True
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        match path.partition("?")[0]:
            case "/metrics":
                encode, content_type = choose_encoder(accept)
                return 200, content_type, encode(self._registry)
            case "/healthz":
                return _json(*liveness(self._health.snapshot(), now=self._clock.now(), started_at=self._started_at))
            case "/readyz":
                return _json(*readiness(self._health.snapshot()))
            case _:
                return _json(404, {"paths": ["/metrics", "/healthz", "/readyz"]})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            timeout = _CLIENT_TIMEOUT_S

            def do_GET(self) -> None:
                status, content_type, body = answer(self.path, self.headers.get("Accept", ""))
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815, the library calls it by this name

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002, as above
                """A line per scrape tells nobody anything."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that server_close waits for them

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away in the middle of an answer: no trace of it on stderr."""


class _ServerV6(_Server):
    address_family = socket.AF_INET6


def liveness(snapshot: HealthSnapshot, *, now: datetime, started_at: datetime) -> tuple[int, dict[str, object]]:
    """Status and detail. A process that is not ready yet has as long as a turn may take; one that is ready and has no
    loop to watch is alive."""
    ages = {loop: now - turned_at for loop, turned_at in snapshot.turns.items()}
    if not ages and not snapshot.is_started:
        ages = {"start": now - started_at}
    stalled = sorted(loop for loop, age in ages.items() if age >= STALLED_AFTER)
    detail: dict[str, object] = {
        "status": "stalled" if stalled else "alive",
        "stalled": stalled,
        "seconds_since_turn": {loop: round(age.total_seconds(), 3) for loop, age in ages.items()},
    }
    return (503 if stalled else 200), detail


def readiness(snapshot: HealthSnapshot) -> tuple[int, dict[str, object]]:
    """Status 200 exactly when "ready" is true. "started" alone: it works, but not on everything."""
    if not snapshot.is_started:
        status = "not started"
    elif snapshot.stopped:
        status = "stopped partitions"
    else:
        status = "problems" if snapshot.problems else "ready"
    detail: dict[str, object] = {
        "status": status,
        "ready": snapshot.is_ready,
        "started": snapshot.is_started,
        "stopped": dict(snapshot.stopped),
        "problems": dict(snapshot.problems),
    }
    return (200 if snapshot.is_ready else 503), detail


def _json(status: int, detail: dict[str, object]) -> tuple[int, str, bytes]:
    return status, _JSON, json.dumps(detail, indent=2).encode() + b"\n"
