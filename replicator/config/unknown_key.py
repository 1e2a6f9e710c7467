"""The message about a key that no setting has, with the keys that it may have been meant to be."""

from __future__ import annotations

from collections.abc import Collection
from difflib import SequenceMatcher

from infra.settings.field import suggestion
from infra.settings.secrets import Path as KeyPath

FEW = 8
"""So many keys are all listed."""
NEAREST = 5
"""Of more keys, those that are listed."""
SCHEMA = "replicator config schema"


def unknown_key(key: str, value: object, path: KeyPath, valid: Collection[str]) -> str:
    """`path`: of the table that has the key. `valid`: the keys that the table may have."""
    if isinstance(value, dict) and path[1:2] == ("topics",):
        name = ".".join(map(str, (*path[2:], key)))
        return f'unknown key; a topic name with dots needs quotes: [{path[0]}.topics."{name}"]'
    return unknown(key, valid)


def unknown(key: str, valid: Collection[str]) -> str:
    """Names the nearest keys first, and of many only those."""
    if near := suggestion(key, valid):
        return f"unknown key{near}"
    ranked = sorted(set(valid), key=lambda one: (-SequenceMatcher(None, one, key).ratio(), one))
    if len(ranked) <= FEW:
        return f"unknown key; known here: {', '.join(ranked)}"
    return (
        f"unknown key; nearest of those known here: {', '.join(ranked[:NEAREST])}; "
        f"`{SCHEMA}` lists the other {len(ranked) - NEAREST}"
    )
