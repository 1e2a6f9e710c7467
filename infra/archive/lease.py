"""A lease: one compaction or `gc` of an archive at a time, and one backfill. It only saves work: two at once are
harmless."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from formats.control.lease import SKEW, Lease
from formats.errors import ReplicatorError
from infra.archive.control import ControlStore
from infra.runtime import log_fields
from infra.runtime.lifecycle import Clock

NAME = "compaction"
BACKFILL = "backfill"  # beside the other: it deletes nothing
SPAN = timedelta(minutes=1)

log = logging.getLogger(__name__)


class LeaseTaken(ReplicatorError):
    """Another process compacts this archive, removes expired segments, or fills it."""

    def __init__(self, region: str, lease: Lease) -> None:
        super().__init__(
            f"{lease.owner} works on the archive of {region}, until {lease.until.isoformat(timespec='seconds')} at "
            "least. If it is dead, wait until then; nothing is lost meanwhile"
        )
        self.lease = lease


def clock_difference(control: ControlStore, region: str, lease: Lease, now: datetime) -> str:
    """Why ages cannot be computed by this machine's clock, `now`; empty if they can. `lease` was just taken, so the
    time of its object is the store's. Raises StoreUnavailable."""
    written_at = control.lease_written_at(region, NAME, lease.token)
    if written_at is None:
        return f"another process took the lease of {region}; run again when it is done"
    if abs(written_at - now) <= SKEW:
        return ""
    return (
        f"this machine's clock says {now.isoformat(timespec='seconds')}, the store's "
        f"{written_at.isoformat(timespec='seconds')}: ages cannot be computed; set the one that is wrong"
    )


def this_process() -> str:
    """Owner id of this process: host, process id, and a random word, since host and process id recur."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def is_dead(owner: str) -> bool:
    """Whether the owner was a process of this host that no longer exists, so that a restart need not wait. True is
    certain, unless two hosts have the same name; then two compactions run at once, which is harmless."""
    host, _, rest = owner.partition(":")
    number = rest.partition(":")[0]
    if host != socket.gethostname() or not number.isdecimal():
        return False
    if int(number) == os.getpid():
        return True  # a restarted container gets the same process id
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it exists, but belongs to another user
    return False


@contextmanager
def hold_lease(
    control: ControlStore, region: str, owner: str, clock: Clock, span: timedelta = SPAN, *, name: str = NAME
) -> Iterator[Lease]:
    """Take the lease, renew it while the body runs, release it. Raises LeaseTaken and the store's errors."""
    lease = control.take_lease(region, name, owner, now=clock.now(), span=span, is_dead=is_dead)
    if lease.owner != owner:
        raise LeaseTaken(region, lease)
    done = threading.Event()

    def renew() -> None:
        while not done.wait(span.total_seconds() / 3):
            try:
                control.take_lease(region, name, owner, now=clock.now(), span=span)
            except ReplicatorError as error:
                log.warning("lease_not_renewed", extra={log_fields.ERROR: str(error)})

    renewer = threading.Thread(target=renew, name="lease", daemon=True)
    renewer.start()
    try:
        yield lease
    finally:
        done.set()
        renewer.join()
        try:
            control.end_lease(region, name, owner, now=clock.now())
        except ReplicatorError as error:  # what the body did stays done; the lease ends by itself
            log.warning("lease_not_ended", extra={log_fields.ERROR: str(error)})
