"""Checks that a segment is of the topic that its archive path belongs to.

Objects of another cluster's topic with the same name may be copied below a prefix by mistake. Their keys, footers and
digests are valid, so only the topic id distinguishes them. Segments without a known id pass: those of the ancestor,
those in paths without a claim, and those of brokers without topic ids.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import timedelta

from formats.control.claim import TopicClaim
from formats.errors import ForeignSegment, MalformedEvent
from formats.footer import SegmentFooter
from infra.archive.control import ControlStore
from infra.runtime.lifecycle import Deadline

ASK_AGAIN = timedelta(minutes=1)  # between reads of a claim that does not exist


@dataclass(slots=True)
class PathOwners:
    """Thread safe."""

    control: ControlStore
    ask_again: timedelta = ASK_AGAIN
    _claims: dict[tuple[str, str], TopicClaim] = field(default_factory=dict)  # by region and path; claims never change
    _absent: dict[tuple[str, str], Deadline] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, footer: SegmentFooter) -> None:
        """Raises ForeignSegment when the segment is of another topic than its archive path, and StoreUnavailable."""
        origin, segment = footer.origin, footer.segment
        if not origin.topic_id:
            return
        claim = self._claim(segment.source.region, segment.source.path, str(segment))
        if claim is None or not claim.topic_id or claim.topic_id == origin.topic_id:
            return
        raise ForeignSegment(
            f"segment {segment} is of topic id {origin.topic_id} (cluster {origin.cluster_id or 'unknown'}), and its "
            f"path {segment.source.region}/{segment.source.path} belongs to topic id {claim.topic_id} (cluster "
            f"{claim.cluster_id or 'unknown'}): it was copied there from another archive. Remove it from there, and "
            "restore the segment that belongs there, if there was one; another cluster needs a separate region or "
            "prefix"
        )

    def _claim(self, region: str, path: str, segment: str) -> TopicClaim | None:
        where = (region, path)
        with self._lock:
            known, absent = self._claims.get(where), self._absent.get(where)
        if known is not None or (absent is not None and not absent.expired):
            return known
        try:
            found = self.control.claims.of(region, path)
        except MalformedEvent as error:  # an unreadable claim must not be taken for an absent one
            raise ForeignSegment(
                f"the topic of segment {segment} is unknown: {error}. Copy _control/v1/places/{path} again from the "
                "source's bucket"
            ) from error
        with self._lock:
            if found is None:
                self._absent[where] = Deadline(self.ask_again)
            else:
                self._claims[where] = found
        return found
