"""Which of many values have something to do."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Resting(Protocol):
    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is to be done for it until it is changed."""


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Resting)


@dataclass(slots=True)
class BusyValues(Generic[K, V]):
    """Values by key. What is handed out may be changed, so a value counts as busy from then on, until `settle` finds it
    at rest. For one thread; may change during an iteration, which covers the values at its start."""

    _all: dict[K, V] = field(default_factory=dict)
    _busy: dict[K, V] = field(default_factory=dict)

    @property
    def all(self) -> Mapping[K, V]:
        """Only to be read: nothing here counts as handed out."""
        return self._all

    def put(self, key: K, value: V) -> None:
        self._all[key] = self._busy[key] = value

    def remove(self, key: K) -> None:
        """Raises KeyError."""
        del self._all[key]
        self._busy.pop(key, None)

    def get(self, key: K) -> V | None:
        if (value := self._all.get(key)) is not None:
            self._busy[key] = value
        return value

    def __iter__(self) -> Iterator[V]:
        self._busy.update(self._all)
        return iter(list(self._all.values()))

    def busy(self) -> Sequence[V]:
        """All that are not known to be at rest."""
        return list(self._busy.values())

    def settle(self) -> None:
        """Those at rest are not busy any more."""
        self._busy = {key: value for key, value in self._busy.items() if not value.is_at_rest}

    def left_out(self) -> Sequence[V]:
        """Those that `busy` leaves out."""
        return [value for key, value in self._all.items() if key not in self._busy]
