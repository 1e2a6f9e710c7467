"""The listener of metrics over TLS and with a password: bounded as without them."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from formats.errors import ConfigError
from infra.local.waiting import wait_until
from infra.runtime.health import Health
from infra.runtime.health_server import BasicPassword, HealthServer, ListenerAccess
from infra.runtime.http_server import CLOSE_WITHIN, CONNECTIONS, HttpServer, Response
from infra.runtime.prometheus import PrometheusMetrics
from infra.runtime.server_tls import ServerTls
from tests.infra.certificates import Authority, KeyPair

PATIENCE, PATIENCE_S = timedelta(seconds=20), 20.0
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # the begin of a handshake
LARGE = Response(200, "text/plain", b"x" * (8 << 20))  # more than any system's socket buffers hold


class Clock:
    def now(self) -> datetime:
        return datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> KeyPair:
    return authority.sign("metrics")


@pytest.fixture
def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate))


@pytest.fixture
def health() -> Health:
    return Health()


Serve = Callable[..., HealthServer]


@pytest.fixture
def serve(health: Health) -> Iterator[Serve]:
    metrics = PrometheusMetrics()
    metrics.count("broker_errors", 2)
    with ExitStack() as opened:

        def start(listen: str = "127.0.0.1:0", **access: ServerTls | BasicPassword) -> HealthServer:
            given = ListenerAccess(**access)  # type: ignore[arg-type]
            return opened.enter_context(
                HealthServer(listen, metrics, health, clock=Clock(), metrics=metrics, access=given)
            )

        yield start


def get(
    server: HealthServer | HttpServer, path: str, context: ssl.SSLContext | None = None, login: str = ""
) -> tuple[int, str]:
    where = server.address if isinstance(server, HealthServer) else f"{server.host}:{server.port}"
    request = urllib.request.Request(f"{'https' if context else 'http'}://{where}{path}")
    if login:
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def address(server: HealthServer) -> tuple[str, int]:
    host, _, port = server.address.rpartition(":")
    return host, int(port)


class TestTls:
    @pytest.fixture
    def server(self, serve: Serve, pair: KeyPair) -> HealthServer:
        return serve(tls=ServerTls(pair.certificate, pair.key))

    def test_metrics_and_probes(self, server: HealthServer, trusting: ssl.SSLContext) -> None:
        status, body = get(server, "/metrics", trusting)
        assert status == 200
        assert "replicator_broker_errors_total 2.0" in body
        assert get(server, "/healthz", trusting)[0] == 200

    def test_who_does_not_trust_it_gets_nothing(self, server: HealthServer) -> None:
        with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
            get(server, "/metrics", ssl.create_default_context())
        assert wait_until(lambda: server.connections == 0, PATIENCE)

    def test_plain_http_is_ended(self, server: HealthServer, trusting: ssl.SSLContext) -> None:
        with socket.create_connection(address(server), timeout=PATIENCE_S) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            received = b""
            with suppress(ConnectionResetError):
                received = client.recv(1000)
            assert b"replicator_" not in received
        assert get(server, "/metrics", trusting)[0] == 200

    def test_a_request_in_small_records(self, server: HealthServer, trusting: ssl.SSLContext) -> None:
        with (
            socket.create_connection(address(server), timeout=PATIENCE_S) as plain,
            trusting.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            for n in range(200):  # of which several arrive at once
                client.sendall(b"GET /healthz HTTP/1.1\r\nX: " if n == 0 else b"x" * 50)
            client.sendall(b"\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200 ")

    def test_silent_and_half_handshakes_do_not_block_a_scraper(
        self, server: HealthServer, trusting: ssl.SSLContext
    ) -> None:
        threads = threading.active_count()
        with ExitStack() as opened:
            for n in range(3 * CONNECTIONS):
                client = opened.enter_context(socket.create_connection(address(server), timeout=PATIENCE_S))
                if n % 2:
                    client.sendall(HALF_A_HELLO)
            for _ in range(5):
                assert get(server, "/metrics", trusting)[0] == 200
                assert server.connections <= CONNECTIONS
                assert threading.active_count() <= threads + 1, "a thread for a client"
            began = time.monotonic()
            server.close()
            assert time.monotonic() - began < CLOSE_WITHIN.total_seconds() + 1

    def test_a_large_answer_arrives_whole_and_a_reader_that_stops_is_ended(
        self, pair: KeyPair, trusting: ssl.SSLContext
    ) -> None:
        short = timedelta(seconds=1)
        tls = ServerTls(pair.certificate, pair.key)
        with HttpServer("127.0.0.1", 0, lambda _request: LARGE, request_within=short, tls=tls) as server:
            assert get(server, "/", trusting) == (200, LARGE.body.decode())
            began = time.monotonic()
            with ExitStack() as opened:
                half = opened.enter_context(socket.create_connection((server.host, server.port), timeout=PATIENCE_S))
                half.sendall(HALF_A_HELLO)
                plain = opened.enter_context(socket.create_connection((server.host, server.port), timeout=PATIENCE_S))
                reader = opened.enter_context(trusting.wrap_socket(plain, server_hostname="localhost"))
                reader.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert reader.recv(1) == b"H"
                assert server.connections == 2
                assert wait_until(lambda: server.connections == 0, PATIENCE)
            assert time.monotonic() - began >= short.total_seconds()

    def test_a_renewed_certificate_holds_for_the_next_connection(
        self, serve: Serve, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        first, second = authority.sign("first"), authority.sign("second")
        certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
        for source, target in ((first.certificate, certificate), (first.key, key)):
            target.write_bytes(source.read_bytes())
        server = serve(tls=ServerTls(certificate, key, check_every=timedelta()))
        assert self.name(server, authority) == "first"
        certificate.write_bytes(second.certificate.read_bytes())  # its key is not there yet
        assert self.name(server, authority) == "first"
        assert "certificate_not_renewed" in caplog.text
        key.write_bytes(second.key.read_bytes())
        assert self.name(server, authority) == "second"

    def name(self, server: HealthServer, authority: Authority) -> str:
        context = ssl.create_default_context(cafile=str(authority.certificate))
        with (
            socket.create_connection(address(server), timeout=PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            subject: Any = (client.getpeercert() or {})["subject"]
            [[(_, name)]] = subject
            return str(name)

    def test_files_that_cannot_be_loaded_are_refused(self, authority: Authority, pair: KeyPair) -> None:
        locked = authority.sign("locked", password="planted")
        for certificate, key in (
            (Path("/nowhere.crt"), pair.key),
            (locked.certificate, locked.key),
            (pair.key, pair.key),
        ):
            with pytest.raises(ConfigError, match=r"metrics\.tls_cert: .*cannot be loaded.*the key needs no password"):
                ServerTls(certificate, key)


class TestPassword:
    @pytest.fixture
    def server(self, serve: Serve) -> HealthServer:
        return serve(password=BasicPassword("prometheus", "planted:pass"))

    def test_metrics_need_it(self, server: HealthServer) -> None:
        assert get(server, "/metrics") == (401, "a password is needed\n")
        for wrong in ("prometheus:", "prometheus:planted", "other:planted:pass", "prometheus:planted:pass2"):
            assert get(server, "/metrics", login=wrong)[0] == 401
        assert get(server, "/metrics", login="prometheus:planted:pass")[0] == 200

    def test_a_probe_without_it_learns_how_it_stands_and_no_more(self, server: HealthServer, health: Health) -> None:
        health.started(True)
        health.stopped("secret.topic/0", "no READ on it")
        assert get(server, "/healthz")[0] == 200
        status, body = get(server, "/readyz")
        assert status == 503
        assert '"ready": false' in body
        assert "secret.topic" not in body
        assert "secret.topic" in get(server, "/readyz", login="prometheus:planted:pass")[1]

    def test_its_text_is_not_shown(self) -> None:
        assert "planted" not in repr(BasicPassword("prometheus", "planted"))


def test_a_port_alone_is_one_of_this_machine(serve: Serve) -> None:
    assert serve("0").address.startswith("127.0.0.1:")
