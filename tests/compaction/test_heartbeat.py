"""Heartbeats of processes that compact on a schedule; only `status` reads them."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from io import BytesIO

from compaction.heartbeat import sending_heartbeats
from infra.archive.compaction_runs import CompletedRuns
from infra.archive.job_heartbeats import STALE_AFTER, Heartbeat, HeartbeatStore, heartbeats_prefix
from infra.archive.lease import is_dead
from infra.local.waiting import wait_until
from replicator.config import CompactionSettings
from replicator.status.compaction import CompactionSources, CompactionStatus
from tests.compaction.archive import PREFIX, T0, Archive, job
from tests.fakes.surroundings import FailingStore, HandClock

SOON, SPAN = timedelta(seconds=20), timedelta(minutes=10)
JOBS = (job(name="nightly", cron="0 1 * * *"), job(name="hourly", cron="0 * * * *"), job(name="by-hand"))


def heartbeats(archive: Archive, region: str = "eu-1") -> HeartbeatStore:
    return HeartbeatStore(archive.memory, PREFIX, region)


def seen(archive: Archive) -> CompactionStatus:
    sources = CompactionSources(
        settings=CompactionSettings(jobs=JOBS),
        region="eu-1",
        control=archive.control,
        heartbeats=heartbeats(archive),
        runs=CompletedRuns(archive.memory, PREFIX, "eu-1"),
        lease="compaction",
        is_dead=is_dead,
        next_run=lambda one, now: None if one.cron is None else now + timedelta(hours=1),
        missed_times=lambda *_: 0,
        overdue=2,
    )
    return sources.read(archive.now())


def next_runs(archive: Archive) -> dict[str, bool]:
    return {one.name: one.next_at is not None for one in seen(archive).jobs}


def test_the_next_run_is_that_of_a_process_that_runs_the_job() -> None:
    archive = Archive()
    assert next_runs(archive) == {"nightly": False, "hourly": False, "by-hand": False}
    with sending_heartbeats(heartbeats(archive), "host:1:word", ["nightly"], archive):
        assert wait_until(lambda: bool(heartbeats(archive).all()), SOON)
        assert [(one.owner, one.jobs) for one in seen(archive).processes] == [("host:1:word", ("nightly",))]
        assert next_runs(archive) == {"nightly": True, "hourly": False, "by-hand": False}
    assert heartbeats(archive).all() == [], "it took its word away"
    assert next_runs(archive)["nightly"] is False


def test_heartbeats_continue_while_the_process_runs() -> None:
    archive = Archive()
    with sending_heartbeats(heartbeats(archive), "host:1:word", ["nightly"], archive, timedelta(milliseconds=60)):
        assert wait_until(lambda: bool(heartbeats(archive).all()), SOON)
        archive.time += timedelta(hours=1)
        assert wait_until(lambda: any(one.until > archive.time for one in heartbeats(archive).all()), SOON)
    assert not list(archive.memory.list(""))


def test_the_heartbeat_of_a_dead_process_counts_until_it_expires_unless_known_dead() -> None:
    archive = Archive()
    here = f"{socket.gethostname()}:{2**22 + 1}:word"  # no process has that number
    for owner in ("elsewhere:1:word", here):
        heartbeats(archive).beat(Heartbeat(owner=owner, jobs=("nightly",), until=T0 + SPAN))
    assert [one.owner for one in seen(archive).processes] == ["elsewhere:1:word"]
    archive.time += SPAN
    assert seen(archive).processes == []


def test_a_dead_process_whose_clock_was_ahead_counts_no_longer_than_others() -> None:
    """`status` named it, and the next run of its jobs, until its time had come."""
    archive = Archive()
    ahead = timedelta(days=400)
    heartbeats(archive).beat(Heartbeat(owner="ahead:1:word", jobs=("nightly",), until=T0 + ahead + SPAN))
    assert [one.owner for one in seen(archive).processes] == ["ahead:1:word"]
    archive.time += SPAN
    assert (seen(archive).processes, next_runs(archive)["nightly"]) == ([], False)
    archive.time += STALE_AFTER + timedelta(seconds=1)
    heartbeats(archive).sweep(archive.time)
    assert not list(archive.memory.list(""))


def test_old_heartbeats_are_removed_by_the_next_process() -> None:
    archive = Archive()
    heartbeats(archive).beat(Heartbeat(owner="old:1:word", jobs=(), until=T0))
    heartbeats(archive).beat(Heartbeat(owner="late:1:word", jobs=(), until=T0 + SPAN))
    archive.time = T0 + STALE_AFTER + timedelta(seconds=1)
    with sending_heartbeats(heartbeats(archive), "next:1:word", [], archive):
        left = {"late:1:word", "next:1:word"}
        assert wait_until(lambda: {one.owner for one in heartbeats(archive).all()} == left, SOON)


def test_a_damaged_heartbeat_hides_no_other_and_is_removed_like_them() -> None:
    """`status` had no compaction any more, its quarantine included, until a person removed the object."""
    archive = Archive()
    key = f"{heartbeats_prefix(PREFIX, 'eu-1')}old:1:word/{1:020d}"
    archive.memory.put_new(key, BytesIO(b"{}"), 2)
    archive.time += timedelta(minutes=1)
    heartbeats(archive).beat(Heartbeat(owner="host:1:word", jobs=("nightly",), until=archive.time + SPAN))
    assert [(one.owner, one.jobs) for one in seen(archive).processes] == [
        ("host:1:word", ("nightly",)),
        ("old:1:word", ()),
    ]
    archive.time += SPAN - timedelta(seconds=1)
    assert [one.owner for one in seen(archive).processes] == ["host:1:word"]
    archive.time += STALE_AFTER
    heartbeats(archive).sweep(archive.time)
    assert [one.owner for one in heartbeats(archive).all()] == ["host:1:word"]


def test_an_unavailable_store_delays_nothing() -> None:
    objects = FailingStore(HandClock(T0))
    objects.away = {"list", "put_new"}
    archive = Archive()
    worked = False
    with sending_heartbeats(HeartbeatStore(objects, PREFIX, "eu-1"), f"host:{os.getpid()}:word", ["x"], archive):
        worked = True
    assert worked
