"""Sets up logging, once per process: one event per line on stderr, as JSON or as text.

A line has the time (UTC), level, event (the message), logger, and the fields given as `extra`, and nothing else.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, TextIO

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "text"]

# Attributes of every record; all others were passed as `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

# Libraries that log each request at INFO or DEBUG, which is not for operators.
_TALKATIVE = ("boto3", "botocore", "s3transfer", "urllib3", "py4j", "werkzeug")


def configure(level: Level = "info", style: Format = "json", stream: TextIO | None = None) -> logging.Handler:
    """Log to `stream` (default: stderr). A further call replaces the earlier handler. An embedding program may remove
    the returned handler."""
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _Lines)]:
        root.removeHandler(handler)
    lines = _Lines(sys.stderr if stream is None else stream)
    lines.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root.addHandler(lines)
    root.setLevel(level.upper())
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    return lines


class _Lines(logging.StreamHandler[TextIO]):
    """Marks the handler as ours."""


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
        }
        for name, value in _fields(record).items():
            # A field never replaces one of the above, so that the line can still be found.
            line[f"{name}_" if name in line else name] = value
        trace = _trace(self, record)
        if trace:
            line["exception"] = trace
        try:
            return json.dumps(line, default=str, allow_nan=False)
        except (TypeError, ValueError):  # a key that is not a string, infinity, a list that contains itself
            return json.dumps({str(name): _plain(value) for name, value in line.items()})


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO egress.controller segment_stored topic=a records=3`"""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_word(value)}" for name, value in _fields(record).items())
        trace = _trace(self, record)
        head = f"{_time(record)} {record.levelname} {record.name} {record.getMessage()}{fields}"
        return f"{head}\n{trace}" if trace else head


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | bool | None) else str(value)


def _word(value: object) -> str:
    text = str(value)
    return text if text and not any(c.isspace() or c in '"=' for c in text) else json.dumps(text, ensure_ascii=False)
