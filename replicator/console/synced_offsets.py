"""What is done here with the offsets of consumer groups, for the console. Translating them loads Arrow, which takes as
much memory as the whole console: it is done in a process that ends with each reading."""

# ruff: noqa: PLC0415  -- see above

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

from infra.runtime.answer_process import answer_of
from replicator.config import Config
from replicator.console.state import GroupOffset

MOST_OFFSETS = 20_000  # of consumer groups
WITHIN = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedOffsets:
    """`problems`: by source region. `left_out`: offsets beyond MOST_OFFSETS."""

    offsets: tuple[GroupOffset, ...] = ()
    left_out: int = 0
    problems: Mapping[str, str] = field(default_factory=dict)


def in_another_process(config: Config, now: datetime) -> SyncedOffsets:
    """Raises NoAnswer."""
    return answer_of(partial(read, config, now), WITHIN)


def read(config: Config, now: datetime) -> SyncedOffsets:
    """Raises StoreUnavailable, BrokerUnavailable."""
    from replicator.group_sync import group_decisions
    from replicator.services.clients import Clients

    with Clients(config, with_logs=False) as clients:
        found = group_decisions(clients, now)
    offsets = (
        GroupOffset(
            region=region.region,
            group=group,
            source=one.position.source,
            source_offset=one.position.upstream,
            topic=one.position.target.topic,
            partition=one.position.target.partition,
            offset=one.position.downstream,
            here=one.here,
            outcome=one.outcome.value,
            exactness=one.position.exactness.value,
            reason=one.reason or one.position.reason,
        )
        for region in found
        for group, some in sorted(region.groups.items())
        for one in some
    )
    kept = tuple(islice(offsets, MOST_OFFSETS))
    return SyncedOffsets(
        offsets=kept,
        left_out=sum(1 for _ in offsets),
        problems={one.region: f"what is done here cannot be read: {one.problem}" for one in found if one.problem},
    )
