"""The settings in force: held once for all parts of a service, and replaced as a whole when the file changes."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class InForce(Protocol[S_co]):
    """What the parts of a service read, from any thread. Settings themselves never change: work that takes several
    steps reads `value` once, and another `value`, compared by identity, means that they were replaced since."""

    @property
    def value(self) -> S_co: ...


class Current(Generic[S]):
    """The holder. `replicator.services` has it, and calls `replace` from one thread."""

    def __init__(self, value: S) -> None:
        self._value = value

    @property
    def value(self) -> S:
        return self._value

    def replace(self, value: S) -> None:
        self._value = value
