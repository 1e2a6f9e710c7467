"""How a restore treats its destinations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from infra.contracts.cluster import TopicFacts
from replicator.restore.choices import AclSource, ConfigMode
from replicator.restore.conflicts import ConflictKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """How target topics are created, and which conflicts are accepted. `archive` means the catalogue of the source that
    was in force at the end of the selected timestamps, or the newest one."""

    accept: Collection[ConflictKind] = ()
    partition_count: int | None = None  # of topics that are created; None: as recorded in the archive
    replication_factor: int = -1  # −1: the cluster's default
    configs: Mapping[str, str] = field(default_factory=dict)  # of topics that are created
    configs_from: ConfigMode = ConfigMode.TARGET  # what else they are created with: see `creation`
    acls: AclSource = AclSource.NONE  # which ACLs destinations get
    purge: bool = False  # whether destinations that hold records are emptied; to be accepted as ConflictKind.PURGE

    @property
    def needs_catalog(self) -> bool:
        return self.configs_from == ConfigMode.ARCHIVE or self.acls == AclSource.ARCHIVE

    def not_applied(self, facts: TopicFacts, configs: Mapping[str, str]) -> Iterator[str]:
        """What was given for a topic that is created, where the topic exists with `configs` and has something else."""
        given = [f"--topic-config {name}={value}" for name, value in self.configs.items() if configs.get(name) != value]
        if self.partition_count not in (None, facts.partition_count):
            given.append(f"--partition-count {self.partition_count}")
        if self.replication_factor > 0:
            given.append(f"--replication-factor {self.replication_factor}")
        if given:
            why = f"{facts.name} exists, and a restore changes no settings of such a topic"
            yield f"{why}: {', '.join(given)} is ignored"
