"""The demo's output while it runs: lines of text, and progress bars on a terminal."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console


class Bars:
    """One progress bar for each name. Shown only if the console is a terminal."""

    def __init__(self, progress: Progress, tasks: dict[str, TaskID]) -> None:
        self._progress, self._tasks = progress, tasks

    def set(self, name: str, *, done: int) -> None:
        self._progress.update(self._tasks[name], completed=done)


class Screen:
    """Prints lines and bars; without control characters if the console is not a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str, *, style: str = "") -> None:
        """Print one line unchanged: without markup, not wrapped."""
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
