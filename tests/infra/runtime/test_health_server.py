from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.error import HTTPError

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from formats.errors import ConfigError
from infra.local.waiting import wait_until
from infra.runtime.health import Health
from infra.runtime.health_server import STALLED_AFTER, HealthServer
from infra.runtime.http_server import CLOSE_WITHIN, CONNECTIONS, REQUEST_BYTES, HttpServer, Response
from infra.runtime.prometheus import PrometheusMetrics
from tests.fakes.slow_clients import SlowClients

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.time = START

    def now(self) -> datetime:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def server(clock: Clock, health: Health) -> Iterator[HealthServer]:
    metrics = PrometheusMetrics()
    metrics.count("broker_errors", 2)
    before = set(threading.enumerate())
    with HealthServer("127.0.0.1:0", metrics, health, clock=clock, metrics=metrics) as server:
        yield server
    assert set(threading.enumerate()) == before


def large_page() -> PrometheusMetrics:
    """A response of some 20 MB, more than any system's socket buffers hold."""
    metrics = PrometheusMetrics()
    for partition in range(20_000):
        metrics.count("egress_segments", topic="t" * 200, partition=str(partition), reason="age" * 300)
    return metrics


def get(server: HealthServer, path: str, *, method: str = "GET") -> tuple[int, str, str]:
    request = urllib.request.Request(f"http://{server.address}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def ask(server: HealthServer, path: str) -> tuple[int, dict[str, Any]]:
    status, content_type, body = get(server, path)
    assert content_type.startswith("application/json")
    return status, json.loads(body)


def test_metrics(server: HealthServer) -> None:
    status, content_type, body = get(server, "/metrics")
    assert status == 200
    assert content_type.startswith("text/plain")
    assert "replicator_broker_errors_total 2.0" in body


def test_the_metric_ready_agrees_with_readyz(server: HealthServer, health: Health) -> None:
    def shown() -> tuple[int, str]:
        line = next(li for li in get(server, "/metrics")[2].splitlines() if li.startswith("replicator_ready "))
        return ask(server, "/readyz")[0], line

    assert shown() == (503, "replicator_ready 0.0")
    health.started(True)
    assert shown() == (200, "replicator_ready 1.0")
    health.stopped("group", "no READ on it")
    assert shown() == (503, "replicator_ready 0.0")
    health.resumed("group")
    health.problem("a/t/0 undelivered", "offsets arrived too late")
    assert shown() == (503, "replicator_ready 0.0")


def test_head_and_unknown_paths(server: HealthServer) -> None:
    assert get(server, "/healthz", method="HEAD")[::2] == (200, "")
    assert ask(server, "/nope") == (404, {"paths": ["/metrics", "/healthz", "/readyz"]})
    assert ask(server, "/healthz?verbose=1")[0] == 200


def test_alive_while_every_loop_turns(server: HealthServer, health: Health, clock: Clock) -> None:
    health.turn(START)
    health.turn(START + timedelta(seconds=30), loop="delivery")
    clock.time = START + STALLED_AFTER - timedelta(milliseconds=1)
    assert ask(server, "/healthz")[0] == 200
    clock.time = START + STALLED_AFTER
    status, detail = ask(server, "/healthz")
    assert (status, detail["status"], detail["stalled"]) == (503, "stalled", ["main"])
    assert detail["seconds_since_turn"] == {"delivery": 30.0, "main": 60.0}
    health.turn(clock.time)
    assert ask(server, "/healthz")[0] == 200


def test_a_loop_that_has_ended_is_not_stalled(server: HealthServer, health: Health, clock: Clock) -> None:
    health.turn(START, loop="once")
    health.started(True)
    health.ended(loop="once")
    clock.time = START + timedelta(hours=1)
    assert ask(server, "/healthz")[0] == 200


def test_a_start_that_hangs(server: HealthServer, clock: Clock) -> None:
    assert ask(server, "/healthz")[0] == 200
    clock.time = START + STALLED_AFTER
    assert ask(server, "/healthz")[1]["stalled"] == ["start"]


def test_ready(server: HealthServer, health: Health) -> None:
    assert ask(server, "/readyz") == (
        503,
        {"status": "not started", "ready": False, "started": False, "stopped": {}, "problems": {}},
    )
    health.started(True)
    assert ask(server, "/readyz") == (
        200,
        {"status": "ready", "ready": True, "started": True, "stopped": {}, "problems": {}},
    )


def test_stopped_partitions_with_their_reasons(server: HealthServer, health: Health) -> None:
    health.started(True)
    health.stopped("r/t/0", "segment lost")
    health.stopped("r/t/1", "digest differs")
    health.stopped("r/t/0", "still lost")
    status, detail = ask(server, "/readyz")
    assert (status, detail["status"], detail["ready"], detail["started"]) == (503, "stopped", False, True)
    assert detail["stopped"] == {"r/t/0": "still lost", "r/t/1": "digest differs"}
    health.resumed("r/t/0")
    health.resumed("r/t/1")
    health.resumed("never stopped")
    assert ask(server, "/readyz")[0] == 200


def test_other_subjects_than_partitions_may_be_stopped(server: HealthServer, health: Health) -> None:
    health.started(True)
    health.stopped("notifications", "new segments are found by listings only")
    status, detail = ask(server, "/readyz")
    assert (status, detail["status"], list(detail)) == (
        503,
        "stopped",
        ["status", "ready", "started", "stopped", "problems"],
    )
    assert detail["stopped"] == {"notifications": "new segments are found by listings only"}


def test_a_problem_means_not_ready_although_work_continues(server: HealthServer, health: Health) -> None:
    health.started(True)
    health.problem("r/t/0", "a segment arrived below the beginning")
    health.problem("r/t/0", "two segments arrived below the beginning")
    status, detail = ask(server, "/readyz")
    assert (status, detail["status"], detail["ready"]) == (503, "problems", False)
    assert detail["problems"] == {"r/t/0": "two segments arrived below the beginning"}
    health.solved("r/t/0")
    health.solved("never a problem")
    assert ask(server, "/readyz")[0] == 200


def test_a_taken_port_is_reported(server: HealthServer, health: Health, clock: Clock) -> None:
    with pytest.raises(ConfigError, match=rf"metrics.listen: cannot listen on {server.address}: .+; .+ set another"):
        HealthServer(server.address, PrometheusMetrics(), health, clock=clock)


def test_a_silent_client_does_not_block_others(server: HealthServer) -> None:
    with socket.create_connection(address(server), timeout=10):
        assert ask(server, "/healthz")[0] == 200


PATIENCE = timedelta(seconds=20)  # far above every timeout of the server: only a hang takes so long
PATIENCE_S = PATIENCE.total_seconds()


def address(server: HealthServer) -> tuple[str, int]:
    host, _, port = server.address.rpartition(":")
    return host, int(port)


def closes_within(server: HealthServer, limit: timedelta) -> bool:
    closing = threading.Thread(target=server.close, daemon=True)
    closing.start()
    closing.join(limit.total_seconds())
    return not closing.is_alive()


def test_closing_does_not_wait_for_slow_clients(health: Health, clock: Clock) -> None:
    server = HealthServer("127.0.0.1:0", PrometheusMetrics(), health, clock=clock)
    with SlowClients(address(server), 10):
        assert closes_within(server, CLOSE_WITHIN)


def test_closing_does_not_wait_for_a_client_that_does_not_read_its_answer(health: Health, clock: Clock) -> None:
    server = HealthServer("127.0.0.1:0", large_page(), health, clock=clock)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(address(server))
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert client.recv(1) == b"H"
        assert closes_within(server, CLOSE_WITHIN)


def test_every_client_is_ended_at_its_deadline() -> None:
    """A client that sends too slowly, one that sends nothing, and one that does not read its response."""
    short = timedelta(seconds=0.5)
    large = Response(200, "text/plain", b"x" * (32 << 20))  # more than any system's socket buffers hold
    with HttpServer("127.0.0.1", 0, lambda _request: large, request_within=short) as server:
        where = (server.host, server.port)
        began = time.monotonic()
        with ExitStack() as opened:
            opened.enter_context(SlowClients(where, 3))
            opened.enter_context(socket.create_connection(where, timeout=PATIENCE_S))
            reader = opened.enter_context(socket.create_connection(where, timeout=PATIENCE_S))
            reader.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert reader.recv(1) == b"H"
            assert server.connections == 5
            assert wait_until(lambda: server.connections == 0, PATIENCE)
        assert time.monotonic() - began >= short.total_seconds()


@pytest.mark.parametrize("reconnect", [False, True])
def test_a_thousand_slow_clients_do_not_block_a_scraper(server: HealthServer, reconnect: bool) -> None:
    threads = threading.active_count()
    with SlowClients(address(server), 1000, reconnect=reconnect):
        for _ in range(20):
            status, _, body = get(server, "/metrics")
            assert status == 200
            assert "replicator_broker_errors_total 2.0" in body
            assert server.connections <= CONNECTIONS
            assert threading.active_count() <= threads + 1, "a thread for a client"
        assert closes_within(server, CLOSE_WITHIN)


def test_a_request_that_is_too_long_is_rejected(server: HealthServer) -> None:
    with socket.create_connection(address(server), timeout=PATIENCE_S) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * REQUEST_BYTES)
        assert client.recv(100).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"\r\n\r\n", b"400"),
        (b"GET\r\n\r\n", b"400"),
        (b"\xff\xfe / HTTP/1.1\r\n\r\n", b"405"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"405"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /healthz HTTP/1.1\n\n", b"200"),
        (b"GET /healthz HTTP/1.1\r\nAccept: \xff\r\nbroken\r\n\r\n", b"200"),
    ],
)
def test_every_request_is_answered(server: HealthServer, request_: bytes, status: bytes) -> None:
    with socket.create_connection(address(server), timeout=PATIENCE_S) as client:
        client.sendall(request_)
        assert client.recv(100).split(b" ")[1] == status


def test_the_failure_of_one_response_does_not_end_the_server(health: Health, clock: Clock) -> None:
    class Broken(Collector):
        def collect(self) -> Iterator[Metric]:
            raise ValueError("planned")

    registry = CollectorRegistry()
    with HealthServer("127.0.0.1:0", PrometheusMetrics(registry), health, clock=clock) as server:
        registry._collector_to_names[Broken()] = []
        assert get(server, "/metrics")[0] == 500
        assert ask(server, "/healthz")[0] == 200


def test_closing_frees_the_port_and_may_be_repeated(health: Health, clock: Clock) -> None:
    server = HealthServer("127.0.0.1:0", PrometheusMetrics(), health, clock=clock)
    address = server.address
    server.close()
    server.close()
    with HealthServer(address, PrometheusMetrics(), health, clock=clock) as again:
        assert again.address == address
