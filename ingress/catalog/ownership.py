"""What in this cluster is ours, as the ledger has it, with what this process wrote since it read the ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from formats.messages.ledger import LedgerEntry, OwnedAcl, OwnedTopic, Ownership
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import ConfigSource, ConfigValue
from infra.contracts.internal_topics import Ledger


@dataclass(slots=True)
class DryLedger:
    """A Ledger that is read and not written: what would be written is forgotten, or seen only here."""

    ledger: Ledger | None  # None: there is none yet
    _topics: dict[tuple[str, str], OwnedTopic] = field(default_factory=dict)

    def read(self) -> Ownership:
        found = Ownership() if self.ledger is None else self.ledger.read()
        return replace(found, topics={**found.topics, **self._topics})

    def write(self, entries: Sequence[LedgerEntry]) -> None:
        self._topics |= {(one.name, one.topic_id): one for one in entries if isinstance(one, OwnedTopic)}

    def remove_acls(self, bindings: Sequence[AclBinding]) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class LedgerView:
    """Use from one thread at a time. Raises BrokerUnavailable and TargetError."""

    ledger: Ledger
    table: Ownership = field(default_factory=Ownership)
    _read_for: frozenset[tuple[str, str]] = frozenset()

    def refresh(self, topics: Collection[tuple[str, str]]) -> None:
        """Read the ledger for these topics, by name and id, unless it was read for all of them: what other processes
        write is about topics that they keep."""
        if not self._read_for.issuperset(topics):
            self.read()
        self._read_for = frozenset(topics)

    def forget(self) -> None:
        """Read it again with the next `refresh`: this process keeps nothing now, and others write meanwhile."""
        self._read_for = frozenset()

    def failed_over(self, regions: Collection[str]) -> Collection[str]:
        """Those of the source regions that decide nothing here, since a failover from them. Reads the ledger: an
        operator's command writes it."""
        self.read()
        return [region for region in regions if self.table.why_held(region)]

    def read(self) -> None:
        self.table = self.ledger.read()

    def replaced(self, topic: OwnedTopic) -> None:
        """Write a newer entry of a topic that is ours."""
        self.ledger.write([topic])
        self.table = replace(self.table, topics={**self.table.topics, (topic.name, topic.topic_id): topic})

    def own(self, bindings: Collection[AclBinding], at: datetime) -> None:
        if not bindings:
            return
        self.ledger.write([OwnedAcl(binding=one, at=at) for one in sorted(bindings)])
        self.table = replace(self.table, acls=self.table.acls | frozenset(bindings))

    def disown(self, bindings: Collection[AclBinding]) -> None:
        if not bindings:
            return
        self.ledger.remove_acls(sorted(bindings))
        self.table = replace(self.table, acls=self.table.acls - frozenset(bindings))


def with_configs_here(owned: OwnedTopic, actual: Mapping[str, ConfigValue], wanted: Collection[str]) -> OwnedTopic:
    """With the names of the configs that are still ours: one that is neither set at the topic any more nor wanted may
    be an operator's from now on. Where nothing is known of who set them, all that are set are ours."""
    is_set = {name for name, config in actual.items() if config.source is ConfigSource.TOPIC}
    ours = is_set if owned.configs is None else {one for one in owned.configs if one in is_set or one in wanted}
    return replace(owned, configs=tuple(sorted(ours)))


def with_configs_set(owned: OwnedTopic, names: Collection[str]) -> OwnedTopic:
    """Before they are set."""
    return replace(owned, configs=tuple(sorted({*(owned.configs or ()), *names})))
