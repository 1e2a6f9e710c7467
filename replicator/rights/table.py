"""The rights of each command. The tables of docs/rights.md are written from here; `replicator rights` and the tests ask
here, and the roles of infra/deploy/aws/ are compared with it.

KAFKA    what a principal may do in a cluster    OPTIONAL   what is left out without a right
IAM      what a role may do in a bucket and a queue
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum


class On(StrEnum):
    """Resources of a cluster, as the page calls them."""

    TOPICS = "topics it archives"
    DESTINATIONS = "destinations"
    EGRESS_GROUP = "`egress.group_id`"
    INGRESS_GROUP = "`ingress.group_id`"
    EVENTS = "`ingress.segment_events_topic`"
    CHECKPOINTS = "`ingress.checkpoint_topic`"
    OFFSET_MAP = "`ingress.offset_map_topic`"
    LEDGER = "`ingress.ledger_topic`"
    IDENTITIES = "transactional ids, prefixed `ingress.group_id`"
    RESTORES = "topics, prefixed `replicator.restore.`"
    RESTORE_IDENTITIES = "transactional ids, prefixed `replicator.restore.`"
    CLUSTER = "the cluster"
    SOURCE_GROUPS = "groups that `egress.groups` selects"
    GROUPS = "groups"
    HEARTBEATS = "`heartbeats`"
    REMOTE_HEARTBEATS = "`<alias>.heartbeats`"
    REMOTE_CHECKPOINTS = "`<alias>.checkpoints.internal`"
    OFFSET_SYNCS = "`mm2-offset-syncs.<alias>.internal`"


READ, WRITE, CREATE, DELETE = "READ", "WRITE", "CREATE", "DELETE"
ALTER, DESCRIBE = "ALTER", "DESCRIBE"
ALTER_CONFIGS, DESCRIBE_CONFIGS = "ALTER_CONFIGS", "DESCRIBE_CONFIGS"


@dataclass(frozen=True, slots=True)
class KafkaRight:
    """What is allowed to a principal. `who`: of the page's first column, in Markdown."""

    who: str
    on: On | None
    operations: Sequence[str]


@dataclass(frozen=True, slots=True)
class OptionalRight:
    """A right without which something is left out. `text` and `without` are the page's, in Markdown."""

    who: str
    text: str
    on: Sequence[On]
    operations: Sequence[str]
    without: str
    only_with: str = ""  # the setting without which it is of no use: a name of `only_with` in kafka.py


_OWN_TOPIC = (READ, WRITE, CREATE, DESCRIBE_CONFIGS)

NONE = "`sync`, `compact`, `gc`, `verify` without a cluster"

KAFKA: Sequence[KafkaRight] = (
    KafkaRight("`egress`", On.TOPICS, (READ, DESCRIBE_CONFIGS)),
    KafkaRight("`egress`", On.EGRESS_GROUP, (READ,)),
    KafkaRight("`ingress`", On.DESTINATIONS, (READ, WRITE, CREATE, ALTER, ALTER_CONFIGS, DESCRIBE_CONFIGS)),
    KafkaRight("`ingress`", On.EVENTS, _OWN_TOPIC),
    KafkaRight("`ingress`", On.CHECKPOINTS, _OWN_TOPIC),
    KafkaRight("`ingress`", On.OFFSET_MAP, (WRITE, CREATE, DESCRIBE_CONFIGS)),
    KafkaRight("`ingress`", On.LEDGER, _OWN_TOPIC),
    KafkaRight("`ingress`", On.INGRESS_GROUP, (READ,)),
    KafkaRight("`ingress`", On.IDENTITIES, (WRITE,)),
    KafkaRight("`backfill`", On.TOPICS, (READ, DESCRIBE_CONFIGS)),
    KafkaRight("`backfill`", On.EGRESS_GROUP, (DESCRIBE,)),
    KafkaRight("`restore`", On.DESTINATIONS, (WRITE, CREATE, DESCRIBE_CONFIGS)),
    KafkaRight("`restore`", On.RESTORES, _OWN_TOPIC),
    KafkaRight("`restore`", On.RESTORE_IDENTITIES, (WRITE,)),
    KafkaRight("`verify --source`", On.TOPICS, (READ, DESCRIBE_CONFIGS)),
    KafkaRight("`verify --target`", On.DESTINATIONS, (READ,)),
    KafkaRight("`status`, where egress runs", On.TOPICS, (READ,)),
    KafkaRight("`status`, where egress runs", On.EGRESS_GROUP, (DESCRIBE,)),
    KafkaRight("`status`, where ingress runs", On.DESTINATIONS, (DESCRIBE, DESCRIBE_CONFIGS)),
    KafkaRight("`status`, where ingress runs", On.LEDGER, (READ,)),
    KafkaRight("`status`, where ingress runs", On.CHECKPOINTS, (READ,)),
    KafkaRight("`status`, where ingress runs", On.INGRESS_GROUP, (DESCRIBE,)),
    KafkaRight(NONE, None, ()),
)

