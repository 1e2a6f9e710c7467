"""Why no broker can be reached, according to the client's log lines (copied from real ones)."""

from __future__ import annotations

import gc
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import BrokerUnavailable
from infra.kafka.client.own_certificate import OwnCertificate
from infra.kafka.cluster import admin_connection
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.admin_connection import AdminConnection
from infra.kafka.cluster.groups import KafkaGroups
from infra.kafka.cluster.unreachable import MAX_LISTED, MIN_WAIT, Failure, Unreachable, parse_failure
from infra.runtime.log_fields import NEXT
from tests.examples import property_examples

AT_ONCE = 20.0  # seconds, on a busy machine; the call takes two, and its timeout is 30
HEAD = "FAIL [rdkafka#producer-1] [thrd:{0}/bootstrap]: {0}/bootstrap: "

LINES = [
    (
        "a.example:9092",
        "Failed to resolve 'a.example:9092': Name or service not known (after 1ms in state CONNECT)",
        "unknown host",
        True,
    ),
    (
        "127.0.0.1:1",
        "Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT, 1 identical error(s) "
        "suppressed)",
        "nothing listens there",
        False,
    ),
    (
        "sasl_ssl://127.0.0.1:1",
        "SSL handshake failed: Disconnected: SSL connection closed by peer: connecting to a PLAINTEXT broker listener? "
        "(after 2ms in state SSL_HANDSHAKE)",
        "the listener is plaintext",
        True,
    ),
    (
        "sasl_ssl://127.0.0.1:1",
        "Disconnected: SSL connection closed by peer (after 2ms in state SSL_HANDSHAKE)",
        "the listener is plaintext",
        False,
    ),
    ("sasl_ssl://127.0.0.1:1", "Disconnected: SSL connection closed by peer", "the listener is plaintext", False),
    (
        "ssl://127.0.0.1:1",
        "Disconnected: SSL connection closed by peer (after 1ms in state APIVERSION_QUERY)",
        "TLS or SASL expected",
        False,
    ),
    (
        "ssl://127.0.0.1:1",
        "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker certificate could not be "
        "verified, verify that ssl.ca.location is correctly configured (after 3ms in state SSL_HANDSHAKE)",
        "ssl.ca.location",
        True,
    ),
    (
        "[::1]:9092",
        "Disconnected: connection closed by peer: receive 0 after POLLIN (after 0ms in state APIVERSION_QUERY)",
        "TLS or SASL expected",
        False,
    ),
    (
        "sasl_ssl://127.0.0.1:1",
        "SASL SCRAM-SHA-512 mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported "
        "mechanisms: PLAIN (after 2ms in state AUTH_HANDSHAKE)",
        "enable it on the broker's listener",
        True,
    ),
    (
        "sasl_plaintext://127.0.0.1:1",
        "SASL PLAIN mechanism handshake failed: Broker: Request not valid in current SASL state: broker's supported "
        "mechanisms:  (after 0ms in state AUTH_HANDSHAKE)",
        "the listener does not use SASL",
        True,
    ),
    (
        "sasl_ssl://127.0.0.1:1",
        "SASL authentication error: Authentication failed: Invalid username or password (after 5ms in state AUTH_REQ)",
        "sasl.password",
        True,
    ),
    (
        "ssl://127.0.0.1:1",
        "Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL alert number 42 (after 7ms in "
        "state APIVERSION_QUERY)",
        "set ssl.certificate.location and ssl.key.location",
        True,
    ),
    (
        "ssl://127.0.0.1:1",
        "Receive failed: error:0A000416:SSL routines::ssl/tls alert certificate unknown: SSL alert number 46 (after "
        "7ms in state APIVERSION_QUERY)",
        "does not accept this client's certificate",
        True,
    ),
    (
        "sasl_ssl://127.0.0.1:1",
        'SASL authentication error: {"status":"invalid_token"} (after 447ms in state AUTH_REQ)',
        "the broker refuses the token",
        True,
    ),
]


def test_a_certificate_that_is_not_trusted_has_its_reason() -> None:
    known = Unreachable("b:1", lambda broker: "certificate has expired" if broker == "b:1" else "")
    for broker in ("b:1", "c:1"):
        reason = "SSL handshake failed: error: broker certificate could not be verified, verify that ssl.ca.location"
        failure = parse_failure(f"{broker}/bootstrap: {reason}")
        assert failure is not None
        known.failed(failure, 0.0)
    known.all_down()
    first, second = known.text().split(" | ")
    assert first == (
        "b:1: TLS: the broker's certificate is not trusted: certificate has expired; "
        "renew the certificate on the broker"
    )
    assert second.endswith("; set ssl.ca.location to the CA of the broker's certificate")


