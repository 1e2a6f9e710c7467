"""The console over a socket, as a client sees it."""

from __future__ import annotations

import gc
import http.client
import json
import socket
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from formats.control.lease import Lease
from formats.errors import ConfigError
from infra.runtime.lifecycle import SystemClock
from replicator.console.access import HEADERS, AccessRules, rules
from replicator.console.server import ConsoleService, LiveState
from replicator.console.state import ConsoleState
from replicator.status.compaction import CompactionStatus
from tests.fakes.surroundings import HandClock
from tests.replicator.console.console_states import NOW, GivenStates, small_state

TOKEN = "a-token-of-some-length"
PATIENCE = 30.0
OPEN = rules("127.0.0.1", token=None)


@contextmanager
def console(reader: GivenStates, allowed: AccessRules = OPEN) -> Iterator[tuple[str, int]]:
    """Served with the state read once; yields host and port."""
    service = ConsoleService(
        reader, listen=("127.0.0.1", 0), rules=allowed, interval=timedelta(hours=1), clock=SystemClock()
    )
    service.start()
    host, _, port = service.address.removeprefix("http://").rstrip("/").rpartition(":")
    try:
        wait_for(lambda: service.live.state.refreshed_at is not None)
        yield host, int(port)
    finally:
        service.stop()
        service.join()


def wait_for(holds: object) -> None:
    assert callable(holds)
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ask(where: tuple[str, int], path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(*where, timeout=PATIENCE)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_pages_assets_and_refusals_have_strict_headers() -> None:
    with console(GivenStates([small_state()])) as where:
        answers = [
            ask(where, "/"),
            ask(where, "/assets/console.css"),
            ask(where, "/nope"),
            ask(where, "/", "POST"),
            ask(where, "/", Host="evil.example"),
        ]
    assert [status for status, _, _ in answers] == [200, 200, 404, 405, 421]
    for _, headers, _ in answers:
        assert {name.lower(): value for name, value in HEADERS}.items() <= headers.items()
    policy = answers[0][1]["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert answers[0][1]["cache-control"] == "no-store"
    assert answers[3][1]["allow"] == "GET, HEAD"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_it_is_read_only(method: str) -> None:
    with console(GivenStates([small_state()])) as where:
        assert ask(where, "/", method)[0] == 405


def test_head() -> None:
    with console(GivenStates([small_state()])) as where:
        status, headers, body = ask(where, "/topics", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 1000


def test_a_request_without_a_host_is_refused() -> None:
    with console(GivenStates([small_state()])) as where, socket.create_connection(where, timeout=PATIENCE) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")


def test_a_token_is_asked_for() -> None:
    with console(GivenStates([small_state()]), rules("127.0.0.1", token=TOKEN)) as where:
        status, headers, body = ask(where, "/")
        assert (status, headers["www-authenticate"].partition(" ")[0]) == (401, "Basic")
        assert b"orders" not in body
        assert ask(where, "/assets/console.js")[0] == 401
        assert ask(where, "/", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_the_same_state_as_json() -> None:
    with console(GivenStates([small_state()])) as where:
        _, headers, body = ask(where, "/topics/us/orders.created", Accept="application/json")
    assert headers["content-type"] == "application/json; charset=utf-8"
    assert json.loads(body)["topic"] == "orders.created"


def test_a_reading_is_known_while_it_is_under_way() -> None:
    class Watched(GivenStates):
        def refresh(self, before: ConsoleState) -> ConsoleState:
            seen.append(live.reading_since)
            return super().refresh(before)

    seen: list[datetime | None] = []
    clock = HandClock()
    live = LiveState(Watched([small_state()]), clock, timedelta(seconds=30))
    live.refresh()
    assert (seen, live.reading_since) == ([clock.now()], None)


def test_segments_are_listed_once_for_many_requests() -> None:
    reader = GivenStates([small_state()])
    with console(reader) as where:
        path = "/topics/us/payments/2"

        def listed() -> bool:
            return json.loads(ask(where, path, Accept="application/json")[2])["segment_map"] is not None

        wait_for(listed)
        assert all(listed() for _ in range(20))
        for _ in range(20):
            ask(where, "/topics/us/none/2")
    assert reader.listed == [("us", "payments", 2)]
    assert reader.read == 1


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            ConsoleService(
                GivenStates([]), listen=("127.0.0.1", port), rules=OPEN, interval=timedelta(1), clock=SystemClock()
            )


def test_runs_of_compaction_are_what_refreshes_saw() -> None:
    idle = small_state()
    assert idle.compaction.value is not None

    def running(**owners: str) -> object:
        assert idle.compaction.value is not None
        leases = {region: Lease(token=n, owner=owner, until=NOW) for n, (region, owner) in enumerate(owners.items())}
        status: CompactionStatus = replace(idle.compaction.value, running=leases)
        return replace(idle, compaction=replace(idle.compaction, value=status))

    failed = replace(idle, compaction=idle.compaction.failed("no bucket", NOW))
    states = [running(), running(us="one"), running(us="one", eu="two"), failed, running(us="three")]
    clock = HandClock()
    live = LiveState(GivenStates(states), clock, timedelta(seconds=30))  # type: ignore[arg-type]
    began = clock.at
    for n in range(len(states)):
        clock.at = began + timedelta(minutes=n)
        live.refresh()
    found = [
        (run.region, run.owner, run.first_seen_at - began, run.last_seen_at - began, run.is_running)
        for run in live.runs
    ]
    minutes = [timedelta(minutes=n) for n in range(5)]
    assert found == [
        ("us", "three", minutes[4], minutes[4], True),
        ("eu", "two", minutes[2], minutes[2], False),
        ("us", "one", minutes[1], minutes[2], False),
    ]


def test_lag_before_the_start_is_followed_by_what_refreshes_saw() -> None:
    clock = HandClock()
    clock.at = NOW
    live = LiveState(GivenStates([small_state()], samples=5), clock, timedelta(seconds=30))
    live.refresh()
    clock.at += timedelta(seconds=30)
    live.refresh()
    row = live.state.rows[5]
    found = live.history.read([(row.flow, row.source, row.destination)])
    assert len(found) == 7
    assert [lag for _, lag in found[-2:]] == [row.lag, row.lag]


class LeavesClients(GivenStates):
    """Each refresh leaves an object that refers to itself, as an error does that a client answered with."""

    def refresh(self, before: ConsoleState) -> ConsoleState:
        class Client:
            def __init__(self) -> None:
                self.itself = self

        self.last = weakref.ref(Client())
        return super().refresh(before)


def test_clients_of_a_refresh_end_with_it() -> None:
    reader = LeavesClients([small_state()])
    live = LiveState(reader, HandClock(), timedelta(seconds=30))
    gc.disable()  # which may run at any time
    try:
        live.refresh()
        assert reader.last() is None
    finally:
        gc.enable()
