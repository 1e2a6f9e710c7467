"""The `[groups]` section: how consumer groups of the sources arrive in this cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from infra.settings.field import Problem, enforce, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Consumer groups of the source clusters, at the records where they stand."""

    emit_checkpoints: bool = field(
        default=True,
        metadata=setting(
            "whether offsets of the sources' groups are written to <alias>.checkpoints.internal, translated, and "
            "offset syncs to mm2-offset-syncs.<alias>.internal, as MirrorMaker 2 does it; only with a replication "
            "policy"
        ),
    )
    interval: timedelta = field(
        default=timedelta(seconds=60),
        metadata=setting(
            "how often that is done, and groups are synchronised: one LIST for each source region, and one GET when "
            "its groups have changed",
            minimum=timedelta(seconds=1),
        ),
    )
    sync: bool = field(
        default=False,
        metadata=setting(
            "whether the offsets are committed for the groups here, too, so that a consumer that is started here goes "
            "on where it stood: only of groups that are inactive here, and never backwards"
        ),
    )
    allow_rewind: bool = field(
        default=False,
        metadata=setting(
            "whether `sync` moves a group back that was reset at its source: only while it was not used here since "
            "it was last written"
        ),
    )
    adopt: bool = field(
        default=False,
        metadata=setting(
            "whether records are written to checkpoint and offset-sync topics that MirrorMaker 2 or somebody else has "
            "created. End that program first: two that write contradict each other"
        ),
    )

    def __post_init__(self) -> None:
        enforce(self, self._contradictions())

    def _contradictions(self) -> Iterator[Problem]:
        if self.sync and not self.emit_checkpoints:
            yield "sync", "needs emit_checkpoints = true: a group is written here as its checkpoint says"
        if self.allow_rewind and not self.sync:
            yield "allow_rewind", "has no effect without sync = true: leave it out"
