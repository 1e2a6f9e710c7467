"""HTTP endpoints for monitoring on one port: `/metrics`, `/healthz`, `/readyz`.

/healthz   200 while every loop turns, 503 when one did not for a minute: restart the process
/readyz    200 when the work has started and nothing is stopped or wrong; else 503 with the subjects and reasons
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from formats.errors import ConfigError
from infra.runtime.health import HealthSnapshot, HealthSource
from infra.runtime.http_server import HttpServer, Request, Response
from infra.runtime.lifecycle import Clock, Closing
from infra.runtime.metrics import Metrics, NoMetrics

STALLED_AFTER = timedelta(seconds=60)
_JSON = "application/json; charset=utf-8"


class HealthServer(Closing):
    """Serves on a thread of its own until it is closed."""

    def __init__(
        self,
        listen: str,
        registry: CollectorRegistry,
        health: HealthSource,
        *,
        clock: Clock,
        metrics: Metrics | None = None,
    ) -> None:
        """Binds the port and serves. `listen`: "host:port"; port 0 chooses a free port. `metrics`: those of `registry`;
        each scrape sets their gauge `ready`. Raises ConfigError."""
        host, _, port = listen.rpartition(":")
        self._started_at = clock.now()
        self._registry, self._health, self._clock = registry, health, clock
        self._metrics = metrics or NoMetrics()
        try:
            self._server = HttpServer(host.strip("[]"), int(port), self._respond)
        except OSError as error:
            raise ConfigError([f"metrics.listen: cannot listen on {listen}: {error.strerror or error}"]) from error

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
        match request.path.partition("?")[0]:
            case "/metrics":
                self._metrics.gauge("ready", float(self._health.snapshot().is_ready))
                encode, content_type = choose_encoder(request.header("accept"))
                return Response(200, content_type, encode(self._registry))
            case "/healthz":
                return _json(*liveness(self._health.snapshot(), now=self._clock.now(), started_at=self._started_at))
            case "/readyz":
                return _json(*readiness(self._health.snapshot()))
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
