"""The objects that `sync` does not copy because they are not encrypted and `encryption.clear_objects` is "refuse"."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from infra.runtime.metrics import Metrics

NAMED = 10  # in one message
REMEDY = 'find out who wrote them; "read" copies objects from before they were encrypted, too'


@dataclass(slots=True)
class ClearObjects:
    """Counts them and remembers some. Safe to call from several threads."""

    prefix: str  # of the destination
    metrics: Metrics
    count: int = 0
    _names: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def refuse(self, key: str) -> None:
        """`key`: of the destination."""
        name = key.removeprefix(f"{self.prefix}/") if self.prefix else key
        with self._lock:
            self.count += 1
            if len(self._names) < NAMED:
                self._names.append(name)
        self.metrics.count("sync_clear_objects", 1, topic=name.split("/")[1])

    @property
    def problem(self) -> str:
        """How many there are, some of their names, and the remedy; empty when there are none."""
        if not self.count:
            return ""
        more = ", …" if self.count > len(self._names) else ""
        return (
            f'{self.count} not encrypted, and refused by encryption.clear_objects = "refuse" '
            f"({', '.join(sorted(self._names))}{more}): {REMEDY}"
        )
