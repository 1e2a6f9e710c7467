"""Parts that a user brings. They are named in the configuration: `package.module:name`, imported from the Python path,
or `name` alone, an entry point that an installed package declares."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from formats.errors import PluginFailed

POLICIES, FILTERS = "replicator.policies", "replicator.filters"  # groups of entry points
SIGN = ":"  # what tells a plug-in's name from that of a part of ours
_CLEAR = (ImportError, AttributeError, ValueError)  # their messages are clear without the type


def imported(name: str, kind: str) -> object:
    """What `name` stands for. `kind`: a word for it. Raises ValueError, and whatever the module raises, SystemExit
    excepted: that is an ImportError."""
    module, colon, attribute = name.partition(SIGN)
    if not colon or not module or not attribute:
        raise ValueError(f"not package.module:{kind}")
    is_loaded = module in sys.modules
    try:
        return getattr(importlib.import_module(module), attribute)
    except SystemExit as error:
        raise ImportError(_ends(module, error)) from error
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # it is the module's own import
        what = "install its package, or name its directory in PYTHONPATH"
        raise ModuleNotFoundError(f"{error}; {what}", name=error.name) from error
    except AttributeError as error:
        if not is_loaded:
            raise
        what = "the module is loaded already, and is not read again: if it has it by now, restart the process"
        raise AttributeError(f"{error}; {what}") from error


def _ends(module: str, error: SystemExit) -> str:
    """An import must not end this process: the reason would be the module's, without a word of the configuration."""
    return f"{module} ends the process while it is imported: sys.exit({error.code!r})"


def installed(group: str) -> Collection[str]:
    """Names of entry points, in the order of the alphabet."""
    return sorted(entry_points(group=group).names)


def _of_entry_point(name: str, group: str) -> object:
    """Raises ValueError unless one package declares it, and whatever the module raises."""
    points = {point.value: point for point in entry_points(group=group, name=name)}
    if not points:
        known = ", ".join(installed(group)) or "none"
        raise ValueError(f"neither package.module:Class, nor an entry point of {group}; installed are: {known}")
    if len(points) > 1:
        raise ValueError(f"several packages declare it in {group}: {', '.join(sorted(points))}; name one of them")
    [point] = points.values()
    try:
        return point.load()
    except SystemExit as error:
        raise ImportError(_ends(point.module, error)) from error


@dataclass(frozen=True, slots=True)
class Plugin:
    """An object of a user's class. Calls are checked: its code may raise anything, and return anything."""

    name: str
    instance: Any

    def text(self, method: str, *arguments: str) -> str:
        """The text that the method returns. Raises PluginFailed."""
        result = self._call(method, arguments)
        if not isinstance(result, str):
            raise self._wrong(method, arguments, result, "text")
        return result

    def text_or_none(self, method: str, *arguments: str) -> str | None:
        """As `text`, of a method that may return None."""
        result = self._call(method, arguments)
        if not isinstance(result, str | None):
            raise self._wrong(method, arguments, result, "text and not None")
        return result

    def boolean(self, method: str, *arguments: str) -> bool:
        """The bool that the method returns. Raises PluginFailed."""
        result = self._call(method, arguments)
        if not isinstance(result, bool):
            raise self._wrong(method, arguments, result, "bool")
        return result

    def has(self, method: str) -> bool:
        return callable(getattr(self.instance, method, None))

    def _call(self, method: str, arguments: Sequence[str]) -> object:
        try:
            return getattr(self.instance, method)(*arguments)
        except (Exception, SystemExit) as error:  # user code may raise anything; an exit would end only this thread
            raise PluginFailed(f"{self._called(method, arguments)} raised {type(error).__name__}: {error}") from error

    def _wrong(self, method: str, arguments: Sequence[str], result: object, wanted: str) -> PluginFailed:
        return PluginFailed(f"{self._called(method, arguments)} returned {result!r}, which is no {wanted}")

    def _called(self, method: str, arguments: Sequence[str]) -> str:
        return f"{self.name}.{method}({', '.join(map(repr, arguments))})"


def plugin(name: str, methods: Collection[str], arguments: Mapping[str, str], *, group: str) -> Plugin:
    """An object of the class `name`, created with `arguments` by keyword. `group`: of entry points. Raises ValueError
    when the class is not found, lacks one of `methods`, or cannot be created."""
    try:
        found = imported(name, "Class") if SIGN in name else _of_entry_point(name, group)
    except Exception as error:  # a user's module may raise anything while it is imported
        text = str(error) if isinstance(error, _CLEAR) else f"{type(error).__name__}: {error}"
        raise ValueError(f"{name!r} is not found: {text}") from error
    if not isinstance(found, type):
        raise ValueError(f"{name!r} is no class")
    if lacking := [method for method in methods if not callable(getattr(found, method, None))]:
        raise ValueError(f"{name!r} lacks {', '.join(f'{method}()' for method in lacking)}")
    try:
        return Plugin(name, found(**arguments))
    except (Exception, SystemExit) as error:  # user code may raise anything
        with_ = f"({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        raise ValueError(f"{name}{with_} raised {type(error).__name__}: {error}") from error
