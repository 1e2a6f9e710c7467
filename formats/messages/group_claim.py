"""Which consumer group a checkpoint topic belongs to. Two groups would deliver every record twice: neither fences the
other.

    read ─> no claim ─> append a claim ─> read back ─> the first claim of the highest number stands ─> granted
              │                                  └ another group's came first: withdraw the own claim, refused
              └ another group's: refused, or with --take-over append a claim of the next number ─> read back ─> …

Each claim has its own record key, so compaction drops no claim and keeps their order: the claim that stood when the
topic was read back stands until there is one with a higher number. A losing claim that remains because its process died
comes after the winner and has no effect.

A claim also names its cluster. A topic whose claim names another cluster than the one it is in was copied there: its
positions refer to topics of the other cluster. It is refused until an operator takes the group over, even the same
group.

A group is taken over only while it has no members, and members are counted again once the claim stands: a process that
delivers for that group has read its positions as a member, so it is either still a member, or reads its positions again
and finds the new claim. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from formats.codec import Codec, dump, malformed
from formats.errors import OtherGroup

GROUP = "group"  # kind of these records, as written in their keys
RECHECK_PERIOD = timedelta(minutes=10)  # after a take-over: a process that starts counts members of the old group


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupClaim:
    id: str  # generated, unique to the claim
    number: int  # from 1; a group that takes over claims the next
    group_id: str
    cluster_id: str = ""  # of the topic's cluster; empty: the brokers did not report it
    over: str = ""  # the group that is taken over; empty: the topic belonged to no group
    at: datetime  # UTC


@dataclass(frozen=True, slots=True)
class ReadClaims:
    """The answer is every claim in the topic, in log order."""


@dataclass(frozen=True, slots=True)
class CountMembers:
    """The answer is the current number of members of the consumer group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class WriteClaim:
    """Write this claim."""

    claim: GroupClaim


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Remove this claim, which lost."""

    claim: GroupClaim


Ask = ReadClaims | CountMembers | WriteClaim | Withdraw


def current_claim(claims: Iterable[GroupClaim]) -> GroupClaim | None:
    """The claim that holds: of all claims in the topic, in log order, the first of the highest number."""
    found: GroupClaim | None = None
    for claim in claims:
        if found is None or claim.number > found.number:
            found = claim
    return found


def claim_steps(
    *,
    topic: str,
    group_id: str,
    take_over: str,
    cluster_id: str,
    own: set[str],
    make: Callable[[int, str], GroupClaim],
    now: datetime,
) -> Generator[Ask, Any, GroupClaim]:
    """The steps that a process of `group_id` takes before it delivers anything; returns the claim that stands.

    `take_over`: the group to take over, or empty. `cluster_id`: of the cluster that the topic is read from, empty when
    the brokers do not report it. `own`: ids of the claims that this process wrote in earlier attempts, acknowledged or
    not; new ids are added. `make`: a new claim, by number and by the group that it takes over. Raises OtherGroup.
    """
    while True:
        claims: Sequence[GroupClaim] = yield ReadClaims()
        current = current_claim(claims)
        lost = next((c for c in claims if c.id in own and c != current), None)
        if lost is not None:
            yield Withdraw(lost)
        elif current is not None and is_copied(current, cluster_id):
            if current.group_id != take_over:
                raise OtherGroup(why_copied(topic, current, cluster_id))
            if take_over != group_id:  # its own members are fenced by the group itself
                yield from _expect_no_members(topic, take_over)
            own.add((claim := make(current.number + 1, take_over)).id)
            yield WriteClaim(claim)
        elif current is not None and current.group_id == group_id:
            if current.over not in ("", group_id) and (current.over == take_over or now - current.at < RECHECK_PERIOD):
                yield from _expect_no_members(topic, current.over)
            return current
        elif current is None and not take_over:
            own.add((claim := make(1, "")).id)
            yield WriteClaim(claim)
        elif current is not None and current.group_id == take_over:
            yield from _expect_no_members(topic, take_over)
            own.add((claim := make(current.number + 1, take_over)).id)
            yield WriteClaim(claim)
        else:
            raise OtherGroup(refusal(topic, group_id, current, take_over))


def is_copied(current: GroupClaim, cluster_id: str) -> bool:
    """Whether the claim was written in another cluster than the one it is read from."""
    return bool(current.cluster_id) and bool(cluster_id) and current.cluster_id != cluster_id


def why_copied(topic: str, current: GroupClaim, cluster_id: str) -> str:
    return (
        f"checkpoint topic {topic} was claimed by group {current.group_id} in the cluster with id {current.cluster_id} "
        f"at {current.at.isoformat()}, and this cluster has the id {cluster_id}: the topic was copied here, and its "
        "positions are about topics of the other cluster. If the address is wrong, fix kafka.bootstrap.servers or the "
        "name resolution. If this cluster replaces the other one, either name a new ingress.checkpoint_topic, and "
        "delivery begins anew where a destination is empty; or, where the destinations were copied too and hold what "
        f"the checkpoints say, start with `replicator ingress --take-over {current.group_id}`: a destination with "
        "another topic id than its checkpoints stops, and `replicator checkpoints seed` sets its position"
    )


def refusal(topic: str, group_id: str, current: GroupClaim | None, take_over: str = "") -> str:
    if current is None:
        return (
            f"checkpoint topic {topic} belongs to no group, so there is no {take_over} to take over: start without "
            "--take-over"
        )
    belongs = f"checkpoint topic {topic} belongs to group {current.group_id} since {current.at.isoformat()}"
    if take_over:
        return f"{belongs}, not to {take_over}: nothing is taken over. Find out who works as {current.group_id}"
    return (
        f"{belongs}, and this is group {group_id}: two groups would deliver every record twice. Either write "
        f"ingress.group_id = {json.dumps(current.group_id)}; or, to replace that group for good, stop all of its "
        f"processes and start with `replicator ingress --take-over {current.group_id}`; or, for a second delivery on "
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
