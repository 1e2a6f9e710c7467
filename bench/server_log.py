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

    def requests(self, bucket: str, since: int, until: int | None = None, *, without: str = "") -> dict[str, int]:
        """Requests to `bucket` after position `since`, by kind. A listing is a GET with a price of its own: LIST.
        `without`: begins the keys of objects whose requests are left out."""
        lines = [line for line in _lines(self.path, since, until) if not without or f"/{bucket}/{without}" not in line]
        return _ordered(Counter(kind for line in lines if (kind := kind_of(line, bucket))))


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


# --- versitygw ---

_OPERATIONS = {
    "PutObject": "PUT",
    "UploadPart": "PUT",
    "CreateMultipartUpload": "POST",
    "CompleteMultipartUpload": "POST",
    "ListObjectsV2": "LIST",
    "GetObject": "GET",
    "HeadObject": "HEAD",
    "DeleteObject": "DELETE",
    "AbortMultipartUpload": "DELETE",
    "DeleteObjects": "POST",
}


@dataclass(frozen=True, slots=True)
class VersityLog:
    """versitygw's access log, in the form of S3's own: one line for each request, once it is answered. Interface of
    `ServerLog`."""

    path: Path

    def position(self) -> int:
        return self.path.stat().st_size

    def requests(self, bucket: str, since: int, until: int | None = None, *, without: str = "") -> dict[str, int]:
        """As `ServerLog.requests`."""
        found: Counter[str] = Counter()
        for line in _lines(self.path, since, until):
            fields = line.split(" ")
            if len(fields) < 11 or fields[1] != bucket or (without and fields[8].startswith(without)):
                continue
            operation = fields[7].removeprefix("s3_").rpartition(":")[2]
            found[_OPERATIONS.get(operation, operation)] += 1
        return _ordered(found)


def _lines(path: Path, since: int, until: int | None) -> list[str]:
    with path.open("rb") as file:
        file.seek(since)
        return file.read(-1 if until is None else until - since).decode("utf-8", errors="replace").splitlines()


def _ordered(found: Counter[str]) -> dict[str, int]:
    return {kind: found[kind] for kind in (*KINDS, *sorted(found.keys() - set(KINDS))) if found[kind]}
