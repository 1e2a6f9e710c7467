"""One flow of a MirrorMaker 2 configuration: every key that it reads is mapped, ignored or refused. Pure.

A key of a flow (`a->b.topics`) beats one of its target cluster (`b.topics`), which beats one of all (`topics`). Each
beats an old spelling, of whatever scope.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from replicator.config.flows_form import ARROW as FLOW
from replicator.config.mirrormaker_clients import ClientKey, ClientProperties, client_key
from replicator.config.mirrormaker_file import Finding, ImportedFlow
from replicator.config.mirrormaker_keys import Treatment, rule_of
from replicator.config.mirrormaker_mistyped import decides, no_property
from replicator.config.mirrormaker_properties import FlowProperties
from replicator.config.mirrormaker_scopes import ScopedKey


@dataclass(slots=True)
class FlowImport:
    """`keys`: all of the configuration. `properties`: to which those of the flow are added."""

    source: str
    target: str
    keys: Sequence[ScopedKey]
    properties: FlowProperties
    clients: dict[str, ClientProperties] = field(default_factory=dict)  # by alias
    findings: list[Finding] = field(default_factory=list)

    def imported(self) -> ImportedFlow:
        self.clients = {alias: ClientProperties(alias) for alias in (self.source, self.target)}
        ours = ("", self.target, f"{self.source}{FLOW}{self.target}")
        narrower_last = [key for scope in ours for key in self.keys if key.scope == scope and key.is_setting]
        last = {key.name: key for key in sorted(narrower_last, key=lambda key: key.is_of_today)}
        if (separator := last.get("replication.policy.separator")) is not None:
            self.properties.separator = separator.value.strip()
        for key in self.keys:
            if key.scope in (*ours, self.source) and not (key.is_setting and key.scope in ours):
                self._learn_client(key)
        for key in self.keys:
            if key.is_setting and key.scope in ours:
                if last[key.name] is key:
                    self._found(key, *self.properties.take(key.name, key.value, key.text))
                else:
                    self._found(key, Treatment.IGNORED, f"{last[key.name].text} beats it")
            elif key.scope in (*ours, self.source):
                self._take_client(key)
        return ImportedFlow(
            source=self.source,
            target=self.target,
            settings=self.properties.table,
            egress=self.properties.egress,
            ingress=self.properties.ingress,
            groups=self.properties.group_settings,
            clients=self.clients,
            findings=self.findings,
        )

    def _found(self, key: ScopedKey, treatment: Treatment, reason: str) -> None:
        self.findings.append(Finding(key.text, key.shown, treatment, reason))

    # --- properties of clients

    def _client_of(self, key: ScopedKey) -> tuple[ClientKey | None, Sequence[str]]:
        """What a key is to the clients of which clusters."""
        found = client_key(key.name, is_of_cluster=bool(key.scope) and FLOW not in key.scope)
        aliases = {"source": [self.source], "target": [self.target], "both": [self.source, self.target]}
        if key.scope in self.clients:
            return found, [key.scope]
        return found, aliases[found.side] if found else ()

    def _learn_client(self, key: ScopedKey) -> None:
        found, names = self._client_of(key)
        if found is not None:
            for alias in names:
                self.clients[alias].learn(found.role, found.name, key.value)

    def _take_client(self, key: ScopedKey) -> None:
        found, names = self._client_of(key)
        if found is None:
            if key.scope == self.source and rule_of(key.name) is not None:
                self._found(key, Treatment.IGNORED, "it is about flows to this cluster")
            else:
                self._take_unknown(key)
            return
        results = [self.clients[alias].take(found.role, found.name, key.value, key.text) for alias in names]
        if found.name == "auto.offset.reset":
            results = [self.properties.take_start(key.value.strip(), found.side, key.text)]
        self._found(key, *results[0])

    def _take_unknown(self, key: ScopedKey) -> None:
        reason = no_property(key.name, key.value)
        if key.scope != self.source and (why := decides(key.name, key.value)):  # of a source are flows to it
            self.properties.settings["enabled"] = False
            reason += f"; {why}"
        self._found(key, Treatment.REFUSED, reason)
