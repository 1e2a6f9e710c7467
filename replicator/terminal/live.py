"""A whole terminal, for frames that follow each other: the screen before it comes back in the end, whatever ends it.

    enter: alternate screen, no cursor, keys one by one     leave: keys by lines, cursor, the screen from before

Nothing is drawn that stands there already. The size is asked for with each frame.
"""

from __future__ import annotations

import os
import re
import select
import termios
import tty
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_CLEAR_LINE, _CLEAR_BELOW = "\x1b[K", "\x1b[J"
_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|[^\x1b]", re.DOTALL)
_NAMES: Mapping[str, str] = {
    **{f"\x1b{sign}A": "up" for sign in "[O"},
    **{f"\x1b{sign}B": "down" for sign in "[O"},
    **{f"\x1b{sign}H": "home" for sign in "[O"},
    **{f"\x1b{sign}F": "end" for sign in "[O"},
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1b[5~": "page-up",
    "\x1b[6~": "page-down",
}
END_OF_KEYS = "q"  # where the keyboard is gone, so is the user
_NARROWEST, _LOWEST = 20, 4


class LiveScreen:
    """A context manager. `keyboard` and `display`: file descriptors of one terminal. For one thread."""

    def __init__(self, keyboard: int, display: int, encoding: str = "utf-8") -> None:
        self._keyboard, self._display, self._encoding = keyboard, display, encoding
        self._before: list[Any] = []
        self._drawn: tuple[tuple[int, int], Sequence[str]] | None = None

    def __enter__(self) -> LiveScreen:
        self._before = termios.tcgetattr(self._keyboard)
        try:
            tty.setcbreak(self._keyboard)  # Ctrl-C still is a signal
            self._write(_ENTER)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._before)
        self._write(_LEAVE)

    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        size = os.get_terminal_size(self._display)
        return max(size.columns, _NARROWEST), max(size.lines, _LOWEST)

    def draw(self, lines: Sequence[str]) -> None:
        """`lines` fit the size."""
        if self._drawn == (self.size(), lines):
            return
        self._drawn = self.size(), list(lines)
        placed = (f"\x1b[{n};1H{line}{_CLEAR_LINE}" for n, line in enumerate(lines, start=1))
        self._write("".join(placed) + _CLEAR_BELOW)

    def keys(self, within: timedelta) -> Sequence[str]:
        """Keys that were pressed, by their names or characters; empty after `within` without one."""
        ready, _, _ = select.select([self._keyboard], [], [], within.total_seconds())
        if not ready:
            return []
        try:
            data = os.read(self._keyboard, 1024)
        except OSError:  # the terminal was closed
            data = b""
        if not data:
            return [END_OF_KEYS]
        pressed = _KEY.findall(data.decode(self._encoding, "replace"))
        return [_NAMES.get(key, key) for key in pressed]

    def _write(self, text: str) -> None:
        data = text.encode(self._encoding, "replace")
        while data:
            data = data[os.write(self._display, data) :]
