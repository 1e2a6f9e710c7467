"""Removes pages of the offset map whose records the target has deleted, from the map's topic and then from its copies.

    look up topic ids, then log starts ─> read the map ─> decide ─> note in the bucket what goes ─> remove it

What is noted is not read from copies any more, and `gc` removes them. A crash in between leaves pages in the topic,
which the next call finds again: noting them twice changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from formats.messages.map_key import MapKey
from infra.contracts.cluster import TopicPartition
from infra.contracts.internal_topics import OffsetMapEditor, OffsetMapLog
from infra.runtime.log_fields import COUNT, DESTINATION, PARTITION, REGION, TOPIC
from ingress.groups.trimming import MapTrim, is_stale, trims

BATCH = 10_000  # pages of one call of the editor

log = logging.getLogger(__name__)


class TrimNotes(Protocol):
    """Where readers of copies learn what was trimmed: see `infra.archive.offset_maps`."""

    def trimmed(self, key: MapKey, first_start: int | None) -> None:
        """Pages before the one with this start are gone; None: all are. Raises StoreUnavailable."""


@dataclass(slots=True)
class OffsetMapTrimmer:
    """One thread, which also reads `maps` otherwise."""

    maps: OffsetMapLog
    editor: OffsetMapEditor
    copies: TrimNotes | None = None  # None: nothing is copied
    _known: frozenset[MapKey] = field(default=frozenset(), init=False)

    def trim(self, log_starts: Mapping[TopicPartition, int], topic_ids: Mapping[str, str | None]) -> int:
        """Returns how many pages were removed. `topic_ids`: by destination, None where there is no such topic; read
        up after the last call, and before `log_starts`. What is in neither stays. The map of an earlier incarnation
        goes with the second call that sees it. Raises BrokerUnavailable, StoreUnavailable and TargetError: the next
        call removes the rest."""
        pages = {key: one.index for key, one in self.maps.read().items()}
        stale = frozenset(key for key in pages if is_stale(key, topic_ids))
        known, self._known = self._known, stale  # one broker may not know a topic for a moment
        removed = 0
        for trim in trims(pages, log_starts, topic_ids, known):
            self._remove(trim)
            removed += len(trim.starts)
        return removed

    def _remove(self, trim: MapTrim) -> None:
        if self.copies is not None:
            # first: the copies of a destination that is gone are found by its pages in the topic only
            self.copies.trimmed(trim.key, trim.first_start)
        for first in range(0, len(trim.starts), BATCH):
            self.editor.remove(trim.key, trim.starts[first : first + BATCH])
        source = trim.key.delivery.source
        log.info(
            "offset_map_trimmed",
            extra={
                REGION: source.region,
                TOPIC: source.path,
                PARTITION: source.partition,
                DESTINATION: trim.key.delivery.destination_topic,
                COUNT: len(trim.starts),
            },
        )
