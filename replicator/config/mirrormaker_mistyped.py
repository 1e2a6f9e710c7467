"""Keys of MirrorMaker 2 that are not understood, and what a flow does without them. Pure.

MirrorMaker 2 copies every topic where nothing narrows it, so a key that is dropped may open a flow: a flow is off while
a key that could say what crosses, or how it is named, is not understood.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache

from infra.settings.field import suggestion
from replicator.config.flows_form import ARROW
from replicator.config.mirrormaker_keys import CLIENT_KEYS, KEYS, SPELLINGS, rule_of

OFF = "until the flow says which topics cross, it is off"
UNNAMED = "until the flow says how its topics are named, it is off"
DECISIVE: Mapping[str, str] = {
    **dict.fromkeys(("topics", "topics.exclude", "topic.filter.class"), OFF),
    **dict.fromkeys(("replication.policy.class", "replication.policy.separator", "remote.topic.format"), UNNAMED),
}
"""Properties without which more would cross than is meant, or under other names; with the reason of a flow that is
off."""

_KNOWN = (*KEYS, *SPELLINGS, *CLIENT_KEYS)
_TOPICS = re.compile(r"topics?([._-]|$)|(.*[._-])?(topics|whitelist|blacklist)([._-]|$)")


def decides(name: str, value: str = "") -> str:
    """Why a flow is off that does not understand this property; empty if nothing that crosses depends on it."""
    name = name.lower()
    if name in DECISIVE:
        return DECISIVE[name]
    if rule_of(name) is not None:
        return ""
    near = _nearest(name)
    if why := DECISIVE.get(near):
        return why
    is_split = value.startswith(ARROW)  # a -> b.topics = x: the blank ends the key
    return OFF if is_split or (not near and _TOPICS.match(name)) else ""


def is_enabled(name: str) -> bool:
    """Whether `enabled` was meant by a property that there is not."""
    return _nearest(name.lower()) == "enabled"


@cache
def _nearest(name: str) -> str:
    """The property that was probably meant, in the spelling of today; empty if there is none like it."""
    near = next(iter(get_close_matches(name, _KNOWN, n=1)), "")
    return SPELLINGS.get(near, near)


def no_property(name: str, value: str = "") -> str:
    """The reason of its refusal."""
    if value.startswith(ARROW):
        return f"a blank ends a key: write {name}{ARROW}… without blanks"
    return f"is no property of MirrorMaker 2 or of a Kafka client{suggestion(name.lower(), _KNOWN)}"


def no_cluster(scope: str, known: Collection[str]) -> str:
    """Why there is no such flow or cluster; empty if there is."""
    ends = scope.split(ARROW)
    unknown = next((one for one in ends if one not in known), None)
    if unknown is None:
        return ""
    meant = suggestion(unknown, [one for one in known if one not in ends])
    return f"there is no cluster {unknown!r}{meant}; the file has: {', '.join(sorted(known))}"


def concerns(scope: str, flow: tuple[str, str], known: Collection[str]) -> bool:
    """Whether `flow` may have been meant by a scope with an unknown cluster."""
    head, arrow, tail = scope.partition(ARROW)
    if not arrow:
        return True  # neither a flow nor a cluster: it may be about any of them
    return all(alias in _possible(end, known) for end, alias in zip((head, tail), flow, strict=True))


def _possible(end: str, known: Collection[str]) -> Collection[str]:
    if end in known:
        return [end]
    return get_close_matches(end, known, n=max(len(known), 1)) or known


def truth(value: str) -> bool:
    """Of a boolean, as Kafka reads it. Raises ValueError."""
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"must be true or false, not {value.strip()!r}")
    return word == "true"
