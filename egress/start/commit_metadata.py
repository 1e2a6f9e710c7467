"""The metadata of every commit of the egress group: `start=<offset> partitions=<count> topic=<id>`.

It never changes for a partition:

    start       where the archive of the partition began; distinguishes a partition that never had a record from one
                whose archive is missing
    partitions  how many partitions the topic had then, so that partitions added later are recognized
    topic       the incarnation of the topic that the offset belongs to, since a topic created again begins at 0
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from infra.contracts.cluster import Committed


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    begun_at: int  # first offset that this archive was ever meant to hold
    partition_count: int
    incarnation_id: str = ""  # the topic id, or the generated one; empty: the commit is older than this field

    def __str__(self) -> str:
        topic = f" topic={self.incarnation_id}" if self.incarnation_id else ""
        return f"start={self.begun_at} partitions={self.partition_count}{topic}"


_PATTERN = re.compile(r"start=(\d{1,19}) partitions=(\d{1,9})(?: topic=([A-Za-z0-9_-]{1,64}))?")


def read_commit_metadata(committed: Committed) -> CommitMetadata | None:
    """None when the commit is not ours: made by the ancestor or an operator."""
    match = _PATTERN.fullmatch(committed.metadata)
    return CommitMetadata(int(match[1]), int(match[2]), match[3] or "") if match else None
