"""A writer that the target refuses: delivery pauses for it until the target takes what it sends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ingress.delivery.events import Vanished
from ingress.delivery.halt import PAUSES, Halt
from tests.fakes.surroundings import HandClock
from tests.ingress.delivery.hand import Hand
from tests.ingress.world import World


def test_pauses_grow_until_the_writer_is_taken() -> None:
    clock = HandClock()
    halt = Halt(clock)
    for times in range(4):
        halt.refused("no right")
        pause = PAUSES.delay(times)
        clock.advance(pause.total_seconds() - 0.01)
        assert halt.is_pausing
        clock.advance(0.02)
        assert not halt.is_pausing
    halt.lift()
    assert (halt.reason, halt.is_pausing) == ("", False)
    halt.refused("no right")
    clock.advance(PAUSES.delay(0).total_seconds() + 0.01)
    assert not halt.is_pausing, "as the first time"


def test_a_round_that_sends_nothing_does_not_lift_it(caplog: pytest.LogCaptureFixture) -> None:
    """Its only segment is gone: the target was not asked."""
    world = World()
    world.target.refusing = "no right"
    hand = Hand(world)
    segment = world.put(0, 3)
    given = hand.begin(segment)
    hand.delivery.run_round()
    assert hand.delivery.halted == "no right"
    world.store.delete_many([segment])
    world.clock.advance(timedelta(minutes=1).total_seconds())
    with caplog.at_level("INFO"):
        while hand.reports() != [Vanished(given, segment)]:
            assert hand.delivery.run_round()
    assert hand.delivery.halted == "no right"
    assert "delivery_goes_on" not in caplog.text
