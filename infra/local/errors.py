"""The embedded stack's error, with the last lines of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats.errors import ReplicatorError

if TYPE_CHECKING:
    from pathlib import Path

TAIL_LINES = 30


class LocalStackError(ReplicatorError):
    """The embedded stack cannot start, or one of its processes died. The message has the path of its log."""


def tail(log: Path, *, lines: int = TAIL_LINES) -> str:
    """The last `lines` lines of a log, indented; a note if there is no log, or it is empty."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"  (no log: {error})"
    last = text.splitlines()[-lines:]
    return "\n".join(f"  {line}" for line in last) or "  (the log is empty)"


def with_log(message: str, log: Path) -> str:
    """`message`, then the path of the log and its last lines."""
    return f"{message}\nlog: {log}, its last {TAIL_LINES} lines:\n{tail(log)}"
