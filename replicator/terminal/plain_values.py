"""Values of options that need no conversion, or that of a path, without pydantic.

Typer converts each value by a pydantic model. Loading pydantic and making the models of a command takes 0.1 s of
processor time, and memory for as long as a service runs. Anything but these values is left to Typer, errors included:

    not given             None, or () of an option that may be repeated
    text                  as it is
    a path                as it is, unless it is there and cannot be read
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OTHERWISE = object()  # Typer converts it


def take_plain_values(parameters: Iterable[Any]) -> None:
    """Of the parameters of a command, its option --help included. May be called again."""
    for parameter in parameters:
        if not isinstance(parameter.process_value, _PlainValues):
            parameter.process_value = _PlainValues(parameter, parameter.process_value)


@dataclass(frozen=True, slots=True)
class _PlainValues:
    """In place of a parameter's method `process_value`."""

    parameter: Any
    otherwise: Callable[[Any, Any], Any]

    def __call__(self, ctx: Any, value: Any) -> Any:
        parameter = self.parameter
        plain = _plain(parameter, value)
        if plain is _OTHERWISE or (parameter.required and parameter.value_is_missing(plain)):
            return self.otherwise(ctx, value)
        return plain if parameter.callback is None else parameter.callback(ctx, parameter, plain)


def _plain(parameter: Any, value: Any) -> Any:
    if value is None:
        return () if parameter.multiple or parameter.nargs == -1 else None
    described = getattr(parameter, "type_descriptor", None)  # of a version of Typer that converts by pydantic
    if described is None or described.parameter_info.parser is not None or not isinstance(value, str):
        return _OTHERWISE
    if described.annotation is str:
        return value
    is_path = described.annotation is Path and not _is_examined(described.parameter_info) and "\0" not in value
    return Path(value) if is_path and (os.access(value, os.R_OK) or not os.path.exists(value)) else _OTHERWISE


def _is_examined(info: Any) -> bool:
    """Whether more is asked of a path than that it can be read if it is there."""
    return bool(
        info.exists
        or info.writable
        or info.resolve_path
        or info.allow_dash
        or not (info.file_okay and info.dir_okay)
        or info.path_type is not None
    )
