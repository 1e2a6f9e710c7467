from __future__ import annotations

import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.error import HTTPError

import pytest
from prometheus_client import CollectorRegistry

from infra.http import STALLED_AFTER, HealthServer
from infra.metrics import PrometheusMetrics
from replicator.errors import ConfigError
from replicator.health import Health

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
    with HealthServer("127.0.0.1:0", metrics.registry, health, clock=clock) as server:
        yield server
    assert set(threading.enumerate()) == before


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


def test_a_loop_that_ended_is_not_waited_for(server: HealthServer, health: Health, clock: Clock) -> None:
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
    assert (status, detail["status"], detail["ready"], detail["started"]) == (503, "stopped partitions", False, True)
    assert detail["stopped"] == {"r/t/0": "still lost", "r/t/1": "digest differs"}
    health.resumed("r/t/0")
    health.resumed("r/t/1")
    health.resumed("never stopped")
    assert ask(server, "/readyz")[0] == 200


def test_a_problem_is_not_ready_although_everything_goes_on(server: HealthServer, health: Health) -> None:
    health.started(True)
    health.problem("r/t/0", "a segment arrived below the beginning")
    health.problem("r/t/0", "two segments arrived below the beginning")
    status, detail = ask(server, "/readyz")
    assert (status, detail["status"], detail["ready"]) == (503, "problems", False)
    assert detail["problems"] == {"r/t/0": "two segments arrived below the beginning"}
    health.solved("r/t/0")
    health.solved("never a problem")
    assert ask(server, "/readyz")[0] == 200


def test_a_taken_port_is_said_to_be_one(server: HealthServer, health: Health, clock: Clock) -> None:
    with pytest.raises(ConfigError, match=rf"metrics.listen: cannot listen on {server.address}"):
        HealthServer(server.address, CollectorRegistry(), health, clock=clock)


def test_a_client_that_says_nothing_does_not_hold_others_up(server: HealthServer) -> None:
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10):
        assert ask(server, "/healthz")[0] == 200


def test_closing_frees_the_port_and_may_be_repeated(health: Health, clock: Clock) -> None:
    server = HealthServer("127.0.0.1:0", CollectorRegistry(), health, clock=clock)
    address = server.address
    server.close()
    server.close()
    with HealthServer(address, CollectorRegistry(), health, clock=clock) as again:
        assert again.address == address
