"""What the doctor knows of one deployment: read by `gather`, judged by the checks. Pure.

A fact that could not be read is `Unread`, with the reason: it is not the same as one that is absent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from infra.contracts.deployment import (
    BrokerNode,
    ClusterTopic,
    LifecycleRule,
    Notifications,
    PublicAccess,
    QueueSetup,
    ReplicationRule,
)
from infra.settings.storage import S3Settings
from replicator.config import Config
from replicator.rights.table import CommandRole

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unread:
    reason: str


NOT_ASKED = Unread("--read-only leaves it out, since it writes")


class NotRead(Exception):
    """A check needs a fact that could not be read."""


def known(fact: T | Unread) -> T:
    """The fact. Raises NotRead."""
    if isinstance(fact, Unread):
        raise NotRead(fact.reason)
    return fact


@dataclass(frozen=True, slots=True, kw_only=True)
class RightAnswer:
    """Whether an action is allowed. `is_needed`: by a role; else no role needs it."""

    action: str
    resource: str
    refusal: str | Unread  # why not; empty: it is allowed
    is_needed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFacts:
    """`regions`: those whose archives are in it, the own one first."""

    settings: S3Settings
    regions: Sequence[str]
    clock_ahead: float | Unread  # seconds by which this machine is ahead of the store
    is_versioned: bool | Unread
    encryption: Sequence[str] | Unread
    public_access: PublicAccess | Unread
    lifecycle: Sequence[LifecycleRule] | Unread
    notifications: Notifications | Unread
    replication: Sequence[ReplicationRule] | Unread
    policy: str | Unread  # JSON; empty: there is none
    caller: str | Unread  # ARN; empty: another store than AWS's, which has none
    needed: Sequence[tuple[str, str]]  # actions and ARNs of the roles, which may end with `*`
    rights: Sequence[RightAnswer]
    conditional_writes: str | Unread | None = None  # the problem; None: nothing is put there


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    name: str
    setup: QueueSetup | Unread
    dead_letters: int | Unread | None = None  # messages; None: there is no dead-letter queue


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFacts:
    """A key of [encryption]. `name`: its ARN, or the file of keys. `problem`: why it cannot be used; empty: it can."""

    name: str
    is_for_new_objects: bool
    problem: str | Unread


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFacts:
    """What became of a probe object. `arrived_at`: "ingress", "queue", or empty: nowhere, within `waited`."""

    source: str  # region below which it was stored
    arrived_at: str
    waited: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    servers: str
    brokers: Sequence[BrokerNode] | Unread
    broker_configs: Mapping[str, str] | Unread
    names: Collection[str] | Unread  # of the topics that this principal sees
    topics: Mapping[str, ClusterTopic | Unread] | Unread  # those that matter; absent ones are left out
    creations: Mapping[str, str | Unread] = field(default_factory=dict)  # why own topics may not be made; empty: may
    groups: Mapping[str, Collection[str] | Unread | None] = field(default_factory=dict)  # operations, by group
    transactions: str | Unread | None = None  # why they are refused; empty: they are not; None: there are none


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionFacts:
    """A partition whose oldest record that is not archived yet is so old, of a topic with that retention."""

    partition: str
    oldest: datetime
    retention: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFacts:
    """Who wrote one of the last segments of some topic. `problem`: why it cannot be read by this version."""

    region: str
    segment: str
    writer: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFacts:
    """The programs of this machine."""

    replicator: str  # name and version
    librdkafka: str
    java: str | Unread | None = None  # None: nothing here needs one


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentFacts:
    """Of one region of a file, as of `at`."""

    config: Config
    roles: Sequence[CommandRole]
    at: datetime
    programs: ProgramFacts
    bucket: BucketFacts
    destination: BucketFacts | None = None  # of [sync]
    cluster: ClusterFacts | None = None
    queue: QueueFacts | None = None
    sync_queue: QueueFacts | None = None
    keys: Sequence[KeyFacts] = ()
    probes: Sequence[ProbeFacts] | Unread = ()  # one for each source
    retention: Sequence[RetentionFacts] | Unread | None = None
    written: Sequence[WrittenFacts] | Unread = ()
