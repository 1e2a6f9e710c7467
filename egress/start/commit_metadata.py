"""The note that every commit of the egress group carries.

`start=<offset> partitions=<count> topic=<id>`, which never changes again: where the archive of this partition was
begun, so that a partition that was positioned but never had a record is told from one whose archive is missing; how
many partitions the topic had then, so that those added later are known as such; and of which life of the topic the
offset is, since a topic created again begins anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from infra.contracts.cluster import Committed


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    begun_at: int  # first offset this archive was ever meant to hold
    partition_count: int
    life: str = ""  # the topic id, or what stands for it; empty: written before notes had it

    def __str__(self) -> str:
        life = f" topic={self.life}" if self.life else ""
        return f"start={self.begun_at} partitions={self.partition_count}{life}"


_NOTE = re.compile(r"start=(\d{1,19}) partitions=(\d{1,9})(?: topic=([A-Za-z0-9_-]{1,64}))?")


def read_commit_metadata(committed: Committed) -> CommitMetadata | None:
    """None when somebody else (the ancestor, an operator) made the commit."""
    match = _NOTE.fullmatch(committed.metadata)
    return CommitMetadata(int(match[1]), int(match[2]), match[3] or "") if match else None
