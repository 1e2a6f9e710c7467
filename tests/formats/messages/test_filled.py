"""How far a destination was filled, by the checkpoint of its writer."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from formats.messages.delivery_checkpoint import Author, Checkpoint, Filled

AT = datetime(2026, 3, 4, tzinfo=UTC)


@pytest.mark.parametrize(
    ("checkpoint", "filled"),
    [
        (None, Filled()),
        (Checkpoint(20, "x", AT, Author.SEED), Filled()),
        (Checkpoint(20, "x", AT, Author.EXACTLY_ONCE, begun_at=20), Filled()),
        (Checkpoint(0, "x", AT, Author.EXACTLY_ONCE), Filled()),
        (Checkpoint(20, "x", AT, Author.EXACTLY_ONCE, begun_at=5), Filled(20, is_mapped=True)),
        (Checkpoint(20, "x", AT, Author.AT_LEAST_ONCE), Filled(20, is_mapped=True)),
        (Checkpoint(20, "x", AT, Author.SEED, given_at=19, begun_at=5), Filled(20, is_mapped=True)),
        (Checkpoint(20, "x", AT, Author.SEED, given_at=19, begun_at=19), Filled()),
        (Checkpoint(20, "x", AT, Author.SEED, given_at=19, begun_at=5, keeps_offsets=True), Filled()),
        (Checkpoint(20, "x", AT, Author.SEED, begun_at=20), Filled(20, is_mapped=True)),
        (Checkpoint(20, "x", AT, Author.SEED, begun_at=5, keeps_offsets=True), Filled()),
        (Checkpoint(20, "x", AT, keeps_offsets=True), Filled(20)),
        (Checkpoint(20, "x", AT, begun_at=20, keeps_offsets=True), Filled(20)),
    ],
    ids=[
        "none",
        "an operator's",
        "only its begin",
        "nothing",
        "transactions",
        "acknowledged",
        "a record was skipped",
        "the first record was skipped",
        "a record was skipped, preserved",
        "moved by an operator within what was delivered",
        "the same, preserved",
        "preserved",
        "holes",
    ],
)
def test_filled(checkpoint: Checkpoint | None, filled: Filled) -> None:
    assert Filled.by(checkpoint) == filled
