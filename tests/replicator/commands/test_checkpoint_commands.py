"""The output of `checkpoints seed`, `status` and `release` about positions, without a cluster."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey, Parked
from formats.segment import SourcePartition
from ingress.repair import Seed
from replicator.commands.checkpoints import change_text
from replicator.commands.status_remedies import release_command, seed_command
from replicator.status.ingress_partition import IngressPartition

AT = datetime(2026, 1, 1, tzinfo=UTC)
KEY = CheckpointKey(SourcePartition("a", "t", 0), "copy")


@pytest.mark.parametrize(
    ("before", "archive_end", "passed_over", "wanted"),
    [
        (None, 20, 0, "a/t/0 to copy: none -> 10"),
        (4, 20, 6, "a/t/0 to copy: 4 -> 10; passes over 6 archived offsets, which are not delivered"),
        (
            4,
            8,
            0,
            "a/t/0 to copy: 4 -> 10; lies beyond the end of its archive, 8: what is archived up to 10 later is not "
            "delivered",
        ),
    ],
)
def test_a_seed_reports_the_offsets_it_passes_over(
    before: int | None, archive_end: int, passed_over: int, wanted: str
) -> None:
    seed = Seed(
        key=KEY,
        before=None if before is None else Checkpoint(before, "id", AT),
        after=Checkpoint(10, "id", AT, Author.SEED),
        parked=False,
        claimed=False,
        archive_end=archive_end,
        passed_over=passed_over,
    )
    assert change_text(seed) == wanted


def parked(next_offset: int | None, reason: str, *, configured: bool = True) -> IngressPartition:
    return IngressPartition(
        key=KEY,
        configured=configured,
        checkpoint=None,
        archive_start=0,
        archive_end=10,
        parked=Parked(next_offset, reason, AT),
        skipped=0,
        is_over=False,
        proof=None,
        problems=(),
    )


def test_status_names_the_command_that_helps() -> None:
    gone = "its checkpoint is gone: `replicator checkpoints seed a/t/0 --offset N`"
    seed, release = "replicator checkpoints seed a/t/0 --offset N --yes", "replicator release a/t/0"
    for one, wanted in (
        (parked(None, gone), (seed, "")),
        (parked(4, "too large"), ("", f"{release} --yes")),
        (parked(None, "set allow_merge = true"), ("", f"{release} --yes")),
        (parked(None, gone, configured=False), ("", f"{release} --to copy --yes")),
    ):
        assert (seed_command(one, []), release_command(one, [])) == wanted