_WRITES = (WRITE, DESCRIBE_CONFIGS, CREATE)

OPTIONAL: Sequence[OptionalRight] = (
    OptionalRight(
        "egress",
        "DESCRIBE_CONFIGS on a topic",
        (On.TOPICS,),
        (DESCRIBE_CONFIGS,),
        "its configs in the catalogue; and a segment that differs from what is stored is not explained by compaction "
        "or retention",
    ),
    OptionalRight("egress", "DESCRIBE on the cluster", (On.CLUSTER,), (DESCRIBE,), "ACLs in the catalogue"),
    OptionalRight(
        "egress",
        "DESCRIBE_CONFIGS on the cluster",
        (On.CLUSTER,),
        (DESCRIBE_CONFIGS,),
        "that the cluster has no ACL of a topic or a group: the last one to go is not revoked at the target. Without "
        "it, a cluster that has none looks like one without an authorizer",
    ),
    OptionalRight(
        "egress",
        "DESCRIBE on a group that `egress.groups` selects",
        (On.SOURCE_GROUPS,),
        (DESCRIBE,),
        "its [committed offsets](control-plane.md#consumer-groups). Groups that may not be described are not listed, "
        "either, unless egress may DESCRIBE the cluster: then they are named, and so are those in `egress.groups` with "
        "their names, and those that could be read before",
    ),
    OptionalRight(
        "egress",
        "WRITE, DESCRIBE_CONFIGS, and CREATE while it does not exist, on `heartbeats`",
        (On.HEARTBEATS,),
        _WRITES,
        "heartbeats in that topic, of `write_heartbeats = true`",
    ),
    OptionalRight(
        "egress",
        "READ on `ingress.ledger_topic`, where ingress runs in the same cluster",
        (On.LEDGER,),
        (READ,),
        "copies of copies that are new since then are not recognised by their lineage",
    ),
    OptionalRight("ingress", "ALTER on destinations", (On.DESTINATIONS,), (ALTER,), "partitions are not added"),
    OptionalRight(
        "ingress", "ALTER_CONFIGS on destinations", (On.DESTINATIONS,), (ALTER_CONFIGS,), "configs do not follow"
    ),
    OptionalRight(
        "ingress",
        'DELETE on destinations, with `removals = "mirror"`',
        (On.DESTINATIONS,),
        (DELETE,),
        "topics that are deleted at the source stay",
        only_with="removals",
    ),
    OptionalRight(
        "ingress",
        'DELETE on destinations with `offsets = "preserve"`',
        (On.DESTINATIONS,),
        (DELETE,),
        "where the source's log begins later than at 0, the fillers before its begin stay",
        only_with="preserve",
    ),
    OptionalRight(
        "ingress", "DESCRIBE and ALTER on the cluster", (On.CLUSTER,), (DESCRIBE, ALTER), "ACLs do not follow"
    ),
    OptionalRight(
        "ingress",
        "READ on `ingress.offset_map_topic`",
        (On.OFFSET_MAP,),
        (READ,),
        "consumer groups are not translated",
    ),
    OptionalRight(
        "ingress",
        "READ, WRITE, DESCRIBE_CONFIGS, and CREATE while they do not exist, on `<alias>.checkpoints.internal` and "
        "`mm2-offset-syncs.<alias>.internal`",
        (On.REMOTE_CHECKPOINTS, On.OFFSET_SYNCS),
        (READ, *_WRITES),
        "group checkpoints and offset syncs",
    ),
    OptionalRight(
        "ingress",
        "READ on groups, with `groups.sync = true`",
        (On.GROUPS,),
        (READ,),
        "offsets of these groups are not committed here",
    ),
    OptionalRight(
        "ingress",
        "WRITE, DESCRIBE_CONFIGS, and CREATE while they do not exist, on `heartbeats` and `<alias>.heartbeats`",
        (On.HEARTBEATS, On.REMOTE_HEARTBEATS),
        _WRITES,
        "[heartbeats](control-plane.md#heartbeats-for-mirrormaker-2s-clients) in these topics",
    ),
)


class In(StrEnum):
    """Resources of AWS, as the page calls them."""

    BUCKET = "bucket"
    SEGMENTS = "segments"
    CONTROL = "control objects"
    QUEUE = "queue"
    DEAD_LETTERS = "dead-letter queue"


