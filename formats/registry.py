"""Formats by name. Another package adds one by an entry point in the group `replicator.formats`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from formats.errors import ConfigError
from infra.contracts.consumer import SegmentFormat

GROUP = "replicator.formats"


def load(
    name: str, options: Mapping[str, object] | None = None, *, known: Iterable[EntryPoint] | None = None
) -> SegmentFormat:
    """The format called `name`, made with `options` as keyword arguments. Raises ConfigError with every problem.

    `known` are the installed entry points, unless told otherwise.
    """
    given = dict(options or {})
    points = {point.name: point for point in (entry_points(group=GROUP) if known is None else known)}
    if name not in points:
        raise ConfigError([f"no format {name!r}; installed: {', '.join(sorted(points)) or 'none'}"], source="format")
    try:
        make = points[name].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError([f"{points[name].value} does not load: {error}"], source=f"format {name!r}") from error
    allowed = [p for p in inspect.signature(make).parameters if p != "name"]
    unknown = [f"no option {option!r}; there are: {', '.join(allowed)}" for option in given if option not in allowed]
    if unknown:
        raise ConfigError(unknown, source=f"format {name!r}")
    try:
        return cast(SegmentFormat, make(**given))
    except (TypeError, ValueError) as error:
        raise ConfigError([str(error)], source=f"format {name!r}") from error
