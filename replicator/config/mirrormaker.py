"""Configurations of MirrorMaker 2 as configurations of ours: one file with its clusters and flows.

    properties ─> keys: of all, of a cluster, of a flow ─> for each flow: every key is mapped, ignored or refused
                      `mirrormaker_scopes`                       └──> `mirrormaker_flow`
                                                           all flows ──> clusters and flows, `mirrormaker_file`

What every key means is data: `replicator.config.mirrormaker_keys`. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from infra.settings.field import region_name
from replicator.config.flows_form import ARROW as FLOW
from replicator.config.mirrormaker_clients import client_key
from replicator.config.mirrormaker_file import Finding, ImportedFlow
from replicator.config.mirrormaker_flow import FlowImport
from replicator.config.mirrormaker_keys import Treatment
from replicator.config.mirrormaker_mistyped import concerns, decides, is_enabled, no_cluster, no_property, truth
from replicator.config.mirrormaker_properties import FlowProperties
from replicator.config.mirrormaker_scopes import ScopedKey, aliases_of, scoped_keys


def imported_flows(properties: Mapping[str, str]) -> list[ImportedFlow]:
    """Those that are enabled. Raises ValueError for a file that names no flow (neither `clusters` nor a connector's
    `source.cluster.alias`) or enables none, for an alias that cannot be a region's name, and for an `enabled` that is
    neither true nor false, or is mistyped."""
    keys = list(scoped_keys(properties))
    pairs = _flows(properties, keys)
    for alias in dict.fromkeys(alias for pair in pairs for alias in pair):
        if what := region_name(alias):
            raise ValueError(f"the alias {alias!r} {what}, since it becomes the name of its archive")
    unread = list(_unread(keys, pairs, known={*aliases_of(properties), *(alias for pair in pairs for alias in pair)}))
    off = {flow for _, flows in unread for flow in flows}
    return [
        FlowImport(
            *pair,
            keys,
            FlowProperties(pair[0], settings={"enabled": False} if pair in off else {}),
            findings=[finding for finding, _ in unread],
        ).imported()
        for pair in pairs
    ]


def _unread(
    keys: Sequence[ScopedKey], pairs: Sequence[tuple[str, str]], known: Collection[str]
) -> Iterator[tuple[Finding, Collection[tuple[str, str]]]]:
    """What becomes of keys that no enabled flow reads, and the flows that are off since they may have been meant."""
    flows = {f"{source}{FLOW}{target}" for source, target in pairs}
    read = {"", *flows, *(alias for pair in pairs for alias in pair)}
    for key in keys:
        if key.scope in read:
            continue
        why = no_cluster(key.scope, known)
        if not why:
            yield Finding(key.text, key.shown, Treatment.IGNORED, "is about no flow that is enabled"), ()
            continue
        off = [pair for pair in pairs if decides(key.name) and _may_mean(pair, key, keys, known)]
        if off:
            why += f"; {', '.join(FLOW.join(pair) for pair in off)}: {decides(key.name)}"
        yield Finding(key.text, key.shown, Treatment.REFUSED, why), off


def _may_mean(pair: tuple[str, str], key: ScopedKey, keys: Sequence[ScopedKey], known: Collection[str]) -> bool:
    has_its_own = any(one.scope == FLOW.join(pair) and one.name == key.name for one in keys)
    return not has_its_own and concerns(key.scope, pair, known)


def _flows(properties: Mapping[str, str], keys: Sequence[ScopedKey]) -> list[tuple[str, str]]:
    """Enabled flows. If no key says `enabled`, as in KIP-382, they are all."""
    if "source.cluster.alias" in properties and "clusters" in properties:
        raise ValueError("has both clusters and source.cluster.alias, and is no file of either kind: remove one")
    if "source.cluster.alias" in properties:
        return [(properties["source.cluster.alias"], properties.get("target.cluster.alias", "target"))]
    aliases = aliases_of(properties)
    if not aliases:
        raise ValueError("names no flow: neither clusters = …, nor the source.cluster.alias of a connector")
    enabled = dict(_enabled(keys))
    named = {key.scope for key in keys}
    pairs = [
        (a, b) for a in aliases for b in aliases if a != b and ("clusters" in properties or f"{a}{FLOW}{b}" in named)
    ]
    default = enabled.get("", not enabled)
    chosen = [(a, b) for a, b in pairs if enabled.get(f"{a}{FLOW}{b}", default)]
    if not chosen:
        strange = next((one for one in keys if one.name == "enabled" and no_cluster(one.scope, ["", *aliases])), None)
        why = "" if strange is None else f"; {strange.text}: {no_cluster(strange.scope, aliases)}"
        raise ValueError(f"enables no flow: write A{FLOW}B.enabled = true, with two of {', '.join(aliases)}{why}")
    return chosen


def _enabled(keys: Sequence[ScopedKey]) -> Iterator[tuple[str, bool]]:
    """Of each scope. What is not understood raises ValueError: without it flows may be on that are meant to be off."""
    for key in sorted(keys, key=lambda key: key.is_of_today):
        if key.name == "enabled":
            try:
                yield key.scope, truth(key.value)
            except ValueError as error:
                raise ValueError(f"{key.text} = {key.value}: {error}") from None
        elif not key.is_setting and client_key(key.name, is_of_cluster=True) is None and is_enabled(key.name):
            raise ValueError(f"{key.text} = {key.shown}: {no_property(key.name)}: correct or remove it")
