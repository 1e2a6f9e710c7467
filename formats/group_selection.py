"""Which consumer groups are selected, and why: the rule of topics (`formats.topic_selection`), for groups.

Of groups, our own ones are internal. The default excludes are those of MirrorMaker 2. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from formats.topic_selection import OURS, NameMatcher, TopicMatch, TopicPattern, TopicRule, explain_name, select_names


@dataclass(frozen=True, slots=True)
class GroupPattern(TopicPattern):
    """A group id, or, when it begins with `^`, a Python expression that must match a whole id. Raises ValueError."""

    def _check_name(self) -> None:
        if not self.text.strip():
            raise ValueError("a group id must not be empty")


DEFAULT_GROUP_EXCLUDES: Sequence[NameMatcher] = tuple(
    map(GroupPattern, (r"^console-consumer-.*", r"^connect-.*", r"^__.*"))
)
"""MirrorMaker 2's `groups.exclude`."""


def group_rules(include: Iterable[GroupPattern], exclude: Sequence[NameMatcher]) -> Sequence[TopicRule[None]]:
    return [TopicRule(pattern, None, exclude, DEFAULT_GROUP_EXCLUDES) for pattern in include]


def select_groups(names: Iterable[str], rules: Sequence[TopicRule[None]], own: Collection[str]) -> Collection[str]:
    """The selected groups, in the order of `names`. `own`: the replicator's groups in this configuration."""
    return select_names(names, rules, lambda name: _why_internal(name, own)).keys()


def explain_group(name: str, rules: Sequence[TopicRule[None]], own: Collection[str]) -> TopicMatch[None]:
    """The choice that `select_groups` makes for `name`, with the reason."""
    return explain_name(name, rules, lambda name: _why_internal(name, own))


def _why_internal(name: str, own: Collection[str]) -> str:
    """Empty for a group of a user."""
    if not name:
        return "consumers without a group id commit under it"
    if name in own:
        return "it is a group of the replicator in this configuration"
    return f"names that begin with {OURS} belong to the replicator" if name.startswith(OURS) else ""
