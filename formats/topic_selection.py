"""Which topics are selected, and why.

    internal (`__*`, `replicator.*`, our own topics)   never selected, whatever the filters
    the user's excludes, and a user's filter           beat everything below
    a name                                             beats every expression
    MirrorMaker 2's default excludes                   beat expressions
    an expression, `^…`                                of two, the first in the file wins

A name or an expression matches the whole name. Pure: names and rules in, a choice and its reason out.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from formats.incarnation import CONTROL, LEGAL_NAME

T = TypeVar("T")

EXPRESSION_SIGN = "^"
OURS = "replicator."  # what names of our own topics and groups begin with


def _compile(text: str) -> re.Pattern[str]:
    """Raises ValueError, also where Python only warns that the meaning of an expression may change."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return re.compile(text)
        except (re.error, OverflowError, RecursionError, Warning) as error:
            raise ValueError(f"{text!r} is not an expression: {error}") from error


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """A topic name, or, when it begins with `^`, a Python expression that must match a whole name.

    Raises ValueError for an expression that does not compile and for a name that Kafka would refuse.
    """

    text: str
    _expression: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.is_expression:
            object.__setattr__(self, "_expression", _compile(self.text))
            return
        object.__setattr__(self, "_expression", None)
        self._check_name()

    @property
    def is_expression(self) -> bool:
        return self.text.startswith(EXPRESSION_SIGN)

    def matches(self, name: str) -> bool:
        if self._expression is None:
            return name == self.text
        return self._expression.fullmatch(name) is not None

    def matches_any(self, names: Collection[str]) -> bool:
        """Whether any of `names` matches; for a plain name this is one lookup."""
        return self.text in names if self._expression is None else any(map(self.matches, names))

    def _check_name(self) -> None:
        if not LEGAL_NAME.fullmatch(self.text) or self.text in (".", ".."):
            raise ValueError(
                f"{self.text!r} is not a topic name (1 to 249 of A-Z a-z 0-9 . _ -); an expression begins with ^"
            )

    def __str__(self) -> str:
        return self.text


class NameMatcher(Protocol):
    """What an exclude is: a pattern, or a user's filter. `str` names it, for people."""

    def matches(self, name: str) -> bool:
        """Whether the name is excluded. Raises PluginFailed."""


DEFAULT_EXCLUDES: Sequence[NameMatcher] = tuple(
    map(TopicPattern, (r"^mm2.*\.internal", r"^.*\.replica", r"^__.*", r"^.*\.checkpoints\.internal", r"^\..*"))
)
"""MirrorMaker 2's `topics.exclude`, and the names that its policies call internal."""


@dataclass(frozen=True, slots=True)
class TopicRule(Generic[T]):
    """The settings of the topics that `pattern` selects, unless something excludes them."""

    pattern: TopicPattern
    settings: T
    exclude: Sequence[NameMatcher] = ()  # by the user
    default_exclude: Sequence[NameMatcher] = ()  # not of a rule that is a name

    def excluded(self, name: str) -> str:
        """What excludes a name that the pattern matches; empty if nothing does. Raises PluginFailed."""
        for matcher in self.exclude:
            if matcher.matches(name):
                return f"the exclude {matcher}, which beats every name and expression"
        if self.pattern.is_expression:
            for matcher in self.default_exclude:
                if matcher.matches(name):
                    return f"the default exclude {matcher}: only a rule with its own name selects it"
        return ""

    def selects(self, name: str) -> bool:
        """Raises PluginFailed."""
        return self.pattern.matches(name) and not self.excluded(name)


@dataclass(frozen=True, slots=True)
class TopicMatch(Generic[T]):
    """The choice for one name. `rule` is the rule that selected it, None when no rule did."""

    topic: str
    rule: TopicRule[T] | None
    why: str

    @property
    def selected(self) -> bool:
        return self.rule is not None

    @property
    def text(self) -> str:
        return f"{self.topic}: {'selected' if self.selected else 'not selected'}, {self.why}"


