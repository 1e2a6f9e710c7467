"""`--region`: whose half of a file with several regions this process works on. Every command that takes --config has
it."""

from __future__ import annotations

import copy
from contextvars import ContextVar
from functools import cache
from typing import Annotated, Any

import typer

REGION_VARIABLE = "REPLICATOR_REGION"
HINT = f" with --region NAME, or ${REGION_VARIABLE}"  # behind "name one of them"

_CONFIG, _PARAMETER, _OPTION = "config", "process_region", "--region"
_HELP = f"Work on this region of a file with several; default: ${REGION_VARIABLE}."
_GIVEN: ContextVar[str | None] = ContextVar(_PARAMETER, default=None)


def add_region_option(command: Any) -> None:
    """Give a command that takes --config the option, which `region_option` reads; and so those below it."""
    for below in getattr(command, "commands", {}).values():
        add_region_option(below)
    names = [parameter.name for parameter in command.params]
    if _CONFIG in names and _PARAMETER not in names:
        command.params.insert(names.index(_CONFIG) + 1, copy.copy(_option()))


def region_option() -> str | None:
    """The region that the running command was given by its option; None without one."""
    return _GIVEN.get()


def _note(context: typer.Context, value: str | None) -> None:
    if value is not None:
        context.meta[_PARAMETER] = value  # which a group's commands share
    _GIVEN.set(context.meta.get(_PARAMETER))


@cache
def _option() -> Any:
    app = typer.Typer(add_completion=False)

    @app.command()
    def command(
        process_region: Annotated[
            str | None, typer.Option(_OPTION, metavar="NAME", help=_HELP, callback=_note, expose_value=False)
        ] = None,
    ) -> None: ...

    found = typer.main.get_command(app).params
    return next(parameter for parameter in found if parameter.name == _PARAMETER)
