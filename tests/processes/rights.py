"""Principals of a site that have the rights which docs/rights.md documents, and no other.

documented()  ──> a Grant for each row and operation of the table
Rights(site, B, "ingress", destinations=[...])  ──> a principal with all of them; `forbid` and `allow` change one
Rights(site, B, "ingress", printed=["ingress"], like=worker)  ──> one with what `replicator rights` prints
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]  # its stubs hide what it documents

from replicator.rights.table import KAFKA, On
from tests.infra.principal import GROUP, TOPIC, TRANSACTIONAL_ID, Principal
from tests.processes.harness import ROOT, to_toml

if TYPE_CHECKING:
    from pathlib import Path

    from tests.processes.harness import Site, Worker

TOPICS, DESTINATIONS = On.TOPICS, On.DESTINATIONS
EGRESS_GROUP, INGRESS_GROUP = On.EGRESS_GROUP, On.INGRESS_GROUP
EVENTS, CHECKPOINTS, LEDGER, OFFSET_MAP = On.EVENTS, On.CHECKPOINTS, On.LEDGER, On.OFFSET_MAP
IDENTITIES, RESTORES, RESTORE_IDENTITIES = On.IDENTITIES, On.RESTORES, On.RESTORE_IDENTITIES
COMMAND_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Grant:
    """One operation on one row of the table."""

    who: str
    resource: str
    operation: str

    def __str__(self) -> str:
        return f"{self.who}: {self.operation} on {self.resource}".replace("`", "")


def documented() -> Sequence[Grant]:
    """In the order of the page."""
    return [
        Grant(right.who.replace("`", ""), right.on, operation)
        for right in KAFKA
        if right.on is not None
        for operation in right.operations
    ]


class Rights:
    """A principal of region `region` that may do what is documented for `who`."""

    def __init__(
        self,
        site: Site,
        region: str,
        who: str,
        *,
        topics: Collection[str] = (),
        destinations: Collection[str] = (),
        missing: Grant | None = None,
        word: str = "",
        printed: Sequence[str] = (),
        like: Worker | None = None,
    ) -> None:
        """`missing`: all but this one. `word`: of the principal's name, where a site has several for `who`. `printed`:
        arguments of `replicator rights`, which is asked with the configuration of `like`. The site's processes have the
        password in their environment."""
        self._site, self.who = site, who
        word = re.sub(r"\W+", "_", word or who)
        self._names: Mapping[str, tuple[ResourceType, Collection[str], bool]] = {
            TOPICS: (TOPIC, topics, False),
            DESTINATIONS: (TOPIC, destinations, False),
            EGRESS_GROUP: (GROUP, [site.egress_group], False),
            INGRESS_GROUP: (GROUP, [site.ingress_group], False),
            EVENTS: (TOPIC, [f"{site.name}.events"], False),
            CHECKPOINTS: (TOPIC, [f"{site.name}.checkpoints"], False),
            OFFSET_MAP: (TOPIC, [f"{site.name}.offsetmap"], False),
            LEDGER: (TOPIC, [f"{site.name}.ledger"], False),
            IDENTITIES: (TRANSACTIONAL_ID, [site.ingress_group], True),
            RESTORES: (TOPIC, ["replicator.restore."], True),
            RESTORE_IDENTITIES: (TRANSACTIONAL_ID, ["replicator.restore."], True),
        }
        self.principal = Principal(site.stack.brokers[region], f"{site.name}.{word}")
        self._variable = f"PASSWORD_OF_{word.upper()}"
        site.environment[self._variable] = self.principal.name
        if like is not None:
            self._allow_printed(like, printed)
            return
        for grant in documented():
            if grant.who == who and grant != missing:
                self.allow(grant)

    def _allow_printed(self, like: Worker, printed: Sequence[str]) -> None:
        like.write(like.tables)
        code, text = like.run("rights", *printed, "--json")
        assert code == 0, text
        for role in json.loads(text).values():
            for acl in role["kafka"]:
                operations = [AclOperation[one] for one in acl["operations"]]
                kind, prefixed = ResourceType[acl["resource_type"]], acl["pattern_type"] == "PREFIXED"
                self.principal.allow(kind, acl["name"], *operations, prefixed=prefixed)

    @property
    def kafka(self) -> Mapping[str, Any]:
        """For the configuration: `site.ingress(kafka=…)`."""
        return {**self.principal.properties, "sasl.password": f"${{{self._variable}}}"}

    def file(self, like: Worker) -> Path:
        """The configuration of `like` under this principal, on its cluster."""
        path = self._site.folder / f"{self.principal.name}.toml"
        kafka = {k: v for k, v in like.tables.get("kafka", {}).items() if isinstance(v, dict)}
        path.write_text(to_toml({**like.tables, "kafka": {**kafka, **self.kafka}}), encoding="utf-8")
        return path

    def run(self, like: Worker, *command: str) -> tuple[int, str]:
        """A command with that file: its exit code, and what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "replicator", *command, "--config", str(self.file(like))],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env=self._site.environment,
            timeout=COMMAND_SECONDS,
        )
        return done.returncode, done.stdout + done.stderr

    def names(self, grant: Grant) -> Collection[str]:
        """Of the resources it is about; prefixes, where it is prefixed."""
        return self._names[grant.resource][1]

    def allow(self, grant: Grant) -> None:
        kind, names, prefixed = self._names[grant.resource]
        for name in names:
            for operation in _with_implying(grant):
                self.principal.allow(kind, name, AclOperation[operation], prefixed=prefixed)

    def forbid(self, grant: Grant) -> None:
        kind, names, prefixed = self._names[grant.resource]
        for name in names:
            for operation in _with_implying(grant):
                self.principal.forbid(kind, name, AclOperation[operation], prefixed=prefixed)


def _with_implying(grant: Grant) -> Sequence[str]:
    """The operation, and what includes it: without it, that has to go, too."""
    implying = [] if grant.operation != "DESCRIBE_CONFIGS" else ["ALTER_CONFIGS"]
    granted = {one.operation for one in documented() if (one.who, one.resource) == (grant.who, grant.resource)}
    return [grant.operation, *(one for one in implying if one in granted)]
