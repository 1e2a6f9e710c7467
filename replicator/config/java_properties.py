"""Java's properties files, and the JSON of Kafka Connect's REST interface, as text by key. Pure.

Of a properties file: `=`, `:` or a blank ends the key; `#` and `!` begin a comment; a backslash continues a line and
escapes a character; of a key that is there twice the last one counts (java.util.Properties).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_KEY = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])*)\s*[=:]?\s*(?P<value>.*)", re.DOTALL)
_REQUEST = re.compile(r"\A\s*(PUT|POST) [^\n]*\n")


def read_properties(text: str) -> Mapping[str, str]:
    """The properties of a file in one of the two forms. Raises ValueError for JSON that is no connector's."""
    body = _REQUEST.sub("", text).strip()
    return _connector(body) if body.startswith("{") else dict(_properties(text))


def _connector(text: str) -> Mapping[str, str]:
    """`{"name": …, "config": {…}}`, or the configuration alone."""
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error
    config = tree.get("config", tree)
    if not isinstance(config, dict) or any(isinstance(value, dict | list) for value in config.values()):
        raise ValueError("is no connector: its configuration must be texts, numbers, true or false by name")
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}


def _properties(text: str) -> Iterator[tuple[str, str]]:
    for line in _lines(text):
        match = _KEY.fullmatch(line)
        if match is not None and match["key"]:
            yield _unescaped(match["key"]), _unescaped(match["value"]).rstrip()


def _lines(text: str) -> Iterator[str]:
    """Logical lines without comments."""
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        sign = match[1]
        return chr(int(sign[1:], 16)) if len(sign) > 1 else _ESCAPES.get(sign, sign)

    return _ESCAPED.sub(one, text)
