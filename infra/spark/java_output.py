"""What Spark's Java writes: to our log, line by line, with the last lines kept for errors."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from infra.runtime import log_fields
from infra.spark.task_failures import LOST

LAST_LINES = 20
END_SECONDS = 20.0
PASSED_ON = "\x1e"  # begins a line of a worker's stderr that goes to ours as it is: it is a log line of ours already
_WARNINGS = ("WARN ", "ERROR ", "FATAL ")  # line prefixes of the pattern in `infra.spark.driver`

log = logging.getLogger("infra.spark.driver")


class JavaOutput:
    """Output of Java, and of the workers of a local master: written to our log; the last lines are kept for errors."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._reader: threading.Thread | None = None
        self.lost_task = ""

    def last(self) -> str:
        return "\n".join(f"  {line}" for line in self._lines if not line.startswith("\tat "))

    @contextmanager
    def writer(self) -> Iterator[int]:
        """The writing end of a pipe, for a process. The reader thread ends when the last such process has ended."""
        reading, writing = os.pipe()
        self._reader = threading.Thread(target=self._read, args=(reading,), name="spark-output", daemon=True)
        self._reader.start()
        try:
            yield writing
        finally:
            os.close(writing)

    def join(self) -> None:
        if self._reader is not None:
            self._reader.join(END_SECONDS)

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in map(str.rstrip, lines):
                if line.startswith(PASSED_ON):
                    print(line.removeprefix(PASSED_ON), file=sys.stderr, flush=True)  # noqa: T201
                    continue
                self._lines.append(line)
                if LOST in line:
                    self.lost_task = line
                level = logging.WARNING if line.startswith(_WARNINGS) else logging.DEBUG
                log.log(level, "spark_output", extra={log_fields.OUTPUT: line})
