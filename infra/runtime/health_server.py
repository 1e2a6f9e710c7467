"""HTTP endpoints for monitoring on one port: `/metrics`, `/healthz`, `/readyz`.

/healthz   200 while every loop turns, 503 when one did not for a minute: restart the process
/readyz    200 when the work has started and nothing is stopped or wrong; else 503 with the subjects and reasons

With a password, /metrics needs it. The others answer everybody with their status, since a probe of Kubernetes has no
secret, and with the details only to who has the password: these have names of topics and reasons.
"""

from __future__ import annotations

import base64
import hmac
import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.errors import ConfigError
from infra.runtime.health import HealthSnapshot, HealthSource
from infra.runtime.http_server import HttpServer, Request, Response
from infra.runtime.lifecycle import Clock, Closing
from infra.runtime.metrics import Metrics, NoMetrics
from infra.runtime.prometheus import MetricsPages
from infra.runtime.server_tls import ServerTls

LOOPBACK = "127.0.0.1"
ASK_PASSWORD = ("WWW-Authenticate", 'Basic realm="replicator", charset="UTF-8"')
STALLED_AFTER = timedelta(seconds=60)
_JSON = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class BasicPassword:
    """What HTTP's basic authentication has to say."""

    username: str
    password: str = field(repr=False)

    def fits(self, authorization: str) -> bool:
        """Whether a header `Authorization` has it. How long that takes does not depend on where they differ."""
        scheme, _, given = authorization.partition(" ")
        wanted = base64.b64encode(f"{self.username}:{self.password}".encode())
        return hmac.compare_digest(given.strip().encode(), wanted) and scheme.lower() == "basic"


@dataclass(frozen=True, slots=True)
class ListenerAccess:
    """Without `tls`, the listener serves plain HTTP; without `password`, it shows everything to everybody."""

    tls: ServerTls | None = None
    password: BasicPassword | None = None


EVERYBODY = ListenerAccess()


class HealthServer(Closing):
    """Serves on a thread of its own until it is closed."""

    def __init__(
        self,
        listen: str,
        pages: MetricsPages,
        health: HealthSource,
        *,
        clock: Clock,
        metrics: Metrics | None = None,
        access: ListenerAccess = EVERYBODY,
    ) -> None:
        """Binds the port and serves. `listen`: "host:port", or a port of LOOPBACK; port 0 chooses a free port.
        `metrics`: those of `pages`; each scrape sets their gauge `ready`. Raises ConfigError."""
        host, _, port = listen.rpartition(":")
        self._password = access.password
        self._started_at = clock.now()
        self._pages, self._health, self._clock = pages, health, clock
        self._metrics = metrics or NoMetrics()
        try:
            self._server = HttpServer(host.strip("[]") or LOOPBACK, int(port), self._respond, tls=access.tls)
        except OSError as error:
            what = f"cannot listen on {listen}: {error.strerror or error}"
            remedy = "every service of a host needs a port of its own: set another, or end what listens there"
            raise ConfigError([f"metrics.listen: {what}; {remedy}"]) from error

    @property
    def address(self) -> str:
        """The bound address, "host:port"."""
        host, port = self._server.host, self._server.port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return self._server.connections

    def close(self) -> None:
        """Release the port and end every connection, in bounded time. May be called again."""
        self._server.close()

    def _respond(self, request: Request) -> Response:
        is_known = self._password is None or self._password.fits(request.header("authorization"))
        match request.path.partition("?")[0]:
            case "/metrics" if not is_known:
                return Response(401, "text/plain; charset=utf-8", b"a password is needed\n", (ASK_PASSWORD,))
            case "/metrics":
                self._metrics.gauge("ready", float(self._health.snapshot().is_ready))
                page = self._pages.page(request.header("accept"))
                return Response(200, page.content_type, page.text.encode())
            case "/healthz":
                status, detail = liveness(self._health.snapshot(), now=self._clock.now(), started_at=self._started_at)
                return _json(status, detail if is_known else {"status": detail["status"]})
            case "/readyz":
                status, detail = readiness(self._health.snapshot())
                return _json(status, detail if is_known else {name: detail[name] for name in ("status", "ready")})
            case _:
                return _json(404, {"paths": ["/metrics", "/healthz", "/readyz"]})


def liveness(snapshot: HealthSnapshot, *, now: datetime, started_at: datetime) -> tuple[int, dict[str, object]]:
    """Status and detail. A process that has not started yet has as long as a turn may take; a started process without a
    loop is alive."""
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
    """Status and detail; 200 exactly when "ready" is true. With only "started" true, the process works, but not on all
    its subjects."""
    if not snapshot.is_started:
        status = "not started"
    elif snapshot.stopped:
        status = "stopped"
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


def _json(status: int, detail: dict[str, object]) -> Response:
    return Response(status, _JSON, json.dumps(detail, indent=2).encode() + b"\n")
