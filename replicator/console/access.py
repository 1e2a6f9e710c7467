"""Who may read the console. Pure.

    Host     an IP address, "localhost", or a name that was given: a page of another site, whose name was pointed to
             this address (DNS rebinding), comes with that site's name
    token    as `Authorization: Bearer TOKEN`, or as the password of basic authentication, which browsers ask for
    proxy    a request from its address counts as authenticated when it names a user in the proxy's header

On a loopback address neither token nor proxy is needed. Elsewhere one of them is, or the console does not start.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from infra.runtime.http_server import Request, Response

HEADERS: Sequence[tuple[str, str]] = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
    ("Vary", "Accept, Authorization"),
)
SHORTEST_TOKEN = 16  # characters
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """`hosts`: names in small letters, beside addresses and localhost."""

    hosts: frozenset[str] = frozenset()
    token_digest: bytes | None = None  # SHA-256; None: there is no token
    proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    user_header: str = ""  # in small letters

    @property
    def is_open(self) -> bool:
        """Whether anyone who reaches the port may read."""
        return self.token_digest is None and not self.proxies

    def refusal(self, request: Request) -> Response | None:
        """None for a request that may be answered."""
        hosts = request.values("host")
        if len(hosts) != 1:
            return _refused(400, "the request has to name one Host")
        if not self._is_known(hosts[0]):
            return _refused(421, f"this console does not answer to the name {hosts[0]!r}: give it with --host")
        if self.is_open or self._comes_from_proxy(request) or self._has_token(request):
            return None
        if self.token_digest is None:
            return _refused(403, "this console is read through its proxy only")
        asks = ("WWW-Authenticate", 'Basic realm="replicator console: any name, and the token", charset="UTF-8"')
        return _refused(401, "the token of this console is needed", asks)

    def _is_known(self, host: str) -> bool:
        name = host_name(host)
        return name == "localhost" or name in self.hosts or _is_address(name)

    def _comes_from_proxy(self, request: Request) -> bool:
        if not self.proxies or not _is_address(request.peer):
            return False
        users = request.values(self.user_header)
        peer = ip_address(request.peer)
        peer = getattr(peer, "ipv4_mapped", None) or peer  # how a socket of both families names it
        return len(users) == 1 and bool(users[0]) and any(peer in proxy for proxy in self.proxies)

    def _has_token(self, request: Request) -> bool:
        if self.token_digest is None:
            return False
        given = request.values("authorization")
        token = _token_in(given[0]) if len(given) == 1 else b""
        # of digests, which have one length: the time says nothing of the token
        return hmac.compare_digest(digest_of(token), self.token_digest)


def rules(
    listen_host: str,
    *,
    token: str | None,
    hosts: Iterable[str] = (),
    proxies: Iterable[str] = (),
    user_header: str = "",
) -> AccessRules:
    """`listen_host`: the address to bind. Raises ValueError with the remedy when these are no rules, or leave the
    console open beyond this machine."""
    networks = []
    for one in proxies:
        try:
            networks.append(ip_network(one))
        except ValueError as error:
            raise ValueError(f"--proxy {one}: not an address or network, such as 10.0.0.7 or 10.0.0.0/24") from error
    if bool(networks) != bool(user_header):
        raise ValueError(
            "--proxy and --user-header belong together: the address of the proxy, and where it names users"
        )
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise ValueError(f"the token is too short to be safe: give {SHORTEST_TOKEN} characters or more")
    if token is not None and not token.isascii():
        raise ValueError("the token has characters other than ASCII, which browsers send in different ways")
    if token is None and not networks and not is_loopback(listen_host):
        raise ValueError(
            f"--listen {listen_host} can be reached from other machines: give --token-file, or --proxy with "
            "--user-header; or listen on 127.0.0.1"
        )
    return AccessRules(
        hosts=frozenset(host_name(one) for one in [*hosts, listen_host] if one),
        token_digest=None if token is None else digest_of(token.encode()),
        proxies=tuple(networks),
        user_header=user_header.lower(),
    )


def digest_of(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def host_name(host: str) -> str:
    """A Host header, or an address, without its port."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name if name.count(":") > 1 else name.partition(":")[0].removesuffix(".")


def is_loopback(host: str) -> bool:
    name = host_name(host)
    return name == "localhost" or (_is_address(name) and ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _token_in(authorization: str) -> bytes:
    """The token of a Bearer, or the password of a Basic authorization; empty when there is none."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("latin-1", "replace")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _refused(status: int, why: str, *headers: tuple[str, str]) -> Response:
    return Response(status, _TEXT, f"{why}\n".encode(), headers)
