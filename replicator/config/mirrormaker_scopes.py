"""Keys of a MirrorMaker 2 configuration with their scopes: of all, of a cluster, or of a flow. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from infra.settings.secrets import MASK, is_secret, without_credentials
from replicator.config.flows_form import ARROW as FLOW
from replicator.config.mirrormaker_keys import SPELLINGS, rule_of
from replicator.config.mirrormaker_mistyped import DECISIVE


@dataclass(frozen=True, slots=True)
class ScopedKey:
    text: str  # as it is written
    scope: str  # empty: of all; an alias; or a flow
    name: str  # without the scope, in the spelling of today
    value: str

    @property
    def shown(self) -> str:
        return MASK if is_secret(self.text) or "jaas" in self.text else without_credentials(self.value)

    @property
    def is_of_today(self) -> bool:
        """Whether it is spelled as today: of two spellings MirrorMaker 2 takes that one, wherever it stands."""
        return self.text == self.name or self.text.endswith(f".{self.name}")

    @property
    def is_setting(self) -> bool:
        """Whether it is one of MirrorMaker 2's own properties, and none of a client."""
        return rule_of(self.name) is not None


def scoped_keys(properties: Mapping[str, str]) -> Iterator[ScopedKey]:
    """Every key, in the order of the file."""
    aliases = aliases_of(properties)
    for text, value in properties.items():
        scope, rest = "", text
        head, arrow, tail = text.partition(FLOW)
        if arrow:
            alias = next((one for one in _longest(aliases) if tail.startswith(f"{one}.")), tail.partition(".")[0])
            scope, rest = f"{head.strip()}{FLOW}{alias}", tail[len(alias) + 1 :]
        else:
            for plain in (text, text.removeprefix("cluster.")):  # cluster.primary.bootstrap.servers: of a first draft
                alias = next((one for one in _longest(aliases) if plain.startswith(f"{one}.")), "")
                if alias:
                    scope, rest = alias, plain[len(alias) + 1 :]
                    break
            else:
                scope, rest = _of_unknown(text)
        yield ScopedKey(text, scope, SPELLINGS.get(rest, rest), value)


def _of_unknown(text: str) -> tuple[str, str]:
    """Scope and name of a key that begins with no cluster's alias: `us-est.topics` is about a cluster all the same."""
    if rule_of(text) is not None:  # transforms.x.topics
        return "", text
    ends = (n for n, sign in enumerate(text) if sign == "." and SPELLINGS.get(text[n + 1 :], text[n + 1 :]) in DECISIVE)
    at = next(ends, 0)
    return (text[:at], text[at + 1 :]) if at else ("", text)


def aliases_of(properties: Mapping[str, str]) -> Sequence[str]:
    """Of `clusters`; without it, as in the sample of KIP-545, those that keys of flows name."""
    if "clusters" in properties:
        return [one.strip() for one in properties["clusters"].split(",") if one.strip()]
    ends = (text.partition(FLOW) for text in properties if FLOW in text)
    return list(dict.fromkeys(one for head, _, tail in ends for one in (head.strip(), tail.partition(".")[0])))


def _longest(aliases: Sequence[str]) -> Sequence[str]:
    return sorted(aliases, key=len, reverse=True)
