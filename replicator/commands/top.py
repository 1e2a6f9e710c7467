"""`replicator top`: the state of replication in the terminal, read again and again."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

import logging
import shutil
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.terminal.interrupt import ended_by_interrupt
from replicator.terminal.output import INTERRUPTED, ConfigFile, load_config, on_sigterm, print_text

if TYPE_CHECKING:
    from infra.runtime.lifecycle import Clock, Stop
    from replicator.config import Config
    from replicator.terminal.live import LiveScreen
    from replicator.top.reader import Reads, Watching

TICK = timedelta(milliseconds=200)  # how soon a new reading, a new size or a signal is seen
TERMINATED = 128 + 15
SHORTEST, LONGEST = timedelta(milliseconds=500), timedelta(hours=1)


def reading_interval(text: str) -> timedelta:
    """A duration; a bare number counts seconds, as in earlier versions. Raises typer.BadParameter."""
    from infra.settings.units import parse_duration

    try:
        found = timedelta(seconds=float(text)) if text.replace(".", "", 1).isdecimal() else parse_duration(text)
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"--interval: {error}") from error
    if not SHORTEST <= found <= LONGEST:
        raise typer.BadParameter(f"--interval {text}: must be between 500ms and 1h")
    return found


def top(
    config: ConfigFile = None,
    interval: Annotated[
        str, typer.Option("--interval", metavar="TIME", help="Time between two readings, such as 2s; 500ms to 1h.")
    ] = "2s",
    once: Annotated[bool, typer.Option("--once", help="Print one frame; so it does without a terminal.")] = False,
) -> None:
    """Watch what is archived and delivered, live.

    Rates, what is furthest behind first, parked partitions, gaps and problems. Reads what `status` reads. Keys: q
    quits, s changes the order, p shows topics or partitions, ! all problems; arrows scroll.
    """
    from infra.runtime.lifecycle import Stop, SystemClock
    from infra.runtime.process_exit import exit_process
    from replicator.top.reader import Watching

    every = reading_interval(interval)
    settings = load_config(config)
    settings_problem(settings)
    clock = SystemClock()
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _once(settings, clock)
        return
    from replicator.terminal.live import LiveScreen

    logging.disable(logging.CRITICAL)  # the frame says what could not be read
    watching = Watching(lambda: _reader(settings), clock, every)
    stop, code = Stop(), 0
    watching.start()
    try:
        with on_sigterm(stop.set), LiveScreen(sys.stdin.fileno(), sys.stdout.fileno(), sys.stdout.encoding) as screen:
            watch(screen, watching, clock, stop)
        code = TERMINATED if stop.is_set() else 0
    except KeyboardInterrupt:
        code = INTERRUPTED
    exit_process(code)  # a request of the thread that reads may still wait


def settings_problem(settings: Config) -> None:
    """Raises ConfigError when there is nothing to watch."""
    if settings.egress is None and settings.ingress is None:
        raise settings.without("egress", ", and [ingress], too: there is nothing to watch")


def watch(screen: LiveScreen, watching: Watching, clock: Clock, stop: Stop) -> None:
    """Draw until the user quits, or `stop` is set."""
    from replicator.top.frame import frame
    from replicator.top.view import TopView

    view = TopView()
    while not view.is_over and not stop.is_set():
        found, trouble = watching.last()
        width, height = screen.size()
        shown = frame(
            found,
            view,
            width=width,
            height=height,
            now=clock.now(),
            trouble=trouble,
            interval=watching.interval,
            since=watching.reading_since,
        )
        screen.draw(shown.lines)
        for key in screen.keys(TICK):
            view = view.after(key, lines=shown.table_lines, page=shown.page)


def _once(settings: Config, clock: Clock) -> None:
    from replicator.services.clients import Clients
    from replicator.top.frame import frame
    from replicator.top.reader import TopReader
    from replicator.top.view import TopView

    with ended_by_interrupt(), Clients(settings) as reach:
        found = TopReader(reach).read(clock.now())
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    shown = frame(found, TopView(), width=width, height=None, now=clock.now())
    print_text("\n".join(shown.lines))


def _reader(settings: Config) -> Reads:
    from replicator.services.clients import Clients
    from replicator.top.reader import TopReader

    return TopReader(Clients(settings, with_logs=False))
