"""What a status is read from: several parts, of which one that cannot be read leaves the others as they are.

A part that needs what did not answer before is not asked again: each would wait as long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from formats.errors import BrokerUnavailable, ConfigError, ReplicatorError, StoreUnavailable

T = TypeVar("T")

NOT_ASKED = "not asked, for the same reason"


@dataclass(slots=True)
class StatusReading:
    """`not_read`: why a part is missing, by its name."""

    not_read: dict[str, str] = field(default_factory=dict)
    _has_store: bool = True
    _has_broker: bool = True

    def read(self, part: str, ask: Callable[[], T], *, of_bucket_alone: bool = False) -> T | None:
        """The answer; None when it cannot be read. `of_bucket_alone`: it needs no broker. Raises ConfigError."""
        if not self._has_store or not (self._has_broker or of_bucket_alone):
            self.not_read[part] = NOT_ASKED
            return None
        try:
            return ask()
        except ConfigError:
            raise
        except ReplicatorError as error:
            self._has_store &= not isinstance(error, StoreUnavailable)
            self._has_broker &= not isinstance(error, BrokerUnavailable)
            self.not_read[part] = str(error)
            return None
