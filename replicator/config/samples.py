"""Samples of the topic names that an expression selects, derived from the expression. Pure.

Every sample is checked against its expression, so unsupported syntax (a lookahead, a back reference) yields fewer
samples but never a wrong one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from formats.incarnation import LEGAL_NAME
from formats.topic_selection import TopicPattern

MOST = 24
_CLASSES = {"d": "1", "w": "x", "s": "", "D": "x", "W": "-", "S": "x", "b": "", "B": "", "A": "", "Z": ""}
_ANY = "x1.-_X"
_REPEAT = re.compile(r"(?P<sign>[*+?])|\{(?P<least>[0-9]*)(?:,[0-9]*)?\}")


def samples(pattern: TopicPattern) -> Sequence[str]:
    """The name itself, or some names that the expression matches; none if it cannot be interpreted."""
    if not pattern.is_expression:
        return (pattern.text,)
    guesses = _Reader(pattern.text).alternatives()
    fit = (g for g in guesses if LEGAL_NAME.fullmatch(g) and g not in (".", "..") and pattern.matches(g))
    return tuple(dict.fromkeys(itertools.islice(fit, MOST)))


class _Reader:
    """Parses an expression from left to right; each method returns texts that its part may match."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def alternatives(self) -> list[str]:
        found = self._sequence()
        while self._take("|"):
            found += self._sequence()
        return found[:MOST]

    def _sequence(self) -> list[str]:
        found = [""]
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            part = self._repeated(self._one())
            found = list(dict.fromkeys(a + b for a, b in itertools.product(found, part)))[:MOST]
        return found

    def _repeated(self, part: list[str]) -> list[str]:
        match = _REPEAT.match(self._text, self._at)
        if match is None:
            return part
        self._at = match.end()
        _ = self._take("?") or self._take("+")  # lazy, possessive
        if match["sign"] == "+":
            return part
        if match["sign"] is None and (least := int(match["least"] or 0)):
            return [text * min(least, 249) for text in part]
        return [*part, ""]

    def _one(self) -> list[str]:
        sign = self._text[self._at]
        self._at += 1
        match sign:
            case "^" | "$":
                return [""]
            case ".":
                return ["x", "."]
            case "\\":
                escaped = self._text[self._at : self._at + 1]
                self._at += 1
                return [_CLASSES.get(escaped, escaped)]
            case "[":
                return self._class()
            case "(":
                return self._group()
            case _:
                return [sign]

    def _class(self) -> list[str]:
        end = self._text.find("]", self._at + (2 if self._text[self._at : self._at + 1] == "^" else 1))
        end = len(self._text) if end < 0 else end
        inside, self._at = self._text[self._at : end], end + 1
        try:
            chosen = re.compile(f"[{inside}]")
        except re.error:
            return []
        first = inside[:1] if inside[:1] not in ("^", "\\") else ""
        return [sign for sign in dict.fromkeys(first + _ANY) if chosen.fullmatch(sign)][:2]

    def _group(self) -> list[str]:
        is_assertion = bool(re.match(r"\?(?:[=!]|<[=!])", self._text[self._at :]))
        if match := re.match(r"\?(?:P?<[A-Za-z_]\w*>|[=!]|<[=!]|[aiLmsux-]*:)", self._text[self._at :]):
            self._at += match.end()
        found = self.alternatives()
        self._take(")")
        return [""] if is_assertion else found

    def _take(self, sign: str) -> bool:
        taken = self._text.startswith(sign, self._at)
        self._at += len(sign) if taken else 0
        return taken


def samples_of(patterns: Iterator[TopicPattern]) -> Sequence[str]:
    """The samples of all patterns, without duplicates."""
    return tuple(dict.fromkeys(name for pattern in patterns for name in samples(pattern)))