def test_only_the_brokers_of_a_message_are_asked_and_nothing_waits_for_their_answer() -> None:
    asked: list[str] = []

    def why(broker: str) -> str:
        asked.append(broker)
        beside = threading.Thread(target=known.all_down, daemon=True)  # as a client does, which reports meanwhile
        beside.start()
        beside.join(timeout=5)
        assert not beside.is_alive()
        return "certificate has expired"

    known = Unreachable("b:1", why)
    for number in range(50):
        failure = parse_failure(f"b{number}:1/bootstrap: broker certificate could not be verified")
        assert failure is not None
        known.failed(failure, 0.0)
    known.all_down()
    for say in (known.text, lambda: known.verdict(0.0, 60.0, timedelta(seconds=30))):
        asked.clear()
        text = say()
        assert text.count("certificate has expired") == len(asked) == MAX_LISTED
        assert text.endswith("| and 47 more")


REFUSED = "SSL handshake failed: error:0A000415:SSL routines::ssl/tls alert certificate expired: SSL alert number 45"
UNKNOWN = "SSL handshake failed: error:0A000416:SSL routines::ssl/tls alert certificate unknown: SSL alert number 46"


@pytest.mark.parametrize("line", [REFUSED, UNKNOWN])
@pytest.mark.parametrize(
    ("begins", "ends", "reason", "remedy"),
    [
        (-20, -1, "TLS: the broker does not accept this client's certificate: it expired at ", "renew the.pem and"),
        (1, 20, "TLS: the broker does not accept this client's certificate: it is not valid before ", "clock"),
        (-1, 20, "SSL handshake failed", "which has not expired: it does not trust who signed it"),
    ],
    ids=["expired", "not yet", "within its time"],
)
def test_a_certificate_of_this_client_that_has_expired_differs_from_one_that_is_not_trusted(
    line: str, begins: int, ends: int, reason: str, remedy: str
) -> None:
    """A broker may send the same alert for both."""
    now = datetime.now(UTC)
    own = OwnCertificate("the.pem", now + timedelta(days=begins), now + timedelta(days=ends))
    known = Unreachable("b:1", own_certificate=lambda: own)
    known.failed(failure_of(line), 0.0)
    text = known.text()
    assert text.startswith(f"b:1: {reason}")
    assert remedy in text.partition("; ")[2]


def test_without_a_certificate_that_can_be_read_both_are_named() -> None:
    known = Unreachable("b:1")
    known.failed(failure_of(REFUSED), 0.0)
    assert "it has expired, or the broker does not trust who signed it" in known.text()


def failure_of(line: str) -> Failure:
    found = parse_failure(f"b:1/bootstrap: {line}")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("broker", "line", "advice", "is_permanent"),
    LINES,
    ids=[f"{n} {line[:40]}" for n, (_, line, _, _) in enumerate(LINES)],
)
def test_a_line_names_broker_reason_and_remedy(broker: str, line: str, advice: str, is_permanent: bool) -> None:
    found = parse_failure(HEAD.format(broker) + line)
    assert found is not None
    assert found == parse_failure(f"{broker}/bootstrap: {line}")  # the text of an error
    assert found.broker == broker.rpartition("//")[2]
    assert found.reason == line.partition(" (after")[0]
    assert advice in found.advice
    assert found.is_permanent is is_permanent


@pytest.mark.parametrize("line", ["", "CONFWARN [rdkafka#producer-1] [thrd:app]: something", "REQTMOUT of nothing"])
def test_other_lines_are_ignored(line: str) -> None:
    assert parse_failure(line) is None


def test_the_text_of_an_error_lacks_the_client_s_code() -> None:
    connection = AdminConnection({"bootstrap.servers": "127.0.0.1:1"}, timeout=timedelta(seconds=30))
    answer: Future[None] = Future()
    answer.set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
    with pytest.raises(BrokerUnavailable, match=r"^describe the cluster: .*127\.0\.0\.1:1") as caught:
        connection.wait(answer, "describe the cluster")
    assert "_TRANSPORT" not in str(caught.value)


def test_a_client_ends_with_the_last_reference_to_its_connection() -> None:
    """Its threads would stay until the garbage collector runs, and commands that refresh make many clients."""
    properties = {"bootstrap.servers": "127.0.0.1:1"}
    gc.disable()  # which may run at any time
    try:
        admin: KafkaAdmin | None = KafkaAdmin(properties)
        groups: KafkaGroups | None = KafkaGroups(properties, properties)
        assert admin is not None
        assert groups is not None
        clients = [weakref.ref(one._connection.client) for one in (admin, groups)]
        with pytest.raises(BrokerUnavailable):
            admin.describe(["orders"])
        admin = groups = None
        assert [one() for one in clients] == [None, None]
    finally:
        gc.enable()