class Of(Enum):
    """Whose archive in the bucket; the text is the page's."""

    ONE = ""  # the region of the archive that the command works on
    SOURCES = " of the sources"
    HERE = " of its own region"
    EVERY = " of every region"


@dataclass(frozen=True, slots=True)
class IamRight:
    """What is allowed to a role. `who`: of the page's first column; `note` of its second, both in Markdown."""

    who: str
    on: In
    actions: Sequence[str]
    of: Of = Of.ONE
    note: str = ""
    only: Sequence[str] = ()  # of the control objects: names or folders, such as probe and leases/*; empty: all

    @property
    def resource(self) -> str:
        of = self.of.value if self.on in (In.SEGMENTS, In.CONTROL) else ""
        only = f" {', '.join(f'`{one}`' for one in self.only)}" if self.only else ""
        return f"{self.on}{only}{of}{self.note}"

    def covers_probe(self) -> bool:
        """Whether this is about the object by which a bucket is tested, too."""
        return self.on is In.SEGMENTS or (self.on is In.CONTROL and (not self.only or PROBE in self.only))


LIST, GET, PUT, DELETE_OBJECT = "s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject"
ABORT, LIST_UPLOADS, THAW = "s3:AbortMultipartUpload", "s3:ListBucketMultipartUploads", "s3:RestoreObject"
REPLICATION = "s3:GetReplicationConfiguration"
SETUP = (
    *("s3:GetBucketVersioning", "s3:GetEncryptionConfiguration", "s3:GetBucketPublicAccessBlock"),
    *("s3:GetLifecycleConfiguration", "s3:GetBucketNotification", REPLICATION),
    "s3:GetBucketPolicy",
)
QUEUE_SETUP = "sqs:GetQueueAttributes"
QUEUE_ACTIONS = ("sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:DeleteMessage")
_STORE = (GET, PUT, ABORT)

PROBE = "probe"  # at each start of what writes, and of each writing command
LEASES, PROVEN, PROBES_SENT = "leases/*", "proven/*", "doctor/*"

SYNC_READS, SYNC_WRITES = "`sync`, where it reads", "`sync`, where it writes"
READERS, THAWS = "`restore`, `drill`, the Spark source", "`restore --thaw`, also"
INSPECTS = "`status`, `plan`, `gaps`, `client lag`"
REPAIRS, REPAIRS_FROM = "`repair-segment`", "`repair-segment`, in the bucket of the copy"
DOCTOR = "`doctor`, also"
SEEDS, ACCEPTS = "`checkpoints seed`, also", "`gaps accept`, `adopt`, also"

AS_STORED = frozenset({SYNC_READS, SYNC_WRITES, REPAIRS_FROM})
"""Of these, objects are copied as the bytes that are stored: they need no key of [encryption]."""
RETENTION = "s3:PutObjectRetention"  # beside PUT, where new objects are locked

