"""Counts HTTP requests in the S3 server's own log: all that a bucket's owner pays for, including parts and retries."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_REQUEST = re.compile(r'"(?P<method>[A-Z]+) (?P<target>\S+) HTTP/[0-9.]+" [0-9]{3} ')
KINDS = ("PUT", "POST", "LIST", "GET", "HEAD", "DELETE")


@dataclass(frozen=True, slots=True)
class ServerLog:
    """The log at `path` has one line per request, written before the response."""

    path: Path

    def position(self) -> int:
        return self.path.stat().st_size

    def requests(self, bucket: str, since: int) -> dict[str, int]:
        """Requests to `bucket` after position `since`, by kind. A listing is a GET with a price of its own: LIST."""
        with self.path.open("rb") as file:
            file.seek(since)
            lines = file.read().decode("utf-8", errors="replace").splitlines()
        found = Counter(kind for line in lines if (kind := kind_of(line, bucket)))
        return {kind: found[kind] for kind in (*KINDS, *sorted(found.keys() - set(KINDS))) if found[kind]}


def kind_of(line: str, bucket: str) -> str | None:
    """Kind of a request to `bucket`; None: not a request, or to another bucket or a queue."""
    match = _REQUEST.search(_COLOURS.sub("", line))
    if match is None:
        return None
    target = urlsplit(match["target"])
    if target.path.split("/")[1] != bucket:
        return None
    is_listing = match["method"] == "GET" and "list-type" in parse_qs(target.query)
    return "LIST" if is_listing else match["method"]