def test_the_warning_while_waiting_has_the_timeout(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_connection, "FIRST_CONTACT", timedelta())
    monkeypatch.setattr(admin_connection, "GRACE", timedelta())
    connection = AdminConnection({"bootstrap.servers": "127.0.0.1:1"}, timeout=timedelta(milliseconds=500))
    with pytest.raises(BrokerUnavailable):
        connection.wait(Future(), "describe the cluster")
    [record] = [r for r in caplog.records if r.getMessage() == "cluster_does_not_answer"]
    assert vars(record)[NEXT] == "waiting for it, 0.5 s in all"


EVENTS = st.lists(
    st.tuples(
        st.floats(0, 5),  # seconds since the previous event
        st.one_of(
            st.tuples(st.just("failed"), st.sampled_from("abc"), st.booleans()),
            st.tuples(st.just("down")),
            st.tuples(st.just("answered")),
        ),
    ),
    max_size=50,
)


@given(events=EVENTS, asked=st.floats(0, 20), patience=st.floats(0.1, 30))
@property_examples()
def test_a_call_ends_early_only_when_all_brokers_are_down(
    events: list[tuple[float, tuple[object, ...]]], asked: float, patience: float
) -> None:
    """Checked against a model: events since the last answer decide."""
    known, down, failures, now = Unreachable("somewhere:1"), False, dict[str, tuple[bool, float]](), 0.0
    for wait, event in events:
        now += wait
        match event:
            case ("failed", str(broker), bool(is_permanent)):
                known.failed(Failure(broker, "reason", "", is_permanent=is_permanent), now)
                failures[broker] = is_permanent, now
            case ("down",):
                known.all_down()
                down = True
            case _:
                known.answered()
                down, failures = False, {}
        waited = now - asked
        verdict = known.verdict(asked, now, timedelta(seconds=patience))
        since = [is_permanent for is_permanent, at in failures.values() if at >= asked]
        settled = waited >= min(MIN_WAIT.total_seconds(), timedelta(seconds=patience).total_seconds())
        hopeless = settled and bool(since) and all(since)
        over = waited >= timedelta(seconds=patience).total_seconds()
        assert bool(verdict) == (down and (hopeless or over))
        if verdict:
            assert all(broker in verdict for broker in failures)
            assert failures or "somewhere:1" in verdict


def test_many_brokers_are_counted_not_listed() -> None:
    known = Unreachable("x")
    for n in range(9):
        known.failed(Failure(f"b{n}", "refused", "", is_permanent=False), 0.0)
    assert known.text() == "b0: refused | b1: refused | b2: refused | and 6 more"


# --- the real client -------------------------------------------------------------------------------------------------


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port without a listener, which no other process can take."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize("properties", [{}, {"log_level": "0"}], ids=["talkative", "silent"])
def test_an_unknown_host_is_named_at_once(properties: dict[str, str]) -> None:
    admin = KafkaAdmin({"bootstrap.servers": "no-such-host.invalid:9092", **properties})
    for call in (admin.cluster_id, admin.topics):
        began = time.monotonic()
        with pytest.raises(BrokerUnavailable, match=r"no-such-host.invalid:9092.*correct bootstrap.servers"):
            call()
        assert time.monotonic() - began < AT_ONCE


def test_a_port_without_a_listener_is_named_within_the_first_contact(closed_port: int) -> None:
    servers, limit = {"bootstrap.servers": f"127.0.0.1:{closed_port}"}, timedelta(seconds=0.5)
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable, match=rf"describe topic t: .*127.0.0.1:{closed_port}.*Connection refused"):
        KafkaAdmin(servers, first_contact=limit).describe(["t"])
    assert time.monotonic() - began < AT_ONCE


def test_a_request_for_a_group_is_not_repeated_without_a_broker(closed_port: int) -> None:
    began = time.monotonic()
    servers = {"bootstrap.servers": f"127.0.0.1:{closed_port}"}
    with pytest.raises(BrokerUnavailable, match=r"describe group g: .*Connection refused"):
        KafkaGroups(servers, servers, first_contact=timedelta(seconds=0.5)).facts("g")
    assert time.monotonic() - began < AT_ONCE


def test_a_client_without_an_answer_is_replaced_once_it_is_not_new_any_more(
    closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client whose broker named no broker may never send a request again."""
    admin = KafkaAdmin({"bootstrap.servers": f"127.0.0.1:{closed_port}"}, first_contact=timedelta(seconds=1))
    new = admin.connection.client
    with pytest.raises(BrokerUnavailable):
        admin.describe(["t"])
    assert admin.connection.client is new
    monkeypatch.setattr(admin_connection, "REPLACED_AFTER", timedelta())
    admin.connection._connect()
    old = admin.connection.client
    with pytest.raises(BrokerUnavailable):
        admin.describe(["t"])
    assert admin.connection.client is not old
