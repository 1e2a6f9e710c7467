"""Which offsets of a consumer group are written in this cluster, and why the others are not. Pure.

the group is active here, or its state is not known ──> nothing: it commits for itself
it has no offset here, or a lower one ────────────────> written: at the record where it stands at the source
it has a higher one here ─────────────────────────────> kept, except with `allow_rewind` where it is the one that was
                                                        written last, and the group was moved back at the source since
an operator holds the group on that topic ────────────> nothing, until it is released
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from formats.messages.ledger import WrittenOffset
from infra.contracts.cluster import GroupFacts, TopicPartition
from ingress.groups.positions import GroupPosition
from ingress.groups.translation import Exactness

IS_HELD = "an operator chose its offsets here; `replicator offsets release` lets it follow its source again"
INACTIVE = frozenset({"empty", "dead"})  # states in which Kafka takes offsets from somebody who is no member


class SyncOutcome(StrEnum):
    WRITE = "write"
    SAME = "same"  # it is there already
    AHEAD = "ahead"  # further here than at the source, and never moved back
    MOVED = "moved"  # as `AHEAD`, although rewinding is allowed: the group was used here since
    ACTIVE = "active"
    UNKNOWN_STATE = "unknown state"
    UNTRANSLATED = "untranslated"
    HELD = "held"  # an operator chose where it stands here
    FAILED_OVER = "failed over"  # its source decides nothing here until it is failed back


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncDecision:
    position: GroupPosition
    outcome: SyncOutcome
    here: int | None  # what the group has committed here; None: nothing, or it is not known
    reason: str = ""

    @property
    def offset(self) -> int:
        """To write. Only of WRITE."""
        assert self.outcome is SyncOutcome.WRITE
        assert self.position.downstream is not None
        return self.position.downstream


def sync_plan(
    positions: Iterable[GroupPosition],
    *,
    facts: GroupFacts | None,
    committed: Mapping[TopicPartition, int],
    written: Mapping[TopicPartition, WrittenOffset],
    held: Collection[str] = (),
    allow_rewind: bool,
) -> list[SyncDecision]:
    """Of one group. `facts`: its state here; None: not known. `committed`: what it has here. `written`: what was last
    written for it here, by any process. `held`: topics on which an operator holds it."""
    decisions = []
    for position in positions:
        here = committed.get(position.target)
        if position.target.topic in held:
            decisions.append(SyncDecision(position=position, outcome=SyncOutcome.HELD, here=here, reason=IS_HELD))
            continue
        outcome, reason = _outcome(position, facts, here, written.get(position.target), allow_rewind=allow_rewind)
        decisions.append(SyncDecision(position=position, outcome=outcome, here=here, reason=reason))
    return decisions


def _outcome(
    position: GroupPosition,
    facts: GroupFacts | None,
    here: int | None,
    written: WrittenOffset | None,
    *,
    allow_rewind: bool,
) -> tuple[SyncOutcome, str]:
    if facts is None:
        return SyncOutcome.UNKNOWN_STATE, "its state here is not known, so it counts as active"
    if facts.members or facts.state not in INACTIVE:
        return SyncOutcome.ACTIVE, f"it is {facts.state} here, with {facts.members} members: it commits for itself"
    if position.downstream is None:
        return SyncOutcome.UNTRANSLATED, position.reason
    if here is None or here < position.downstream:
        return SyncOutcome.WRITE, ""
    if here == position.downstream:
        return SyncOutcome.SAME, ""
    if not allow_rewind:
        return SyncOutcome.AHEAD, f"it is further here, at {here}: nothing is moved back without allow_rewind"
    if written is None or written.offset != here:
        return SyncOutcome.MOVED, f"it was used here: it stands at {here}, which was not written by the replicator"
    if not _went_back(position, written):  # news of the map, and not of the group
        return SyncOutcome.AHEAD, f"it is further here, at {here}, and was not moved back at the source"
    return SyncOutcome.WRITE, ""


def _went_back(position: GroupPosition, written: WrittenOffset) -> bool:
    if written.upstream is None:
        return position.exactness is Exactness.EXACT
    return position.upstream < written.upstream
