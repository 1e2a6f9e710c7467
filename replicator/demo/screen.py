"""What the demo shows while it works: lines of text, and bars if somebody watches."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console


class Bars:
    """One bar for each name. Shows nothing unless the console is a terminal."""

    def __init__(self, progress: Progress, tasks: dict[str, TaskID]) -> None:
        self._progress, self._tasks = progress, tasks

    def set(self, name: str, *, done: int) -> None:
        self._progress.update(self._tasks[name], completed=done)


class Screen:
    """Plain lines without control characters where the console is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str, *, style: str = "") -> None:
        """One line, as it is: no markup, wrapped by nobody."""
        self._console.print(Text(text, style=style), soft_wrap=True)

    @contextmanager
    def bars(self, names: Sequence[str], *, total: int) -> Iterator[Bars]:
        progress = Progress(
            TextColumn("  {task.description:<10}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        with progress:
            yield Bars(progress, {name: progress.add_task(name, total=total) for name in names})
