"""How a bucket, a queue and a cluster are set up: values that `replicator doctor` judges. They are read in
`infra/storage/` and `infra/kafka/`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Transition:
    storage_class: str
    days: int | None  # None: by a date


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleRule:
    """One rule that is enabled. None: the rule does nothing of the kind."""

    name: str
    prefix: str = ""
    is_narrower: bool = False  # a filter on tags or sizes leaves out some objects below the prefix
    expires: str = ""  # when current objects go, in words; empty: they stay
    aborts_uploads_after_days: int | None = None
    noncurrent_days: int | None = None
    transitions: Sequence[Transition] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """What a bucket sends where. `events`: names such as s3:ObjectCreated:*."""

    to: str  # ARN
    events: Sequence[str]
    prefix: str = ""
    suffix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifications:
    queues: Sequence[Notification] = ()
    topics: Sequence[Notification] = ()  # of SNS, which may send on to a queue
    to_event_bridge: bool = False  # whose rules may send on to a queue


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationRule:
    """One rule of S3 replication that is enabled."""

    name: str
    bucket: str  # name of the destination
    prefix: str = ""
    copies_delete_markers: bool = False
    is_narrower: bool = False  # a filter on tags leaves out our objects, which have none
    takes_kms: bool = True  # objects that a KMS key encrypts, too, which S3 leaves out unless the rule opts in


@dataclass(frozen=True, slots=True)
class PublicAccess:
    """The bucket's block of public access: settings that are off."""

    allowed: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSetup:
    """Attributes of a queue."""

    arn: str
    policy: str = ""  # JSON; empty: only the owner's account may send
    visibility: timedelta = timedelta(seconds=30)
    retention: timedelta = timedelta(days=4)
    dead_letter_arn: str = ""  # empty: there is none
    max_receive_count: int = 0  # receives after which a message goes to the dead-letter queue
    waiting: int = 0  # messages, about: those that are being worked on included
    kms_key_id: str = ""


@dataclass(frozen=True, slots=True)
class BrokerNode:
    broker_id: int
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTopic:
    """One topic of a cluster."""

    name: str
    replicas: Sequence[int]  # of each partition: how many it has
    in_sync: Sequence[int]  # of each partition: how many are in sync
    leaderless: Sequence[int] = ()  # partitions without a leader
    operations: Collection[str] | None = None  # that this principal may do; None: the broker does not say
    configs: Mapping[str, str] = field(default_factory=dict)  # empty: see `configs_problem`
    configs_problem: str = ""  # why the configs cannot be read