IAM: Sequence[IamRight] = (
    IamRight("`egress`", In.BUCKET, (LIST,)),
    IamRight("`egress`", In.SEGMENTS, _STORE),
    IamRight("`egress`", In.CONTROL, _STORE),
    IamRight("`backfill`", In.BUCKET, (LIST,)),
    IamRight("`backfill`", In.SEGMENTS, _STORE),
    IamRight("`backfill`", In.CONTROL, _STORE),
    IamRight("`backfill`", In.CONTROL, (DELETE_OBJECT,), only=(LEASES,)),
    IamRight("`ingress`", In.BUCKET, (LIST,)),
    IamRight("`ingress`", In.SEGMENTS, (GET,), Of.SOURCES),
    IamRight("`ingress`", In.CONTROL, (GET,), Of.SOURCES),
    IamRight("`ingress`", In.CONTROL, (GET, PUT), Of.HERE),
    IamRight("`ingress`", In.QUEUE, QUEUE_ACTIONS),
    IamRight(SYNC_READS, In.BUCKET, (LIST,)),
    IamRight(SYNC_READS, In.SEGMENTS, (GET,)),
    IamRight(SYNC_READS, In.CONTROL, (GET,)),
    IamRight(SYNC_READS, In.QUEUE, QUEUE_ACTIONS, note=", where it has one"),
    IamRight(SYNC_WRITES, In.BUCKET, (LIST,)),
    IamRight(SYNC_WRITES, In.SEGMENTS, _STORE),
    IamRight(SYNC_WRITES, In.CONTROL, _STORE),
    IamRight("`compact`", In.BUCKET, (LIST, REPLICATION)),
    IamRight("`compact`", In.SEGMENTS, (*_STORE, DELETE_OBJECT)),
    IamRight("`compact`", In.CONTROL, (*_STORE, DELETE_OBJECT)),
    # a file that compacts or thins another region's archive has these below its own region
    IamRight("`compact`", In.CONTROL, (PUT, ABORT), Of.HERE, only=(PROBE,)),
    IamRight("`compact`", In.CONTROL, (GET, PUT, DELETE_OBJECT), Of.HERE, only=("compaction-runs/*", "heartbeats/*")),
    IamRight("`gc`", In.BUCKET, (LIST, LIST_UPLOADS, REPLICATION)),
    IamRight("`gc`", In.SEGMENTS, (GET, ABORT, DELETE_OBJECT)),
    IamRight("`gc`", In.CONTROL, (*_STORE, DELETE_OBJECT)),
    IamRight("`gc`", In.CONTROL, (PUT, ABORT), Of.HERE, only=(PROBE,)),
    IamRight("`verify`", In.BUCKET, (LIST,)),
    IamRight("`verify`", In.SEGMENTS, (GET,), Of.EVERY),
    IamRight("`verify`", In.CONTROL, (GET,), Of.EVERY),
    IamRight("`verify`", In.CONTROL, (PUT, DELETE_OBJECT), Of.EVERY, only=(PROVEN,)),
    IamRight(READERS, In.BUCKET, (LIST,)),
    IamRight(READERS, In.SEGMENTS, (GET,), Of.EVERY),
    IamRight(READERS, In.CONTROL, (GET,), Of.EVERY),
    IamRight(THAWS, In.SEGMENTS, (THAW,), Of.EVERY),
    IamRight(INSPECTS, In.BUCKET, (LIST,)),
    IamRight(INSPECTS, In.SEGMENTS, (GET,), Of.EVERY),  # the last of a topic, whose footer has the ids of its schemas
    IamRight(INSPECTS, In.CONTROL, (GET,), Of.EVERY),
    IamRight(REPAIRS, In.BUCKET, (LIST,)),
    IamRight(REPAIRS, In.SEGMENTS, (*_STORE, DELETE_OBJECT), Of.EVERY),
    IamRight(REPAIRS, In.CONTROL, (*_STORE, DELETE_OBJECT), Of.EVERY),
    IamRight(REPAIRS_FROM, In.BUCKET, (LIST,)),
    IamRight(REPAIRS_FROM, In.SEGMENTS, (GET,), Of.EVERY),
    IamRight(DOCTOR, In.BUCKET, SETUP),
    IamRight(DOCTOR, In.CONTROL, (PUT, DELETE_OBJECT), Of.EVERY, only=(PROBES_SENT,)),
    IamRight(DOCTOR, In.CONTROL, (PUT, ABORT), Of.HERE, only=(PROBE,)),
    IamRight(DOCTOR, In.QUEUE, (*QUEUE_ACTIONS, QUEUE_SETUP)),
    IamRight(DOCTOR, In.DEAD_LETTERS, ("sqs:GetQueueUrl", QUEUE_SETUP)),
    IamRight(SEEDS, In.SEGMENTS, (GET,), Of.EVERY, ", with `--timestamp`"),
    IamRight(ACCEPTS, In.CONTROL, (PUT, ABORT), Of.EVERY),
)


@dataclass(frozen=True, slots=True)
class CommandRole:
    """What one process or operator runs as: rows of both tables, by their `who`. `there`: in [sync.destination]."""

    name: str
    kafka: Sequence[str] = ()
    iam: Sequence[str] = ()
    there: Sequence[str] = ()


ROLES: Sequence[CommandRole] = (
    CommandRole("egress", ("`egress`",), ("`egress`",)),
    CommandRole("ingress", ("`ingress`",), ("`ingress`",)),
    CommandRole("sync", iam=(SYNC_READS,), there=(SYNC_WRITES,)),
    CommandRole("backfill", ("`backfill`",), ("`backfill`",)),
    CommandRole("compact", iam=("`compact`",), there=(SYNC_READS,)),
    CommandRole("gc", iam=("`gc`",), there=(SYNC_READS,)),
    CommandRole("verify", ("`verify --source`", "`verify --target`"), ("`verify`",)),
    CommandRole("restore", ("`restore`",), (READERS, THAWS)),
    CommandRole("status", ("`status`, where egress runs", "`status`, where ingress runs"), (INSPECTS,)),
    CommandRole(
        "doctor",
        ("`status`, where egress runs", "`status`, where ingress runs"),
        (INSPECTS, DOCTOR),
        there=(INSPECTS, DOCTOR),
    ),
    CommandRole("repair-segment", iam=(REPAIRS,), there=(REPAIRS_FROM,)),
    CommandRole("repair", ("`status`, where egress runs", "`ingress`"), (INSPECTS, SEEDS, ACCEPTS)),
)
