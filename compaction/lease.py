"""Only one compaction or `gc` of an archive at a time. It saves work and nothing else: two at once are harmless."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from replicator import logkeys
from replicator.control import Lease
from replicator.control_store import ControlStore
from replicator.errors import ReplicatorError
from replicator.protocols import Clock

NAME = "compaction"
SPAN = timedelta(minutes=5)

log = logging.getLogger(__name__)


class LeaseTaken(ReplicatorError):
    """Another process compacts this archive, or removes what is old."""

    def __init__(self, region: str, lease: Lease) -> None:
        super().__init__(
            f"{lease.owner} works on the archive of {region}, until {lease.until.isoformat(timespec='seconds')} at "
            "least. If it is dead, wait until then; nothing is lost meanwhile"
        )
        self.lease = lease


@contextmanager
def held(control: ControlStore, region: str, owner: str, clock: Clock, span: timedelta = SPAN) -> Iterator[Lease]:
    """Take the lease, keep it while the body runs, give it back. Raises LeaseTaken, and what the store raises."""
    lease = control.take_lease(region, NAME, owner, now=clock.now(), span=span)
    if lease.owner != owner:
        raise LeaseTaken(region, lease)
    done = threading.Event()

    def keep() -> None:
        while not done.wait(span.total_seconds() / 3):
            try:
                control.take_lease(region, NAME, owner, now=clock.now(), span=span)
            except ReplicatorError as error:
                log.warning("lease_not_renewed", extra={logkeys.ERROR: str(error)})

    keeper = threading.Thread(target=keep, name="lease", daemon=True)
    keeper.start()
    try:
        yield lease
    finally:
        done.set()
        keeper.join()
        control.end_lease(region, NAME, owner, now=clock.now())
