"""Turns the Kafka client's log lines into events of our logs."""

from __future__ import annotations

import logging
import time

from infra.runtime.log_fields import COUNT, REASON


class _AsEvent(logging.Filter):
    """Gives the client's lines one event name, with the text as a field.

    While a broker is down, every client writes some twenty lines a second. Each kind of line (its first word, such as
    "FAIL") therefore passes once in `EVERY_SECONDS`, with the number of suppressed lines. Each producer's warning that
    gapless delivery is experimental is always dropped: that is known.
    """

    EVERY_SECONDS = 10.0

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if "enable.gapless.guarantee is experimental" in text:
            return False
        kind, now = text.partition(" ")[0], time.monotonic()
        if now < self._next.get(kind, 0.0):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        self._next[kind] = now + self.EVERY_SECONDS
        record.msg, record.args = "kafka_client", ()
        setattr(record, REASON, text)
        setattr(record, COUNT, 1 + self._left_out.pop(kind, 0))
        return True


client_log = logging.getLogger("infra.kafka.client")
client_log.addFilter(_AsEvent())
