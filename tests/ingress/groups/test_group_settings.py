"""The `[groups]` section: its defaults, and what contradicts itself."""

from __future__ import annotations

from datetime import timedelta

import pytest

from infra.settings.field import Invalid
from ingress.groups.settings import GroupSettings


def test_checkpoints_are_written_each_minute_and_nothing_is_committed_unless_asked_for() -> None:
    given = GroupSettings()
    assert (given.emit_checkpoints, given.interval) == (True, timedelta(seconds=60))
    assert (given.sync, given.allow_rewind, given.adopt) == (False, False, False)


@pytest.mark.parametrize(
    ("given", "wrong", "why"),
    [
        ({"sync": True, "emit_checkpoints": False}, "sync", "needs emit_checkpoints = true"),
        ({"allow_rewind": True}, "allow_rewind", "no effect without sync = true"),
    ],
)
def test_what_contradicts_itself_is_refused(given: dict[str, bool], wrong: str, why: str) -> None:
    with pytest.raises(Invalid) as found:
        GroupSettings(**given)  # type: ignore[arg-type]
    [(name, text)] = found.value.problems
    assert (name, why in text) == (wrong, True)


def test_what_goes_together() -> None:
    assert GroupSettings(sync=True, allow_rewind=True, adopt=True).emit_checkpoints
    assert not GroupSettings(emit_checkpoints=False).sync
