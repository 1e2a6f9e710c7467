"""What may become of notifications between a queue and who receives them: twice, in another order, never."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

AT_ONCE = 10  # SQS gives no more


@dataclass(frozen=True, slots=True)
class Twice:
    """Each comes again later, beside others."""


@dataclass(frozen=True, slots=True)
class Shuffled:
    """They are held back, and come in any order."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """They are gone for good, without an error."""


Notices = Twice | Shuffled | Dropped


@dataclass(slots=True)
class Mailbag:
    """Between a queue and its receivers. Thread safe."""

    random: Random = field(default_factory=lambda: Random(0))
    _held: deque[dict[str, Any]] = field(default_factory=deque)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def received(self, body: bytes, fault: Notices | None, delete: Callable[[str], None]) -> bytes:
        """The answer to give in place of `body`, an answer to ReceiveMessage; `delete` takes a receipt handle."""
        answer = json.loads(body)
        with self._mutex:
            came = list(answer.get("Messages", ()))
            match fault:
                case Dropped():
                    for one in came:
                        delete(one["ReceiptHandle"])
                    came = []
                case Twice():
                    self._held.extend(came)
                case Shuffled():
                    self._held.extend(came)
                    came = []
                case None:
                    pass
            if fault is None or self._held:
                came += self._some(AT_ONCE - len(came))
        if came:
            answer["Messages"] = came
        else:
            answer.pop("Messages", None)
        return json.dumps(answer).encode()

    def _some(self, most: int) -> list[dict[str, Any]]:
        """Of those held back, in another order; not all at once."""
        self.random.shuffle(self._held)
        count = min(most, len(self._held), self.random.randint(1, AT_ONCE))
        return [self._held.popleft() for _ in range(max(count, 0))]
