"""Whether a member has kept its partitions, by when it polled."""

from __future__ import annotations

from infra.runtime.poll_record import PollRecord


def test_polls_that_follow_each_other() -> None:
    record = PollRecord()
    assert not record.is_kept_up(0.0), "never polled"
    for now in (0.0, 4.0, 8.0):
        record.polled(now)
        assert record.is_kept_up(now)
    assert record.is_kept_up(13.0)
    assert not record.is_kept_up(13.1)


def test_a_frozen_process_waits_until_it_would_have_learnt_of_a_loss() -> None:
    record = PollRecord()
    record.polled(0.0)
    assert not record.is_kept_up(60.0)
    record.polled(60.0)
    assert not record.is_kept_up(60.0)
    record.polled(62.9)
    assert not record.is_kept_up(62.9)
    assert record.is_kept_up(63.0)
    record.polled(69.0)
    assert not record.is_kept_up(69.0), "frozen again"
