"""`replicator console`: a read-only status page in the browser."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from infra.runtime.process_exit import exit_process
from infra.runtime.service import run_until_signalled
from replicator.terminal.output import ConfigFile, complain, load_config, set_up_service_logs

LISTEN = "127.0.0.1:8481"
TOKEN_VARIABLE = "REPLICATOR_CONSOLE_TOKEN"  # noqa: S105 -- its name
SHORTEST = timedelta(seconds=5)


def console(  # noqa: PLR0917 -- options of a command
    config: ConfigFile = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Other than loopback needs a token or a proxy.")
    ] = LISTEN,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help=f"Ask for the token in FILE; default: ${TOKEN_VARIABLE}."),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option("--proxy", metavar="ADDRESS", help="Trust a proxy or a network of them; may be repeated."),
    ] = None,
    user_header: Annotated[
        str, typer.Option("--user-header", metavar="NAME", help="Header in which the proxy names the user.")
    ] = "",
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="A name that browsers reach it by; may be repeated."),
    ] = None,
    refresh: Annotated[
        str, typer.Option("--refresh", metavar="DURATION", help="Time between two readings of the state.")
    ] = "30s",
    drills: Annotated[
        Path | None, typer.Option("--drills", metavar="FILE", help="The file that `drill --history` writes.")
    ] = None,
) -> None:
    """Show the state as a page in the browser, on this machine.

    A service that reads what `status` reads, again and again, and changes nothing: it runs until SIGTERM or Ctrl-C.
    Each page is JSON, too, for `Accept: application/json`.
    """
    from infra.runtime.lifecycle import SystemClock
    from infra.runtime.tuning import limit_malloc_arenas
    from infra.settings.units import parse_duration
    from replicator.console.access import rules
    from replicator.console.reader import StateReader
    from replicator.console.server import ConsoleService

    settings = load_config(config)
    address = _address(listen)
    try:
        interval = parse_duration(refresh)
        allowed = rules(
            address[0],
            token=_token(token_file),
            hosts=host or (),
            proxies=proxy or (),
            user_header=user_header,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if interval < SHORTEST:
        raise typer.BadParameter(f"--refresh {refresh}: at least 5s, because every reading lists the bucket")
    set_up_service_logs(settings)
    limit_malloc_arenas()  # each reading has threads of its own, whose arenas would keep what they freed
    clock = SystemClock()
    service = ConsoleService(
        StateReader(config=settings, clock=clock, drills=drills),
        listen=address,
        rules=allowed,
        interval=interval,
        clock=clock,
    )
    complain(f"console of region {settings.region}: {service.address}")
    exit_process(run_until_signalled(service))


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise typer.BadParameter(f"--listen {listen}: not HOST:PORT, such as {LISTEN}")
    return host.strip("[]"), int(port)


def _token(file: Path | None) -> str | None:
    """Raises ValueError for a file that cannot be read, or is empty."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        found = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--token-file {file} cannot be read: {error}") from error
    if not found:
        raise ValueError(f"--token-file {file} is empty: write a token into it, such as `openssl rand -hex 32` prints")
    return found
