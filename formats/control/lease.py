"""Holder, expiry and token of a lease; and how far the clocks of holders may differ."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from formats.codec import Codec

SKEW = timedelta(minutes=5)  # tolerated difference between clocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """`token` grows with every holder, so the work of a later holder cannot be mistaken for an earlier one's."""

    token: int
    owner: str
    until: datetime  # UTC


_CODEC = Codec(Lease, "a lease", outside=("token",))
encode_lease = _CODEC.encode


def decode_lease(token: int, data: bytes) -> Lease:
    """Raises MalformedEvent, also for a newer version."""
    return _CODEC.decode(data, token=token)
