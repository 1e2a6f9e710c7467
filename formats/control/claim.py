"""Which incarnation of a topic an archive path belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from formats.codec import Codec

UNREADABLE = "(its claim cannot be read)"  # in place of the topic id of an archive path: no topic has it


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicClaim:
    """The incarnation of a topic for which an archive path was claimed. `number` counts the paths of one topic, from
    0."""

    topic_id: str
    cluster_id: str
    number: int
    claimed_at: datetime  # UTC
    fork: int = 0  # number of the log fork after which the path begins, from 1; 0: it begins with the topic
    forked_from: str = ""  # the path that holds the log up to that fork


_CODEC = Codec(TopicClaim, "a claim of an archive path", omitted=("fork", "forked_from"))
encode_topic_claim = _CODEC.encode
decode_topic_claim = _CODEC.decode
