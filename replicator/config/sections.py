"""The sections of a file: which there are, which settings each has, and what is wrong where a section is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from compaction.retention_settings import RetentionRule, RetentionSettings
from compaction.settings import CompactionJob, CompactionSettings
from egress.settings import EgressSettings, EgressTopicSettings
from egress.sync_settings import SyncSettings
from infra.settings.encryption import EncryptionSettings
from infra.settings.kafka import AUTH_NAMES, ROLES, KafkaSettings
from infra.settings.schema_registry import SchemaRegistrySettings
from infra.settings.storage import S3Settings, SqsSettings
from ingress.groups.settings import GroupSettings
from ingress.settings import IngressSettings
from ingress.source_settings import IngressSource
from replicator.config.contradictions import NO_KAFKA, NO_QUEUE, between
from replicator.config.convert import kind
from replicator.config.settings import Config, LogSettings, MetricsSettings
from replicator.config.table_reader import TableReader

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")

CheckClient = Callable[[Mapping[str, str]], Iterable[tuple[str, str]]]
"""Maps librdkafka properties to those that the client refuses, each with the reason."""

SECTIONS = (
    *("kafka", "s3", "sqs", "egress", "ingress", "sync", "compaction", "retention", "schema_registry"),
    *("encryption", "groups", "metrics", "log"),
)
ALONE = ("kafka", "schema_registry", "encryption", "groups", "metrics", "log")
"""Sections that contradict no other."""


@dataclass(frozen=True, slots=True)
class Sections:
    """Reads the sections of one file; `tables` collects the problems. Every method returns None for invalid parts."""

    tables: TableReader
    check_client: CheckClient

    def config(self, tree: object, source: str) -> Config | None:
        values = self.tables.values(Config, tree, (), own=SECTIONS, partial=True)
        if values is None or not isinstance(tree, dict):
            return None
        sections: dict[str, Any] = {
            "kafka": self._kafka(tree["kafka"]) if "kafka" in tree else None,
            "s3": self.tables.section(S3Settings, tree.get("s3"), ("s3",)) if "s3" in tree else None,
            "sqs": self.tables.section(SqsSettings, tree["sqs"], ("sqs",)) if "sqs" in tree else None,
            "egress": self._with_topics(EgressSettings, EgressTopicSettings, tree["egress"], ("egress",))
            if "egress" in tree
            else None,
            "ingress": self._ingress(tree["ingress"]) if "ingress" in tree else None,
            "sync": self._sync(tree["sync"]) if "sync" in tree else None,
            "compaction": self._compaction(tree["compaction"]) if "compaction" in tree else None,
            "retention": self._with_topics(RetentionSettings, RetentionRule, tree["retention"], ("retention",))
            if "retention" in tree
            else None,
            "schema_registry": self.tables.section(
                SchemaRegistrySettings, tree["schema_registry"], ("schema_registry",)
            )
            if "schema_registry" in tree
            else None,
            "encryption": self.tables.section(EncryptionSettings, tree["encryption"], ("encryption",))
            if "encryption" in tree
            else None,
            "groups": self.tables.section(GroupSettings, tree.get("groups", {}), ("groups",)),
            "metrics": self.tables.section(MetricsSettings, tree.get("metrics", {}), ("metrics",)),
            "log": self.tables.section(LogSettings, tree.get("log", {}), ("log",)),
        }
        if "region" not in tree:
            self.tables.problem(("region",), "missing: the name of this region, which its archive carries")
        if "s3" not in tree:
            self.tables.problem(("s3",), 'missing: the archive\'s [s3] section with its "bucket"')
        if not self.tables.problems:
            return self.tables.built(Config, values | sections | {"source": source}, ())
        # There are problems already; add the contradictions between the valid sections.
        present = {name: sections[name] for name in SECTIONS if name not in ALONE}
        self.tables.problems += [f"{path}: {what}" for path, what in between(region=values.get("region"), **present)]
        if "ingress" in tree and "sqs" not in tree:
            self.tables.problems.append(": ".join(NO_QUEUE))
        if "kafka" not in tree and ("egress" in tree or "ingress" in tree):
            self.tables.problems.append(": ".join(NO_KAFKA))
        return None

    def _kafka(self, raw: object) -> KafkaSettings | None:
        if not isinstance(raw, dict):
            self.tables.problem(("kafka",), f"must be a table, not {kind(raw)}")
            return None
        tables: dict[str, object] = {role: raw.get(role, {}) for role in ROLES}
        values = {role: self.tables.properties(table, ("kafka", role)) for role, table in tables.items()}
        own = self.tables.values(
            KafkaSettings, {k: v for k, v in raw.items() if k in AUTH_NAMES}, ("kafka",), partial=True
        )
        base = self.tables.properties({k: v for k, v in raw.items() if k not in (*ROLES, *AUTH_NAMES)}, ("kafka",))
        for table, where in ((base, ("kafka",)), *((values[role], ("kafka", role)) for role in ROLES)):
            for name, what in self.check_client(table):
                self.tables.problem((*where, name), what)
        return self.tables.built(KafkaSettings, {"base": base, **values, **(own or {})}, ("kafka",))

    def _with_topics(self, cls: type[S], rule: type[DataclassInstance], raw: object, path: tuple[str, ...]) -> S | None:
        """The section of `cls` with a rule for each table below `topics`."""
        values = self.tables.values(cls, raw, path, own=("topics", "defaults"), deeper=rule)
        if values is None or not isinstance(raw, dict):
            return None
        rules = self.tables.topic_rules(rule, raw, path)
        return None if rules is None else self.tables.built(cls, values | {"topics": rules}, path)

    def _ingress(self, raw: object) -> IngressSettings | None:
        path = ("ingress",)
        values = self.tables.values(IngressSettings, raw, path, own=("sources", "defaults"), deeper=IngressSource)
        if values is None or not isinstance(raw, dict):
            return None
        defaults = self.tables.values(IngressSource, raw.get("defaults", {}), (*path, "defaults"), partial=True) or {}
        if "topic" in defaults:
            self.tables.problem(
                (*path, "defaults", "topic"), "belongs to a source; a default would deliver it many times"
            )
        tables = raw.get("sources", [])
        if not isinstance(tables, list):
            self.tables.problem(
                (*path, "sources"), f"must be tables, each under [[ingress.sources]], not {kind(tables)}"
            )
            return None
        sources = [
            self.tables.section(IngressSource, table, (*path, "sources", n), _defaults_of(table, defaults))
            for n, table in enumerate(tables)
        ]
        if None in sources:
            return None
        return self.tables.built(IngressSettings, values | {"sources": tuple(sources)}, path)

    def _sync(self, raw: object) -> SyncSettings | None:
        path = ("sync",)
        values = self.tables.values(SyncSettings, raw, path, own=("destination", "queue"))
        if values is None or not isinstance(raw, dict):
            return None
        if "destination" not in raw:
            self.tables.problem((*path, "destination"), 'missing: the [sync.destination] section with its "bucket"')
            return None
        destination = self.tables.section(S3Settings, raw["destination"], (*path, "destination"))
        queue = self.tables.section(SqsSettings, raw["queue"], (*path, "queue")) if "queue" in raw else None
        if destination is None:
            return None
        return self.tables.built(SyncSettings, values | {"destination": destination, "queue": queue}, path)

    def _compaction(self, raw: object) -> CompactionSettings | None:
        path = ("compaction",)
        values = self.tables.values(
            CompactionSettings, raw, path, own=("jobs", "defaults", "spark"), deeper=CompactionJob
        )
        if values is None or not isinstance(raw, dict):
            return None
        defaults = self.tables.values(CompactionJob, raw.get("defaults", {}), (*path, "defaults"), partial=True) or {}
        if "name" in defaults:
            self.tables.problem((*path, "defaults", "name"), "belongs to a job: no two may have the same")
        tables = raw.get("jobs", [])
        if not isinstance(tables, list):
            self.tables.problem((*path, "jobs"), f"must be tables, each under [[compaction.jobs]], not {kind(tables)}")
            return None
        jobs = [self.tables.section(CompactionJob, t, (*path, "jobs", n), defaults) for n, t in enumerate(tables)]
        if None in jobs:
            return None
        spark = self.tables.properties(raw.get("spark", {}), (*path, "spark"))
        return self.tables.built(CompactionSettings, values | {"jobs": tuple(jobs), "spark": spark}, path)


def _defaults_of(table: object, defaults: Mapping[str, object]) -> Mapping[str, object]:
    """A source's own replication policy beats the destination_topic of [ingress.defaults]."""
    if isinstance(table, dict) and "replication_policy" in table:
        return {name: value for name, value in defaults.items() if name != "destination_topic"}
    return defaults
