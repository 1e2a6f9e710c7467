"""What all commands share: exit codes, options, the configuration file, and how answers are printed."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from infra.spark import SparkSettings
    from replicator.config import Config
    from replicator.lifecycle import Stop

DONE, FAILED, USAGE, DIFFERENCES = 0, 1, 2, 3
CONFIG_VARIABLE = "REPLICATOR_CONFIG"
DEFAULT_CONFIG = Path("replicator.toml")

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help=f"Default: ${CONFIG_VARIABLE}, then ./{DEFAULT_CONFIG}."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Write it; without, say what would be written.")]


def group(help_text: str) -> typer.Typer:
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def config_path(given: Path | None) -> Path:
    return given or Path(os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG)


def load_config(given: Path | None) -> Config:
    """Raises ConfigError."""
    from replicator.config import load

    return load(config_path(given))


def spark_if(wanted: bool, settings: Config) -> SparkSettings | None:
    """None: not wanted, and then Spark's 30 MB are not loaded."""
    if not wanted:
        return None
    from replicator.compaction import spark_settings

    return spark_settings(settings)


def set_up_logs(settings: Config) -> None:
    from infra.logs import configure

    configure(settings.log.level, settings.log.format)


def set_up_work(settings: Config) -> None:
    """The same for a command that moves many records."""
    from infra.tuning import one_arena, tune

    set_up_logs(settings)
    one_arena()
    tune()


@contextmanager
def ended_by_signal(stop: Stop) -> Iterator[None]:
    """SIGTERM sets `stop`, for work in the foreground that ends by itself."""
    previous = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def bars(*, quiet: bool) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """A bar for each work that is begun by its name, where somebody looks: it is told (done, total)."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:

        def begin(what: str) -> Callable[[int, int], None]:
            task = shown.add_task(what, total=None)
            return lambda done, total: shown.update(task, completed=done, total=total)

        yield begin


def print_text(text: str, *, end: str = "\n") -> None:
    typer.echo(text + end, nl=False)


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as their widest cell, numbers to the right, None as a dash."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    numeric = [all(isinstance(row[n], int | None) or row[n] == "" for row in rows) for n in range(len(head))]
    widths = [max(len(row[n]) for row in [list(head), *cells]) for n in range(len(head))]

    def line(row: Sequence[str]) -> str:
        columns = zip(row, widths, numeric, strict=True)
        return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in columns).rstrip()

    return "\n".join(map(line, [list(head), *cells]))


def size_text(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def complain(text: str) -> None:
    typer.echo(f"replicator: {text}", err=True)