Internal = Callable[[str], str]
"""Why a name is internal; empty if it is not."""


def is_internal(name: str, own: Collection[str]) -> bool:
    """Whether the topic belongs to Kafka or to the replicator. `own`: the replicator's topics in this configuration."""
    return bool(_why_internal(name, own))


def select(names: Iterable[str], rules: Sequence[TopicRule[T]], own: Collection[str]) -> dict[str, T]:
    """The settings of each selected topic, in the order of `names`. O(names × expressions). Raises PluginFailed."""
    return select_names(names, rules, lambda name: _why_internal(name, own))


def select_names(names: Iterable[str], rules: Sequence[TopicRule[T]], internal: Internal) -> dict[str, T]:
    """As `select`, for names of any kind."""
    exact: dict[str, list[TopicRule[T]]] = {}
    for rule in rules:
        if not rule.pattern.is_expression:
            exact.setdefault(rule.pattern.text, []).append(rule)
    expressions = [rule for rule in rules if rule.pattern.is_expression]
    chosen: dict[str, T] = {}
    for name in names:
        if internal(name):
            continue
        rule_ = next((rule for rule in (*exact.get(name, ()), *expressions) if rule.selects(name)), None)
        if rule_ is not None:
            chosen[name] = rule_.settings
    return chosen


def unmatched(rules: Iterable[TopicRule[T]], names: Collection[str]) -> Sequence[TopicRule[T]]:
    """The rules whose name or expression none of `names` matches, whatever excludes it."""
    return [rule for rule in rules if not rule.pattern.matches_any(names)]


def explain(name: str, rules: Sequence[TopicRule[T]], own: Collection[str]) -> TopicMatch[T]:
    """The choice that `select` makes for `name`, with the reason and the matching rules that lost. Raises
    PluginFailed."""
    return explain_name(name, rules, lambda name: _why_internal(name, own))


def explain_name(name: str, rules: Sequence[TopicRule[T]], internal: Internal) -> TopicMatch[T]:
    """As `explain`, for names of any kind."""
    if reason := internal(name):
        return TopicMatch(name, None, f"because it is internal: {reason}; no filter selects it")
    matching = [rule for rule in rules if rule.pattern.matches(name)]
    if not matching:
        tried = ", ".join(str(rule.pattern) for rule in rules) or "there are none"
        return TopicMatch(name, None, f"because no name or expression matches it (tried: {tried})")
    allowed = [rule for rule in matching if not rule.excluded(name)]
    if not allowed:
        why = "; ".join(dict.fromkeys(rule.excluded(name) for rule in matching))
        return TopicMatch(
            name, None, f"though {', '.join(str(rule.pattern) for rule in matching)} matches it: by {why}"
        )
    rule = next((rule for rule in allowed if not rule.pattern.is_expression), allowed[0])
    overruled = [str(other.pattern) for other in allowed if other is not rule]
    if not rule.pattern.is_expression:
        suffix = f"; a name beats {', '.join(overruled)}" if overruled else ""
        beaten = next((m for m in rule.default_exclude if m.matches(name)), None)
        suffix += f"; a name beats the default exclude {beaten}" if beaten is not None else ""
        return TopicMatch(name, rule, f"by its name{suffix}")
    suffix = f"; it comes before {', '.join(overruled)}, the first in the file wins" if overruled else ""
    return TopicMatch(name, rule, f"by the expression {rule.pattern}{suffix}")


def _why_internal(name: str, own: Collection[str]) -> str:
    """Empty for a topic of a user."""
    if name in own:
        return "it is one of the replicator's own topics in this configuration"
    if name == CONTROL:
        return "the archive keeps its control objects under this name"
    if name.startswith("__"):
        return "names that begin with __ belong to Kafka"
    if name.startswith(OURS):
        return f"names that begin with {OURS} belong to the replicator"
    return ""
