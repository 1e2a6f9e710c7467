"""Whether records are where they are meant to be copied to, before their segments go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from replicator.segment import Segment
from replicator.store import SegmentStore

_UNFINISHED = {
    "PENDING": "its replication is not complete yet",
    "FAILED": "its replication failed: mend the bucket's replication rule, then replicate it again",
}


def _everything(_: Segment) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Of an archive that S3 replicates, or that `replicator sync` copies to `there`, or neither."""

    here: SegmentStore
    there: SegmentStore | None = None
    carried: Callable[[Segment], bool] = _everything  # by `sync`

    def unfit(self, keeper: Segment) -> str:
        """Why nothing inside `keeper` may go yet; empty: it may. Raises StoreUnavailable."""
        info = self.here.stat(keeper)
        if info is None:
            return "it is not stored any more"
        return _UNFINISHED.get(info.replication, "")

    def missing(self, keeper: Segment, segment: Segment) -> str:
        """Why `segment` may not go although `keeper` may: neither was copied yet. Raises StoreUnavailable."""
        if self.there is None:
            return ""
        for one in (keeper, segment):
            if self.carried(one) and self.there.stat(one) is not None:
                return ""
        if not self.carried(keeper) and not self.carried(segment):
            return ""  # this topic is not copied at all
        return f"neither it nor {keeper} was copied by sync yet"

    def uncopied(self, segment: Segment) -> str:
        """Why `segment` may not go for good: it was not copied itself yet. Empty: it may, or is gone already. Raises
        StoreUnavailable."""
        info = self.here.stat(segment)
        if info is None:
            return ""
        if unfinished := _UNFINISHED.get(info.replication):
            return unfinished
        if self.there is None or not self.carried(segment) or self.there.stat(segment) is not None:
            return ""
        return "it was not copied by sync yet"
