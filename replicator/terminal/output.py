"""What all commands share: exit codes, options, the configuration file, and output."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

if TYPE_CHECKING:
    from infra.runtime.lifecycle import Stop
    from infra.spark.driver import SparkSettings
    from replicator.config import Config, SettingsFile

from replicator.services.command_logs import set_up_logs
from replicator.terminal.plain_values import take_plain_values
from replicator.terminal.region_option import HINT, REGION_VARIABLE, add_region_option, region_option

DONE, FAILED, USAGE, DIFFERENCES, INTERRUPTED = 0, 1, 2, 3, 130
CONFIG_VARIABLE = "REPLICATOR_CONFIG"
DEFAULT_CONFIG = Path("replicator.toml")

_NUMBER = re.compile(r"-|[0-9,]*")

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help=f"Default: ${CONFIG_VARIABLE}, then ./{DEFAULT_CONFIG}."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Write; default: only show what would be written.")]


class _Commands(typer.core.TyperGroup):
    """A group whose help shows the whole first sentence of each command. Click cuts it off. Whatever takes --config in
    it takes --region, too."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        add_region_option(self)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        take_plain_values(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            take_plain_values(command.get_params(ctx))
        return name, command, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_sentence(command.help or "")) for name, command in self._below(ctx)])

    def _below(self, ctx: Any) -> list[tuple[str, Any]]:
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return [(name, command) for name, command in found if command is not None]


class _Panels(_Commands):
    """As `_Commands`, grouped by `rich_help_panel`, without blank lines, so that the help fits one screen. Its options
    are few, and stand in the line on its usage."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        names = [parameter.opts[0] for parameter in self.params]
        usage = f"Usage: {ctx.command_path} COMMAND, or {' '.join(names)}"
        formatter.write(textwrap.fill(usage, formatter.width, subsequent_indent="  ", break_on_hyphens=False) + "\n")
        formatter.write(f"{inspect.cleandoc(self.help or '').removeprefix(chr(8)).strip()}\n")
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        found = self._below(ctx)
        width = max(len(name) for name, _ in found)
        for name, command in found:
            rows = panels.setdefault(command.rich_help_panel or "Other", [])
            rows.append((name.ljust(width), _first_sentence(command.help or "")))
        for panel, rows in panels.items():
            formatter.write_heading(panel)
            with formatter.indentation():
                formatter.write_dl(rows)


def _first_sentence(text: str) -> str:
    return re.split(r"[.] |[.]$", " ".join(text.partition("\n\n")[0].split()))[0]


def group(help_text: str, *, by_panels: bool = False) -> typer.Typer:
    return typer.Typer(
        help=help_text,
        cls=_Panels if by_panels else _Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich cuts option names on narrow terminals
        add_completion=by_panels,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def config_path(given: Path | None) -> Path:
    return given or Path(os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG)


def load_config(given: Path | None) -> Config:
    """The configuration of the process's region. Raises ConfigError."""
    return settings_file(given).load()


def settings_file(given: Path | None) -> SettingsFile:
    from replicator.config import SettingsFile

    file = SettingsFile.of(config_path(given), region_option(), refused_by_client, HINT)
    return replace(file, region=file.region or os.environ.get(REGION_VARIABLE) or None)


def load_other_config(path: Path | None) -> Config:
    """The configuration of an option that names another file: FILE, or FILE#REGION. Raises ConfigError."""
    from replicator.config.load import load

    return load(path or config_path(None), check_client=refused_by_client)


def load_config_of_archive(given: Path | None) -> Config:
    """As `load_config`. Of a file of one region, --region names the archive that is read, as it did before files had
    several: see `replicator.terminal.options.selected`."""
    from replicator.config.flows_form import is_flows

    file = settings_file(given)
    text = file.read()
    if region_option() and not is_flows(file.tree(text)):
        file = replace(file, region=None)
    return file.parse(text)


def refused_by_client(properties: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Problems of librdkafka properties. The client is loaded only if there are any properties."""
    if not properties:
        return ()
    from infra.kafka.client.property_check import problems

    return problems(properties)


def spark_if(wanted: bool, settings: Config) -> SparkSettings | None:
    """The Spark settings; None if not wanted: the 30 MB of Spark are then not loaded."""
    if not wanted:
        return None
    from replicator.services.compaction import spark_settings

    return spark_settings(settings)


def set_up_service_logs(settings: Config) -> None:
    """Log as JSON, for log collectors, unless the configuration says otherwise."""
    from infra.runtime.logs import configure

    configure(settings.log.level or "info", settings.log.format or "json")


def set_up_work(settings: Config) -> None:
    """Set up logs and memory for a command that moves many records."""
    from infra.runtime.tuning import tune

    set_up_logs(settings)
    tune()


@contextmanager
def ended_by_signal(stop: Stop) -> Iterator[None]:
    """Set `stop` on SIGTERM, for work in the foreground that ends by itself."""
    with on_sigterm(stop.set):
        yield


@contextmanager
def on_sigterm(act: Callable[[], None]) -> Iterator[None]:
    previous = signal.signal(signal.SIGTERM, lambda *_: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def stop_on_signals(stop: Stop, what_follows: str) -> Iterator[Sequence[int]]:
    """Set `stop` on SIGTERM and Ctrl-C and print `what_follows` at once; a second signal exits at once with 128 + its
    number. Yields the list of received signal numbers. Main thread only."""
    seen: list[int] = []

    def on_signal(number: int, _frame: object) -> None:
        seen.append(number)
        if len(seen) > 1:
            os._exit(128 + number)
        stop.set()
        # not through sys.stderr, which the main thread may be writing to
        os.write(2, f"\nreplicator: stopping; {what_follows}\n".encode())

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield seen
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def bars(*, quiet: bool) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Progress bars on a terminal. Yields a function that starts a bar with a title and returns its (done, total)
    update."""
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
    numeric = [all(_NUMBER.fullmatch(row[n]) for row in cells) for n in range(len(head))]
    widths = [max(len(row[n]) for row in [list(head), *cells]) for n in range(len(head))]

    def line(row: Sequence[str]) -> str:
        columns = zip(row, widths, numeric, strict=True)
        return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in columns).rstrip()

    return "\n".join(map(line, [list(head), *cells]))


def count_text(count: int) -> str:
    """A count for people: 337,256. Offsets and configuration values are written without commas, to be copied."""
    return f"{count:,}"


def duration_text(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else str(timedelta(seconds=round(seconds)))


def size_text(size_bytes: int) -> str:
    from infra.settings.units import format_rounded_size

    return format_rounded_size(size_bytes)


def complain(text: str) -> None:
    typer.echo(f"replicator: {text}", err=True)
