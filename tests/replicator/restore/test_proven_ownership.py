"""Ownership of a restore that is proved again and again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from formats.errors import OwnershipLost
from replicator.restore.preserving import EXPIRES_AFTER, LASTS, PROVED_EVERY, TAKE_OVER_WAIT, ProvenOwnership


@dataclass
class Proofs:
    """Each takes some time."""

    at: float = 0.0
    takes: float = 0.0
    proved: list[float] = field(default_factory=list)
    is_lost: bool = False

    def __call__(self) -> None:
        if self.is_lost:
            raise OwnershipLost("another one")
        self.proved.append(self.at)
        self.at += self.takes

    def later(self, pause: timedelta) -> None:
        self.at += pause.total_seconds()


def owned(proofs: Proofs) -> ProvenOwnership:
    return ProvenOwnership(proofs, monotonic=lambda: proofs.at)


def test_it_is_proved_once_in_a_while() -> None:
    proofs = Proofs()
    owns = owned(proofs)
    assert owns()
    proofs.later(PROVED_EVERY)
    assert owns()
    assert proofs.proved == [0.0]
    proofs.later(timedelta(milliseconds=1))
    assert owns()
    assert len(proofs.proved) == 2


def test_a_process_that_was_frozen_proves_it_before_it_goes_on() -> None:
    proofs = Proofs()
    owns = owned(proofs)
    assert owns()
    proofs.later(timedelta(hours=1))
    proofs.is_lost = True
    with pytest.raises(OwnershipLost):
        owns()


def test_a_proof_counts_from_when_it_was_begun() -> None:
    """Frozen between the commit and its answer, it knows nothing of the time since."""
    proofs = Proofs(takes=LASTS.total_seconds() + 0.001)
    owns = owned(proofs)
    assert not owns()
    proofs.takes = LASTS.total_seconds()
    assert owns()


def test_the_next_process_waits_for_whatever_this_one_may_send() -> None:
    assert TAKE_OVER_WAIT > LASTS + EXPIRES_AFTER
    assert PROVED_EVERY < LASTS


def test_one_thread_at_a_time_proves_it() -> None:
    """A take-over of an earlier process's transaction asks on a thread of its own, beside the one that waits for it."""
    inside, most, guard = [0], [0], threading.Lock()
    both = threading.Barrier(2)

    def prove() -> None:
        with guard:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        threading.Event().wait(0.01)
        with guard:
            inside[0] -= 1

    owns = ProvenOwnership(prove)

    def ask() -> bool:
        both.wait(10)
        return owns()

    with ThreadPoolExecutor(2) as pool:
        assert [one.result(10) for one in [pool.submit(ask), pool.submit(ask)]] == [True, True]
    assert most == [1]
