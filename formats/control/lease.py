"""Holder, expiry and token of a lease."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from formats.codec import VERSION, dump, load
from formats.errors import MalformedEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """`token` grows with every holder: what a later one did cannot be an earlier one's doing."""

    token: int
    owner: str
    until: datetime  # UTC


def encode_lease(lease: Lease) -> bytes:
    return dump({"owner": lease.owner, "until": lease.until.isoformat(), "v": VERSION})


def decode_lease(token: int, data: bytes) -> Lease:
    """Raises MalformedEvent, also for a newer version."""
    try:
        d = load(data)
        return Lease(token=token, owner=str(d["owner"]), until=datetime.fromisoformat(d["until"]))
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEvent(f"not a lease: {data[:200]!r} ({error})") from error
