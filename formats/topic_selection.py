"""Which topics are selected, and why.

    internal (`__*`, `replicator.*`, our own topics)   never selected, whatever the filters
    a name                                             takes precedence over every expression
    an expression, `^…`                                matches the whole name; of two, the first in the file wins

Pure: names and rules in, a choice and its reason out.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from formats.incarnation import CONTROL, LEGAL_NAME

T = TypeVar("T")

EXPRESSION_SIGN = "^"


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
        if not LEGAL_NAME.fullmatch(self.text) or self.text in (".", ".."):
            raise ValueError(
                f"{self.text!r} is not a topic name (1 to 249 of A-Z a-z 0-9 . _ -); an expression begins with ^"
            )

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

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class TopicRule(Generic[T]):
    """The settings of the topics that `pattern` selects."""

    pattern: TopicPattern
    settings: T


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


def is_internal(name: str, own: Collection[str]) -> bool:
    """Whether the topic belongs to Kafka or to the replicator. `own`: the replicator's topics in this configuration."""
    return name.startswith(("__", "replicator.")) or name == CONTROL or name in own


def select(names: Iterable[str], rules: Sequence[TopicRule[T]], own: Collection[str]) -> dict[str, T]:
    """The settings of each selected name, in the order of `names`. O(names × expressions)."""
    exact: dict[str, TopicRule[T]] = {}
    for rule in rules:
        if not rule.pattern.is_expression:
            exact.setdefault(rule.pattern.text, rule)
    expressions = [rule for rule in rules if rule.pattern.is_expression]
    chosen: dict[str, T] = {}
    for name in names:
        if is_internal(name, own):
            continue
        rule_ = exact.get(name) or next((rule for rule in expressions if rule.pattern.matches(name)), None)
        if rule_ is not None:
            chosen[name] = rule_.settings
    return chosen


def explain(name: str, rules: Sequence[TopicRule[T]], own: Collection[str]) -> TopicMatch[T]:
    """The choice that `select` makes for `name`, with the reason and the matching rules that lost."""
    if is_internal(name, own):
        return TopicMatch(name, None, _why_internal(name, own))
    matching = [rule for rule in rules if rule.pattern.matches(name)]
    if not matching:
        tried = ", ".join(str(rule.pattern) for rule in rules) or "there are none"
        return TopicMatch(name, None, f"because no name or expression matches it (tried: {tried})")
    rule = next((rule for rule in matching if not rule.pattern.is_expression), matching[0])
    overruled = [str(other.pattern) for other in matching if other is not rule]
    if not rule.pattern.is_expression:
        suffix = f"; a name beats {', '.join(overruled)}" if overruled else ""
        return TopicMatch(name, rule, f"by its name{suffix}")
    suffix = f"; it comes before {', '.join(overruled)}, the first in the file wins" if overruled else ""
    return TopicMatch(name, rule, f"by the expression {rule.pattern}{suffix}")


def _why_internal(name: str, own: Collection[str]) -> str:
    if name in own:
        reason = "it is one of the replicator's own topics in this configuration"
    elif name == CONTROL:
        reason = "the archive keeps its control objects under this name"
    elif name.startswith("__"):
        reason = "names that begin with __ belong to Kafka"
    else:
        reason = "names that begin with replicator. belong to the replicator"
    return f"because it is internal: {reason}; no filter selects internal topics"


def _compile(text: str) -> re.Pattern[str]:
    """Raises ValueError, also where Python only warns that the meaning of an expression may change."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return re.compile(text)
        except (re.error, OverflowError, RecursionError, Warning) as error:
            raise ValueError(f"{text!r} is not an expression: {error}") from error
