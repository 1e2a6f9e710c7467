"""A lease: one compaction or `gc` of an archive at a time, and one backfill. It only saves work: two at once are
harmless."""

from __future__ import annotations

import io
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from formats.control.keys import lease_prefix
from formats.control.lease import SKEW, Lease, decode_lease, encode_lease
from formats.errors import ReplicatorError, SegmentExists, SegmentNotFound
from infra.archive.control_objects import naming, read_object
from infra.archive.generations import is_generation
from infra.contracts.storage import ObjectStore
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable
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


@dataclass(frozen=True, slots=True)
class LeaseStore:
    """As thread safe as `objects`, whose errors it raises; MalformedEvent for an object that cannot be decoded."""

    objects: ObjectStore
    prefix: str

    def of(self, region: str, name: str) -> Lease | None:
        """The last lease, which may have expired. None when it was never taken, or changes its owner right now."""
        prefix = lease_prefix(self.prefix, region, name)
        keys = self._keys(prefix)
        try:
            return self._read(prefix, keys[-1]) if keys else None
        except SegmentNotFound:
            return None

    def take(
        self,
        region: str,
        name: str,
        owner: str,
        *,
        now: datetime,
        span: timedelta,
        is_dead: Callable[[str], bool] = lambda _: False,
    ) -> Lease:
        """Take or renew the lease. Returns the lease that holds: that of `owner`, or another owner's that has not
        expired and whose owner is not dead according to `is_dead`. A lease of a machine whose clock is ahead holds no
        longer than `span` after it was written, by the store's clock."""
        prefix = lease_prefix(self.prefix, region, name)
        while True:
            keys = self._keys(prefix)
            token = int(keys[-1][len(prefix) :]) if keys else 0
            if keys:
                try:
                    current = self._read(prefix, keys[-1])
                except SegmentNotFound:
                    continue  # another process was faster
                if current.owner != owner and current.until > now and not is_dead(current.owner):
                    written_at = self.written_at(region, name, token)
                    if written_at is None:
                        continue  # likewise
                    if written_at + span > now:
                        return replace(current, until=min(current.until, written_at + span))
            lease = Lease(token=token + 1, owner=owner, until=now + span)
            data = encode_lease(lease)
            try:
                with durable(Step.TAKE_LEASE):
                    self.objects.put_new(f"{prefix}{lease.token:020d}", io.BytesIO(data), len(data))
            except SegmentExists:
                continue
            self.objects.delete_many(keys)
            return lease

    def _read(self, prefix: str, key: str) -> Lease:
        with naming(key):
            return decode_lease(int(key[len(prefix) :]), read_object(self.objects, key))

    def _keys(self, prefix: str) -> Sequence[str]:
        """In order of their tokens; foreign keys are left out."""
        return [item.key for item in self.objects.list(prefix) if is_generation(item.key[len(prefix) :])]

    def end(self, region: str, name: str, owner: str, *, now: datetime) -> None:
        """Release the lease, if `owner` still holds it. The next token is still higher."""
        self.take(region, name, owner, now=now, span=timedelta(0))

    def written_at(self, region: str, name: str, token: int) -> datetime | None:
        """By the store's clock. None when another owner has taken the lease since."""
        info = self.objects.stat(f"{lease_prefix(self.prefix, region, name)}{token:020d}")
        return None if info is None else info.modified_at


def clock_difference(leases: LeaseStore, region: str, lease: Lease, now: datetime) -> str:
    """Why ages cannot be computed by this machine's clock, `now`; empty if they can. `lease` was just taken, so the
    time of its object is the store's. Raises StoreUnavailable."""
    written_at = leases.written_at(region, NAME, lease.token)
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
    leases: LeaseStore, region: str, owner: str, clock: Clock, span: timedelta = SPAN, *, name: str = NAME
) -> Iterator[Lease]:
    """Take the lease, renew it while the body runs, release it. Raises LeaseTaken and the store's errors."""
    lease = leases.take(region, name, owner, now=clock.now(), span=span, is_dead=is_dead)
    if lease.owner != owner:
        raise LeaseTaken(region, lease)
    done = threading.Event()

    def renew() -> None:
        while not done.wait(span.total_seconds() / 3):
            try:
                leases.take(region, name, owner, now=clock.now(), span=span)
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
            leases.end(region, name, owner, now=clock.now())
        except ReplicatorError as error:  # what the body did stays done; the lease ends by itself
            log.warning("lease_not_ended", extra={log_fields.ERROR: str(error)})
