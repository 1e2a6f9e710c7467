"""Processes that the tests of the embedded stack start, and what they wait for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.local.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from infra.local.broker import Broker


ROOT = Path(__file__).resolve().parent.parent.parent.parent
PATIENCE = timedelta(seconds=60)


def eventually(check: Callable[[], bool]) -> bool:
    return wait_until(check, PATIENCE)


@contextmanager
def child(source: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that runs `source`, killed at the end of the block if it still runs."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def printed(process: subprocess.Popen[str]) -> dict[str, object]:
    """The JSON line that the child prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the child ended without output"
    answer: dict[str, object] = json.loads(line)
    return answer


def answers(broker: Broker) -> bool:
    try:
        AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0}).list_topics(timeout=0.3)
    except KafkaException:
        return False
    return True
