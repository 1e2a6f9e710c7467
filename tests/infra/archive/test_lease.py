"""One compaction at a time, if clocks and processes behave; and no harm if they do not."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from datetime import timedelta

import pytest

from formats.control.keys import quarantine_key
from formats.control.quarantine import Quarantined
from formats.errors import MalformedEvent
from formats.segment import format_key
from infra.archive.control import ControlStore
from infra.archive.lease import NAME, LeaseTaken, hold_lease, this_process
from infra.local.waiting import wait_until
from tests.compaction.archive import PREFIX, T0, Archive
from tests.fakes.surroundings import FailingStore, HandClock
from tests.formats.sample_records import SOURCE, sample_rows, segment

REGION = SOURCE.region
SPAN = timedelta(minutes=5)


def test_one_owner_holds_the_lease_and_tokens_grow() -> None:
    archive = Archive()
    with hold_lease(archive.control.leases, REGION, "one", archive, SPAN) as first:
        with pytest.raises(LeaseTaken, match=r"one works on the archive of eu-1, until 2026-03-05T00:05:00"):
            hold_lease(archive.control.leases, REGION, "two", archive, SPAN).__enter__()
        assert archive.control.leases.of(REGION, NAME) == first
    with hold_lease(archive.control.leases, REGION, "two", archive, SPAN) as second:
        assert second.token > first.token
    assert len(list(archive.memory.list("data/eu-1/_control/v1/leases/"))) == 1


def test_a_foreign_key_is_no_lease() -> None:
    archive = Archive()
    leases, folder = archive.control.leases, "data/eu-1/_control/v1/leases/"
    first = leases.take(REGION, NAME, "one", now=archive.now(), span=SPAN)
    (key,) = (item.key for item in archive.memory.list(folder))
    archive.memory.put_new(f"{key}.bak", io.BytesIO(b"x"), 1)
    assert leases.of(REGION, NAME) == first
    assert leases.take(REGION, NAME, "one", now=archive.now(), span=SPAN).token == first.token + 1
    assert f"{key}.bak" in [item.key for item in archive.memory.list(folder)], "what is not ours stays"


def test_a_lease_that_cannot_be_decoded_is_named() -> None:
    archive = Archive()
    leases, key = archive.control.leases, f"data/eu-1/_control/v1/leases/{NAME}/{1:020d}"
    archive.memory.put_new(key, io.BytesIO(b"x"), 1)
    with pytest.raises(MalformedEvent, match=f"^{key}: not a lease: "):
        leases.of(REGION, NAME)
    with pytest.raises(MalformedEvent, match=f"^{key}: not a lease: "):
        leases.take(REGION, NAME, "one", now=archive.now(), span=SPAN)


def test_a_dead_owners_lease_is_taken_over_when_it_expired() -> None:
    archive = Archive()
    dead = archive.control.leases.take(REGION, NAME, "dead", now=archive.now(), span=SPAN)
    archive.time += SPAN - timedelta(seconds=1)
    with pytest.raises(LeaseTaken):
        hold_lease(archive.control.leases, REGION, "next", archive, SPAN).__enter__()
    archive.time += timedelta(seconds=1)
    with hold_lease(archive.control.leases, REGION, "next", archive, SPAN) as lease:
        assert lease.token == dead.token + 1


def test_a_lease_of_a_clock_that_is_ahead_holds_no_longer_than_another() -> None:
    """It has ended, and says a month from now."""
    archive, ahead = Archive(), HandClock(T0 + timedelta(days=30))
    with hold_lease(archive.control.leases, REGION, "ahead", ahead, SPAN):
        pass
    with pytest.raises(LeaseTaken, match="until 2026-03-05T00:05:00"):
        hold_lease(archive.control.leases, REGION, "next", archive, SPAN).__enter__()
    archive.time += SPAN
    with hold_lease(archive.control.leases, REGION, "next", archive, SPAN):
        pass


def test_the_lease_is_renewed_while_the_body_runs() -> None:
    archive = Archive()
    with hold_lease(archive.control.leases, REGION, "one", archive, timedelta(milliseconds=30)) as lease:

        def renewed() -> bool:
            now = archive.control.leases.of(REGION, NAME)
            return now is not None and now.token > lease.token + 1 and now.owner == "one"

        assert wait_until(renewed, timedelta(seconds=10))


def test_a_lease_that_cannot_be_ended_undoes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """What was done is reported; the lease ends by itself."""
    store = FailingStore(HandClock(T0))
    archive = Archive(around=lambda _: store)
    with hold_lease(archive.control.leases, REGION, "one", archive, SPAN):
        store.away = {"put_new", "list", "open", "delete_many"}
    assert "lease_not_ended" in [record.message for record in caplog.records]
    store.away = set()
    archive.time += SPAN
    with hold_lease(archive.control.leases, REGION, "two", archive, SPAN):
        pass


def test_a_quarantine_does_not_apply_to_a_later_object() -> None:
    archive = Archive()
    name = segment(0, 9)
    archive.write(name, sample_rows(10))
    first = Quarantined(stored_at=T0, reason="damaged", found_at=T0)
    archive.control.quarantine.record(name, first)
    archive.control.quarantine.record(name, Quarantined(stored_at=T0, reason="again", found_at=T0 + SPAN))
    assert archive.control.quarantine.all(REGION) == {name: first}
    archive.time += SPAN
    archive.memory.replace(format_key(PREFIX, name), archive.bytes_of(name))
    assert archive.control.quarantine.all(REGION) == {}
    later = Quarantined(stored_at=T0 + SPAN, reason="damaged, too", found_at=T0 + SPAN)
    archive.control.quarantine.record(name, later)
    assert archive.control.quarantine.all(REGION) == {name: later}
    assert archive.control.quarantine.all("elsewhere") == {}
    archive.memory.replace(quarantine_key(PREFIX, name), b"{")
    archive.control.quarantine.record(name, later)
    assert archive.control.quarantine.of(name) == later, "one that cannot be decoded is replaced"
    archive.memory.delete_many([format_key(PREFIX, name)])
    assert archive.control.quarantine.all(REGION) == {}


def test_a_quarantine_that_another_process_ends_meanwhile_is_recorded() -> None:
    """Such as `repair-segment`, between the put that finds the key taken and the read of what is there."""
    store, name = FailingStore(HandClock()), segment(0, 9)
    quarantine, key = ControlStore(store, PREFIX).quarantine, quarantine_key(PREFIX, name)
    quarantine.record(name, Quarantined(stored_at=T0, reason="damaged", found_at=T0))
    store.before["open"] = lambda _: store.memory.delete_many([key])
    again = Quarantined(stored_at=T0, reason="again", found_at=T0 + SPAN)
    quarantine.record(name, again)
    assert quarantine.of(name) == again


def test_the_lease_of_a_dead_process_of_this_host_is_taken_at_once() -> None:
    archive = Archive()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    host = socket.gethostname()
    for owner in (f"{host}:{gone.pid}:a", f"{host}:{os.getpid()}:an earlier life of this container"):
        archive.control.leases.take(REGION, NAME, owner, now=archive.now(), span=SPAN)
        with hold_lease(archive.control.leases, REGION, this_process(), archive, SPAN) as lease:
            assert lease.owner != owner
    for owner in (f"{host}:{os.getppid()}:a", f"elsewhere:{gone.pid}:a", "something else"):
        archive.control.leases.take(REGION, NAME, owner, now=archive.now(), span=SPAN, is_dead=lambda _: True)
        with pytest.raises(LeaseTaken):
            hold_lease(archive.control.leases, REGION, this_process(), archive, SPAN).__enter__()
