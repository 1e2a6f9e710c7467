"""The command line. Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 differences or losses found, 130 ended by
Ctrl-C.

This module only registers the commands, which are in `replicator.commands`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from copy import copy
from typing import Annotated, Any

import typer
from typer.models import CommandInfo, TyperInfo

from formats.errors import ConfigError, ReplicatorError
from infra.runtime.service import ignored_reload
from infra.runtime.spark_submit import is_submitted
from replicator.commands import services
from replicator.commands.adopt import adopt
from replicator.commands.backfill import backfill
from replicator.commands.checkpoints import checkpoints_app
from replicator.commands.client import client_app
from replicator.commands.compact import compact
from replicator.commands.config import config_app, explain_app
from replicator.commands.console import console
from replicator.commands.doctor import doctor
from replicator.commands.drill import drill
from replicator.commands.failback import failback_app
from replicator.commands.failover import failover_app
from replicator.commands.gaps import gaps_app
from replicator.commands.gc import gc
from replicator.commands.local import demo, local_app
from replicator.commands.offsets import offsets_app
from replicator.commands.plan import plan
from replicator.commands.repair import release, skip
from replicator.commands.repair_segment import repair_segment
from replicator.commands.restore import restore
from replicator.commands.rights import rights
from replicator.commands.schemas import schemas_app
from replicator.commands.status import status
from replicator.commands.top import top
from replicator.commands.verify import verify
from replicator.terminal.interrupt import NOTHING_CHANGED, WRITES_ONCE, interruptible
from replicator.terminal.output import CONFIG_VARIABLE, FAILED, USAGE, complain, group, print_text

__all__ = ["CONFIG_VARIABLE", "app", "main"]

RUN, INSPECT, REPAIR, RESTORE, LOCAL = "Run", "Inspect", "Repair", "Restore", "Local"
"""Panels of `--help`; their commands are listed in the order below."""

app = group(
    "Mirror and restore Kafka topics. Exits 0 done, 1 failed, 2 usage, 3 differences.",
    by_panels=True,
)


def _add(panel: str, *commands: Callable[..., Any]) -> None:
    for command in commands:
        app.command(rich_help_panel=panel)(command)


_add(
    RUN,
    services.egress,
    services.ingress,
    services.sync,
    backfill,
    compact,
    interruptible("what was removed is recorded, and the next run plans the rest anew")(gc),
)
_add(
    INSPECT,
    interruptible()(status),
    top,
    console,
    interruptible("a probe object may be left, which the next run removes")(doctor),
    interruptible()(plan),
    rights,
)
app.add_typer(gaps_app, name="gaps", rich_help_panel=INSPECT)
app.add_typer(client_app, name="client", rich_help_panel=INSPECT)
app.add_typer(offsets_app, name="offsets", rich_help_panel=INSPECT)
app.add_typer(config_app, name="config", rich_help_panel=INSPECT)
app.add_typer(explain_app, name="explain", rich_help_panel=INSPECT)
_add(
    REPAIR,
    interruptible(WRITES_ONCE)(release),
    interruptible(WRITES_ONCE)(skip),
    interruptible(WRITES_ONCE)(adopt),
    interruptible("run it again: it goes on from what it finds")(repair_segment),
)
app.add_typer(checkpoints_app, name="checkpoints", rich_help_panel=REPAIR)
_add(
    RESTORE,
    restore,
    interruptible(f"{NOTHING_CHANGED}, and a --state file keeps what was proven")(verify),
    interruptible("nothing was measured")(drill),
)
app.add_typer(failover_app, name="failover", rich_help_panel=RESTORE)
app.add_typer(failback_app, name="failback", rich_help_panel=RESTORE)
app.add_typer(schemas_app, name="schemas", rich_help_panel=RESTORE)
_add(LOCAL, demo)
app.add_typer(local_app, name="local", rich_help_panel=LOCAL)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and exit. A ReplicatorError is printed as one message; any other exception is a bug and keeps its
    traceback."""
    try:
        in_terminal = any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
        with ignored_reload(in_terminal=in_terminal):
            _run(sys.argv[1:] if arguments is None else arguments)
    except ConfigError as error:
        complain(str(error))
        sys.exit(USAGE)
    except ReplicatorError as error:
        complain(str(error))
        sys.exit(FAILED)


def _run(arguments: Sequence[str]) -> None:
    try:
        _app_for(arguments)(args=arguments, prog_name="replicator")
    except SystemExit as end:
        if not end.code and is_submitted():
            from infra.spark.driver import end_submitted  # noqa: PLC0415 -- 30 MB, only where there is a Spark

            end_submitted()
        raise


def _app_for(arguments: Sequence[str]) -> typer.Typer:
    """`app`, with the command alone that `arguments` name, or, where they are options alone, with commands that have
    only their help: Typer takes 60 ms to read the parameters of all of them."""
    name = next((one for one in arguments if not one.startswith("-")), None)
    narrowed = copy(app)
    if arguments and name is None:
        narrowed.registered_commands = [_without_parameters(one) for one in app.registered_commands]
        narrowed.registered_groups = [_without_commands(one) for one in app.registered_groups]
        return narrowed
    narrowed.registered_commands = [one for one in app.registered_commands if _name(one) == name]
    narrowed.registered_groups = [one for one in app.registered_groups if one.name == name]
    return narrowed if narrowed.registered_commands or narrowed.registered_groups else app


def _without_parameters(command: CommandInfo) -> CommandInfo:
    def listed() -> None:
        pass

    short = copy(command)
    listed.__doc__, short.name, short.callback = getattr(command.callback, "__doc__", None), _name(command), listed
    return short


def _without_commands(commands: TyperInfo) -> TyperInfo:
    short = copy(commands)
    short.typer_instance = copy(commands.typer_instance)
    if short.typer_instance is not None:
        short.typer_instance.registered_commands, short.typer_instance.registered_groups = [], []
    return short


def _name(command: CommandInfo) -> str | None:
    made = None if command.callback is None else typer.main.get_command_name(command.callback.__name__)
    return command.name or made


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 -- slow, and only for this option

        print_text(f"replicator {version('kafka-segment-replicator')}")
        raise typer.Exit


@app.callback()
def _root(
    _version_wanted: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
