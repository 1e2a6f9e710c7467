"""Lists of names and of Java's expressions as lists of ours. Pure."""

from __future__ import annotations

import re

from formats.incarnation import LEGAL_NAME
from formats.topic_selection import TopicPattern

_JAVA_ONLY = (
    (re.compile(r"\\[pP]\{"), r"\p{…}"),
    (re.compile(r"\\Q"), r"\Q…\E"),
    (re.compile(r"\[[^\]]*&&"), "&& in a class"),
    (re.compile(r"\(\?<[A-Za-z]"), "(?<name>…)"),
    (re.compile(r"\(\?[a-zA-Z]+\)"), "(?i) and other flags"),
    (re.compile(r"(?<!\\)\[(?:\\.|[^\]\\\[])*\["), "a class in a class"),
    (re.compile(r"\\[bB]\{"), r"\b{…}"),
    (re.compile(r"\\[xk0ce]"), r"\x{…}, \k<…>, \0…, \c… or \e"),
    (re.compile(r"\\[hHvVRXzG]"), r"\h, \v, \R, \X, \z or \G"),
)


def items_of(value: str) -> list[str]:
    """`a, b`, or `["a", "b"]` as in a first draft of KIP-382."""
    if value.startswith('["'):
        value = value.strip("[]").replace('"', "")
    return [one.strip() for one in value.split(",") if one.strip()]


def patterns(value: str) -> list[str]:
    """MirrorMaker 2's list of names and expressions, each of which matches a whole name, in our writing. Raises
    ValueError for what only Java understands."""
    found = []
    for one in items_of(value):
        if LEGAL_NAME.fullmatch(one):
            found.append(one)  # as it is meant: in MirrorMaker 2 its dots match any character
            continue
        wrong = next((name for sign, name in _JAVA_ONLY if sign.search(one)), "")
        if wrong:
            raise ValueError(f"{one!r} has {wrong}, which only Java's expressions have, or have so")
        found.append(str(TopicPattern(one if one.startswith("^") else f"^{one}")))
    if not found:
        raise ValueError("is empty: nothing would be replicated")
    return found
