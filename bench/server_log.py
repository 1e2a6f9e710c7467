"""HTTP requests to the S3 server, counted in its own log: all that a bucket's owner pays for, parts, repeats too."""

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
    """`path` grows by one line for each request, written before the answer is."""

    path: Path

    def position(self) -> int:
        return self.path.stat().st_size

    def requests(self, bucket: str, since: int) -> dict[str, int]:
        """By kind, of this bucket, behind position `since`. A listing is a GET of its own price, so it is LIST."""
        with self.path.open("rb") as file:
            file.seek(since)
            lines = file.read().decode("utf-8", errors="replace").splitlines()
        found = Counter(kind for line in lines if (kind := kind_of(line, bucket)))
        return {kind: found[kind] for kind in (*KINDS, *sorted(found.keys() - set(KINDS))) if found[kind]}


def kind_of(line: str, bucket: str) -> str | None:
    """None: not a request, or of another bucket, or of the queue."""
    match = _REQUEST.search(_COLOURS.sub("", line))
    if match is None:
        return None
    target = urlsplit(match["target"])
    if target.path.split("/")[1] != bucket:
        return None
    is_listing = match["method"] == "GET" and "list-type" in parse_qs(target.query)
    return "LIST" if is_listing else match["method"]
