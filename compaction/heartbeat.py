"""Writes heartbeats of a process that runs jobs on a schedule."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from formats.errors import ReplicatorError
from infra.archive.job_heartbeats import SPAN, Heartbeat, HeartbeatStore
from infra.runtime import log_fields
from infra.runtime.lifecycle import Clock

BEATS = 3  # per span, so that one may fail

log = logging.getLogger(__name__)


@contextmanager
def sending_heartbeats(
    store: HeartbeatStore,
    owner: str,
    jobs: Sequence[str],
    clock: Clock,
    span: timedelta = SPAN,
    *,
    each_time: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Write heartbeats while the body runs, on a separate thread, so that a store that hangs or fails delays no job.
    Only `status` reads them. `each_time` is called on that thread, too."""
    done = threading.Event()

    def beat() -> None:
        first = True
        while first or not done.wait(span.total_seconds() / BEATS):
            try:
                store.beat(Heartbeat(owner=owner, jobs=tuple(jobs), until=clock.now() + span))
                if first:
                    store.sweep(clock.now())
            except ReplicatorError as error:
                log.warning("heartbeat_failed", extra={log_fields.ERROR: str(error)})
            each_time()
            first = False
        try:
            store.end(owner)
        except ReplicatorError as error:
            log.warning("heartbeat_failed", extra={log_fields.ERROR: str(error)})

    beater = threading.Thread(target=beat, name="heartbeat", daemon=True)
    beater.start()
    try:
        yield
    finally:
        done.set()
        beater.join()
