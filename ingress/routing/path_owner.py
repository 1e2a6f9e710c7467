"""Which topic a place of the archive belongs to, and whether a segment in it is that topic's.

Objects may get below a prefix that they do not belong to: another cluster's topic of the same name, copied by mistake.
Their keys, footers and digests are right, so only the topic's id tells. What says none passes: the ancestor's segments,
places that nobody claimed, brokers without topic ids.
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

ASK_AGAIN = timedelta(minutes=1)  # for the claim of a place that has none


@dataclass(slots=True)
class PathOwners:
    """Safe to call from several threads."""

    control: ControlStore
    ask_again: timedelta = ASK_AGAIN
    _claims: dict[tuple[str, str], TopicClaim] = field(default_factory=dict)  # by region and place; they never change
    _absent: dict[tuple[str, str], Deadline] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, footer: SegmentFooter) -> None:
        """Raises ForeignSegment when the segment is another topic's than its place, StoreUnavailable."""
        origin, segment = footer.origin, footer.segment
        if not origin.topic_id:
            return
        claim = self._claim(segment.source.region, segment.source.path, str(segment))
        if claim is None or not claim.topic_id or claim.topic_id == origin.topic_id:
            return
        raise ForeignSegment(
            f"segment {segment} is of topic id {origin.topic_id} (cluster {origin.cluster_id or 'unknown'}), and its "
            f"place {segment.source.region}/{segment.source.path} belongs to topic id {claim.topic_id} (cluster "
            f"{claim.cluster_id or 'unknown'}): it was copied there from another archive. Remove it from there, and "
            "restore the segment that belongs there, if there was one; another cluster needs a region or prefix of its "
            "own"
        )

    def _claim(self, region: str, place: str, segment: str) -> TopicClaim | None:
        where = (region, place)
        with self._lock:
            known, absent = self._claims.get(where), self._absent.get(where)
        if known is not None or (absent is not None and not absent.expired):
            return known
        try:
            found = self.control.place(region, place)
        except MalformedEvent as error:  # which says nothing; least of all that the place is nobody's
            raise ForeignSegment(
                f"whose segment {segment} is cannot be said: {error}. Copy _control/v1/places/{place} again from the "
                "source's bucket"
            ) from error
        with self._lock:
            if found is None:
                self._absent[where] = Deadline(self.ask_again)
            else:
                self._claims[where] = found
        return found
