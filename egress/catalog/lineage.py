"""Through which clusters the records of this cluster's topics went, by the ledger of the ingress that created them.

A topic that was not mirrored here has no entry, and went through none. One that the ingress is creating has an intent
and no entry yet: it is left out until it has, since a catalogue without its lineage would let its records go round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.messages.ledger import Ownership

COMPLETED_WITHIN = timedelta(minutes=10)  # from the intent to create a topic to its entry, if its creator lives
READ_AGAIN = timedelta(minutes=10)


@dataclass(slots=True)
class Lineages:
    """Use from one thread at a time."""

    ledger: Callable[[], Ownership]  # empty without a ledger topic; raises BrokerUnavailable and TargetError
    _known: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    _read_at: datetime | None = None

    def of(self, topics: Collection[tuple[str, str]], now: datetime) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Ids of clusters, the nearest first, by name and topic id. Topics that are being created are left out. Reads
        the ledger for topics that it was not read for, and every READ_AGAIN: an entry may be corrected."""
        is_old = self._read_at is None or now - self._read_at >= READ_AGAIN
        if is_old or set(topics) - self._known.keys():
            self._known = dict(_lineages(topics, self.ledger(), now))
            self._read_at = now
        return self._known


def _lineages(
    topics: Collection[tuple[str, str]], ledger: Ownership, now: datetime
) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    for name, topic_id in topics:
        owned, intent = ledger.topic(name, topic_id), ledger.open_intent(name)
        if owned is not None:
            yield (name, topic_id), owned.lineage
        elif intent is None or now - intent.at > COMPLETED_WITHIN:
            yield (name, topic_id), ()
