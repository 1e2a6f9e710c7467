"""How a proxy of a test passes an HTTP answer on."""

from __future__ import annotations

from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler

OWN = frozenset({"connection", "transfer-encoding", "date", "server"})
"""Headers that are of a connection, not of what is answered."""


def pass_on(
    handler: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str], body: bytes, cut: int | None = None
) -> None:
    """`cut`: the body ends after so many bytes, of the length that is announced. The answer to HEAD keeps the length
    that the server announced."""
    handler.send_response(status)
    dropped = set(OWN)
    if handler.command != "HEAD":
        dropped.add("content-length")
        handler.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        if name.lower() not in dropped:
            handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body[:cut])
