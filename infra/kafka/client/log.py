"""The Kafka client's own log lines, made fit for ours."""

from __future__ import annotations

import logging
import time

from infra.runtime.log_fields import COUNT, REASON


class _AsEvent(logging.Filter):
    """The client's own lines become events like ours: one name, the text as a field.

    A broker that is away makes every client write some twenty lines a second, so each kind of line (the client begins
    it with a word, "FAIL") passes once in `EVERY_SECONDS`, with the number of those left out. That gapless delivery is
    experimental, which each producer tells, we know.
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
