"""Through which clusters the records of this cluster's topics went, by the ledger of the ingress that created them.

A topic that was not mirrored here has no entry, and went through none. One that the ingress created has an intent, and
perhaps no entry yet: it is left out until it has, since a catalogue without its lineage would let its records go round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from formats.messages.ledger import Ownership
from formats.policies.topic_configs import ConfigValue

Configs = Mapping[str, ConfigValue] | None
"""Of a topic, by name. None: not known."""

READ_AGAIN = timedelta(minutes=10)


@dataclass(slots=True)
class Lineages:
    """Use from one thread at a time."""

    ledger: Callable[[], Ownership]  # empty without a ledger topic; raises BrokerUnavailable and TargetError
    _known: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    _read_at: datetime | None = None

    def of(self, topics: Mapping[tuple[str, str], Configs], now: datetime) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Ids of clusters, the nearest first, by name and topic id. Topics whose creation is unfinished are left out.
        Reads the ledger for topics that it was not read for, and every READ_AGAIN: an entry may be corrected."""
        is_old = self._read_at is None or now - self._read_at >= READ_AGAIN
        if is_old or topics.keys() - self._known.keys():
            self._known = dict(_lineages(topics, self.ledger(), now))
            self._read_at = now
        return self._known


def _lineages(
    topics: Mapping[tuple[str, str], Configs], ledger: Ownership, now: datetime
) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    for (name, topic_id), configs in topics.items():
        owned = ledger.topic(name, topic_id)
        if owned is not None:
            yield (name, topic_id), owned.lineage
        elif not ledger.is_unfinished(name, topic_id, configs, now):
            yield (name, topic_id), ()
