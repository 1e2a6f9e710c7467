"""Only one compaction or `gc` of an archive at a time. It saves work and nothing else: two at once are harmless."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from formats.control.lease import Lease
from formats.errors import ReplicatorError
from infra.archive.control import ControlStore
from infra.runtime import log_fields
from infra.runtime.lifecycle import Clock

NAME = "compaction"
SPAN = timedelta(minutes=1)

log = logging.getLogger(__name__)


class LeaseTaken(ReplicatorError):
    """Another process compacts this archive, or removes what is old."""

    def __init__(self, region: str, lease: Lease) -> None:
        super().__init__(
            f"{lease.owner} works on the archive of {region}, until {lease.until.isoformat(timespec='seconds')} at "
            "least. If it is dead, wait until then; nothing is lost meanwhile"
        )
        self.lease = lease


def this_process() -> str:
    """As an owner: host, process, and a word, since both come again."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def is_dead(owner: str) -> bool:
    """Whether the owner was a process of this host that is there no more, so that a restart need not wait. Only ever
    True for certain, unless two hosts have one name; then two compactions run at once, which is harmless."""
    host, _, rest = owner.partition(":")
    number = rest.partition(":")[0]
    if host != socket.gethostname() or not number.isdecimal():
        return False
    if int(number) == os.getpid():
        return True  # a container's process has the same number in each of its lives
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it is there, and somebody else's
    return False


@contextmanager
def held(control: ControlStore, region: str, owner: str, clock: Clock, span: timedelta = SPAN) -> Iterator[Lease]:
    """Take the lease, keep it while the body runs, give it back. Raises LeaseTaken, and what the store raises."""
    lease = control.take_lease(region, NAME, owner, now=clock.now(), span=span, is_dead=is_dead)
    if lease.owner != owner:
        raise LeaseTaken(region, lease)
    done = threading.Event()

    def keep() -> None:
        while not done.wait(span.total_seconds() / 3):
            try:
                control.take_lease(region, NAME, owner, now=clock.now(), span=span)
            except ReplicatorError as error:
                log.warning("lease_not_renewed", extra={log_fields.ERROR: str(error)})

    keeper = threading.Thread(target=keep, name="lease", daemon=True)
    keeper.start()
    try:
        yield lease
    finally:
        done.set()
        keeper.join()
        control.end_lease(region, NAME, owner, now=clock.now())
