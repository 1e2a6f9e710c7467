"""Which consumer group a checkpoint topic belongs to. Two groups would deliver everything twice: none fences the other.

    read ─> nobody's ─> append a claim ─> read back ─> the first claim of the highest number stands ─> granted
              │                                  └ another group's came first: withdraw the own one, refused
              └ another group's: refused, or with --take-over append a claim of the next number ─> read back ─> …

A claim has a record key of its own, so compaction drops none and changes no order: what stood when it was read back
stands until a claim of a higher number does. What a loser leaves behind when it dies stands behind the winner and says
nothing.

A claim names its cluster, too. A topic whose claim names another cluster than the one it lies in was copied there: its
positions are about topics that were left behind. It is refused until an operator takes the group over, its own or not.

A group is taken over only while it has no members, and that is asked again once the claim stands: whoever delivers for
that group has read its positions as a member, so it either is a member still, or reads its positions again and finds
the new claim. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from formats.codec import Codec, dump, malformed
from formats.errors import OtherGroup

GROUP = "group"  # kind of these records, as their keys say it
YOUNG = timedelta(minutes=10)  # so long every process that starts asks for members of the group that was taken over


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupClaim:
    id: str  # made up for this one claim
    number: int  # from 1; a group that takes over claims the next
    group_id: str
    cluster_id: str = ""  # that the topic was in; empty: the brokers did not say
    over: str = ""  # the group that is taken over; empty: the topic belonged to none
    at: datetime  # UTC


@dataclass(frozen=True, slots=True)
class ReadClaims:
    """Answer with every claim that the topic has, in the order of the log."""


@dataclass(frozen=True, slots=True)
class CountMembers:
    """Answer with the number of members that this consumer group has now."""

    group_id: str


@dataclass(frozen=True, slots=True)
class WriteClaim:
    """Write this claim."""

    claim: GroupClaim


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Remove this claim, which does not stand."""

    claim: GroupClaim


Ask = ReadClaims | CountMembers | WriteClaim | Withdraw


def standing(claims: Iterable[GroupClaim]) -> GroupClaim | None:
    """The claim that holds, of all that the topic has, in the order of the log: the first of the highest number."""
    found: GroupClaim | None = None
    for claim in claims:
        if found is None or claim.number > found.number:
            found = claim
    return found


def claiming(
    *,
    topic: str,
    group_id: str,
    take_over: str,
    cluster_id: str,
    own: set[str],
    make: Callable[[int, str], GroupClaim],
    now: datetime,
) -> Generator[Ask, Any, GroupClaim]:
    """What a process of `group_id` asks for, step by step, before it delivers anything; answers the claim that stands.

    `take_over`: the group to take over, or empty. `cluster_id`: of the cluster that the topic is read from, empty when
    the brokers do not say. `own`: ids of the claims that this process has written in earlier attempts, acknowledged or
    not; grows. `make`: a new claim by number and by the group that it takes over. Raises OtherGroup.
    """
    while True:
        claims: Sequence[GroupClaim] = yield ReadClaims()
        stands = standing(claims)
        beaten = next((c for c in claims if c.id in own and c != stands), None)
        if beaten is not None:
            yield Withdraw(beaten)
        elif stands is not None and is_copied(stands, cluster_id):
            if stands.group_id != take_over:
                raise OtherGroup(why_copied(topic, stands, cluster_id))
            if take_over != group_id:  # its own members are fenced by the group itself
                yield from _expect_no_members(topic, take_over)
            own.add((claim := make(stands.number + 1, take_over)).id)
            yield WriteClaim(claim)
        elif stands is not None and stands.group_id == group_id:
            if stands.over not in ("", group_id) and (stands.over == take_over or now - stands.at < YOUNG):
                yield from _expect_no_members(topic, stands.over)
            return stands
        elif stands is None and not take_over:
            own.add((claim := make(1, "")).id)
            yield WriteClaim(claim)
        elif stands is not None and stands.group_id == take_over:
            yield from _expect_no_members(topic, take_over)
            own.add((claim := make(stands.number + 1, take_over)).id)
            yield WriteClaim(claim)
        else:
            raise OtherGroup(refusal(topic, group_id, stands, take_over))


def is_copied(stands: GroupClaim, cluster_id: str) -> bool:
    """Whether the claim was written in another cluster than the one it was read from."""
    return bool(stands.cluster_id) and bool(cluster_id) and stands.cluster_id != cluster_id


def why_copied(topic: str, stands: GroupClaim, cluster_id: str) -> str:
    return (
        f"checkpoint topic {topic} was claimed by group {stands.group_id} in the cluster with id {stands.cluster_id} "
        f"at {stands.at.isoformat()}, and this cluster has the id {cluster_id}: the topic was copied here, and its "
        "positions are about topics of the other cluster. If the address is wrong, mend kafka.bootstrap.servers or the "
        "name resolution. If this cluster replaces the other one, either name a new ingress.checkpoint_topic, and "
        "delivery begins anew where a destination is empty; or, where the destinations were copied too and hold what "
        f"the checkpoints say, start with `replicator ingress --take-over {stands.group_id}`: a destination with "
        "another topic id than its checkpoints stops, and `replicator checkpoints seed` says where it goes on"
    )


def refusal(topic: str, group_id: str, stands: GroupClaim | None, take_over: str = "") -> str:
    if stands is None:
        return (
            f"checkpoint topic {topic} belongs to no group, so there is no {take_over} to take over: start without "
            "--take-over"
        )
    belongs = f"checkpoint topic {topic} belongs to group {stands.group_id} since {stands.at.isoformat()}"
    if take_over:
        return f"{belongs}, not to {take_over}: nothing is taken over. Find out who works as {stands.group_id}"
    return (
        f"{belongs}, and this is group {group_id}: two groups would deliver every record twice. Either write "
        f"ingress.group_id = {json.dumps(stands.group_id)}; or, to replace that group for good, stop all of its "
        f"processes and start with `replicator ingress --take-over {stands.group_id}`; or, for a second delivery on "
        "purpose, give it a file with a checkpoint topic and sources of its own"
    )


def _expect_no_members(topic: str, group_id: str) -> Generator[Ask, Any, None]:
    members: int = yield CountMembers(group_id)
    if members:
        raise OtherGroup(
            f"group {group_id}, to be replaced as the owner of checkpoint topic {topic}, has {members} member(s), "
            "which may be delivering: stop all of its processes first, then start this one again"
        )


def encode_claim_key(claim: GroupClaim) -> bytes:
    return dump({"id": claim.id, "kind": GROUP})


_CODEC = Codec(GroupClaim, "the claim of a group", outside=("id",))
encode_claim = _CODEC.encode


def decode_claim(key: bytes, data: bytes) -> GroupClaim:
    """Raises MalformedEvent, also for a newer version."""
    with malformed("the claim of a group", data):
        id_ = str(json.loads(key)["id"])
    return _CODEC.decode(data, id=id_)
