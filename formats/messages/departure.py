"""Whether the last owner of a partition that keeps the source's offsets has left it for certain: nothing that it sent
is on its way any more.

    owner A   taken A ──> records ──> all acknowledged ──> left A, at offset e
    owner B                                                                   taken B ──> records ── killed
    owner C                                                                              left A ≠ taken B: C waits

A record outside of a transaction carries no fence, so an owner waits until those of the one before have arrived or
expired. It need not where the one before wrote that it has left, after its last acknowledgement. That word counts only
while no other owner has taken the partition since: each owner writes that it has, acknowledged, before its first
record. The two are records of their own, so that compaction keeps the last of each, whichever arrived late. Pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from formats.codec import VERSION, dump, load, malformed

LEFT = "left"  # kind of these records, as written in their keys


@dataclass(frozen=True, slots=True)
class Departure:
    token: str  # of the owner that has left
    end: int  # next offset of the log then


def left_at(taken_by: str | None, departure: Departure | None) -> int | None:
    """Where the log ends of which nothing is on its way; None: that is not known. `taken_by`: token of the last owner
    that has taken the partition."""
    if departure is None or taken_by is None or departure.token != taken_by:
        return None
    return departure.end


def encode_departure_key(transactional_id: str) -> bytes:
    return dump({"kind": LEFT, "transactional_id": transactional_id})


def encode_departure(departure: Departure) -> bytes:
    return dump({"end": departure.end, "token": departure.token, "v": VERSION})


def decode_departure(key: bytes, data: bytes) -> tuple[str, Departure]:
    """With the transactional id. Raises MalformedEvent, also for a newer version."""
    with malformed("a departure", data):
        fields = load(data)
        return str(json.loads(key)["transactional_id"]), Departure(str(fields["token"]), int(fields["end"]))
