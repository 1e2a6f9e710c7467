from __future__ import annotations

import base64
from collections.abc import Sequence

import pytest

from infra.runtime.http_server import Request
from replicator.console.access import AccessRules, host_name, rules

TOKEN = "a-token-of-some-length"
LOCAL = rules("127.0.0.1", token=None)


def basic(password: str, user: str = "me") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def status(
    given: AccessRules, *headers: tuple[str, str], hosts: Sequence[str] = ("localhost:8481",), peer: str = "127.0.0.1"
) -> int:
    """Of the answer to a request with these headers; 200: it is answered."""
    request = Request(path="/", headers=[*(("host", host) for host in hosts), *headers], peer=peer)
    refused = given.refusal(request)
    return 200 if refused is None else refused.status


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("localhost:8481", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:8481", 200),
        ("[::1]:8481", 200),
        ("10.0.0.7", 200),  # an address is no name that another site could point here
        ("evil.example:8481", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_a_page_of_another_site_does_not_reach_it_by_its_own_name(host: str, wanted: int) -> None:
    assert status(LOCAL, hosts=[host]) == wanted


def test_one_host_is_named() -> None:
    assert [status(LOCAL, hosts=hosts) for hosts in ([], ["localhost", "localhost"])] == [400, 400]


def test_names_that_are_given() -> None:
    given = rules("127.0.0.1", token=None, hosts=["Console.Example"])
    assert status(given, hosts=["console.example:443"]) == 200
    assert status(given, hosts=["other.example"]) == 421


@pytest.mark.parametrize(
    ("authorization", "wanted"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        (basic(TOKEN), 200),
        (basic(TOKEN, user="anybody"), 200),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        ("Bearer ", 401),
        (basic(""), 401),
        (basic(f"{TOKEN} "), 401),
        ("Basic !!!", 401),
        (f"Digest {TOKEN}", 401),
        (TOKEN, 401),
    ],
)
def test_token(authorization: str, wanted: int) -> None:
    given = rules("10.0.0.7", token=TOKEN)
    assert status(given, ("authorization", authorization)) == wanted
    assert status(given) == 401


def test_the_host_is_checked_before_the_token() -> None:
    given = rules("10.0.0.7", token=TOKEN)
    assert status(given, ("authorization", f"Bearer {TOKEN}"), hosts=["evil.example"]) == 421
    assert status(given, *[("authorization", f"Bearer {TOKEN}")] * 2) == 401


def test_a_refusal_asks_browsers_for_the_token() -> None:
    refused = rules("10.0.0.7", token=TOKEN).refusal(Request(path="/", headers=[("host", "10.0.0.7")]))
    assert refused is not None
    (asked,) = [value for name, value in refused.headers if name == "WWW-Authenticate"]
    assert asked.startswith("Basic realm=")
    assert TOKEN.encode() not in refused.body


@pytest.mark.parametrize(
    ("peer", "users", "wanted"),
    [
        ("10.0.0.9", ["ada"], 200),
        ("::ffff:10.0.0.9", ["ada"], 200),
        ("::ffff:10.0.1.9", ["ada"], 403),
        ("10.0.0.9", [], 403),
        ("10.0.0.9", [""], 403),
        ("10.0.0.9", ["ada", "bob"], 403),  # one of them came from the client
        ("10.0.1.9", ["ada"], 403),  # not from the proxy
        ("", ["ada"], 403),
    ],
)
def test_proxy(peer: str, users: list[str], wanted: int) -> None:
    given = rules("0.0.0.0", token=None, proxies=["10.0.0.0/24"], user_header="X-Forwarded-User")
    assert status(given, *(("x-forwarded-user", user) for user in users), peer=peer) == wanted


def test_proxy_or_token() -> None:
    given = rules("0.0.0.0", token=TOKEN, proxies=["10.0.0.9"], user_header="X-Forwarded-User")
    assert status(given, ("x-forwarded-user", "ada"), peer="10.0.0.9") == 200
    assert status(given, ("authorization", f"Bearer {TOKEN}"), peer="10.0.5.5") == 200
    assert status(given, peer="10.0.5.5") == 401


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_on_loopback_nothing_is_needed(host: str) -> None:
    assert rules(host, token=None).is_open


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "console.example", "localhost.example", ""])
def test_elsewhere_it_is_never_open(host: str) -> None:
    with pytest.raises(ValueError, match="can be reached from other machines: give --token-file"):
        rules(host, token=None)
    assert not rules(host, token=TOKEN).is_open
    assert not rules(host, token=None, proxies=["10.0.0.9"], user_header="X-User").is_open


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"token": "short"}, "too short"),
        ({"token": "tökën-with-other-letters"}, "ASCII"),
        ({"token": None, "proxies": ["10.0.0.0/24"]}, "belong together"),
        ({"token": None, "user_header": "X-User"}, "belong together"),
        ({"token": None, "proxies": ["proxy.example"], "user_header": "X-User"}, "not an address or network"),
        ({"token": None, "proxies": ["10.0.0.1/24"], "user_header": "X-User"}, "not an address or network"),
    ],
)
def test_rules_that_are_none(given: dict[str, object], wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        rules("127.0.0.1", **given)  # type: ignore[arg-type]


def test_names_of_hosts() -> None:
    wanted = {"a.b:1": "a.b", "[::1]:80": "::1", "::1": "::1", "A.b.": "a.b", "[::1": "::1"}
    assert {host: host_name(host) for host in wanted} == wanted
