"""A deployment in which the doctor finds nothing, as facts; tests change one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from infra.contracts.deployment import (
    BrokerNode,
    ClusterTopic,
    LifecycleRule,
    Notification,
    Notifications,
    PublicAccess,
    QueueSetup,
    ReplicationRule,
)
from replicator.config import Config, parse
from replicator.doctor.facts import (
    BucketFacts,
    ClusterFacts,
    DeploymentFacts,
    KeyFacts,
    ProbeFacts,
    ProgramFacts,
    QueueFacts,
    RetentionFacts,
    RightAnswer,
    WrittenFacts,
)
from replicator.doctor.gather import roles_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUEUE_ARN = "arn:aws:sqs:us-east-1:123456789012:ours-events"
SYNC_QUEUE_ARN = "arn:aws:sqs:us-east-1:123456789012:ours-copies"
NEW_KEY, EARLIER_KEY = (f"arn:aws:kms:us-east-1:123456789012:key/{name}" for name in ("new", "earlier"))
CALLER = "arn:aws:sts::123456789012:assumed-role/replicator/session"
POLICY = """{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "s3.amazonaws.com"},
"Action": "sqs:SendMessage", "Resource": "*", "Condition": {"ArnEquals": {"aws:SourceArn": "arn:aws:s3:::ours"}}}]}"""
BUCKET_POLICY = """{"Version": "2012-10-17", "Statement": [{"Sid": "OnlyWithTls", "Effect": "Deny", "Principal": "*",
"Action": "s3:*", "Resource": ["arn:aws:s3:::ours", "arn:aws:s3:::ours/*"],
"Condition": {"Bool": {"aws:SecureTransport": "false"}}}]}"""
FILE = """
region = "here"
[kafka]
"bootstrap.servers" = "kafka:9092"
[s3]
bucket = "ours"
[egress.topics.orders]
[sqs]
queue = "ours-events"
[[ingress.sources]]
region = "there"
topic = "^.*"
destination_topic = "there.{topic}"
[sync.destination]
bucket = "theirs"
[sync.queue]
queue = "ours-copies"
[encryption]
key = "kms"
kms_key_id = "arn:aws:kms:us-east-1:123456789012:key/new"
kms_read_key_ids = ["arn:aws:kms:us-east-1:123456789012:key/earlier"]
[[compaction.jobs]]
name = "nightly"
cron = "0 3 * * *"
"""

EVERY_OPERATION = frozenset(
    {"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"}
)
BROKER = {
    "listeners": "PLAINTEXT://:9092",
    "early.start.listeners": "",
    "transaction.max.timeout.ms": "900000",
    "transaction.state.log.replication.factor": "3",
    "offsets.retention.minutes": "10080",
}


@cache
def config() -> Config:
    return parse(FILE)


def topic(name: str, **changes: Any) -> ClusterTopic:
    policy = "compact" if name in config().own_topics and name != events_topic() else "delete"
    configs = {
        "cleanup.policy": policy,
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
        "retention.ms": "86400000",
        **changes.pop("configs", {}),
    }
    given: dict[str, Any] = {"replicas": [3], "in_sync": [3], "operations": EVERY_OPERATION, **changes}
    return ClusterTopic(name=name, configs=configs, **given)


def events_topic() -> str:
    ingress = config().ingress
    assert ingress is not None
    return ingress.segment_events_topic


def checkpoint_topic() -> str:
    ingress = config().ingress
    assert ingress is not None
    return ingress.checkpoint_topic


def topics(*changed: ClusterTopic) -> Mapping[str, ClusterTopic]:
    names = ["orders", "there.orders", *sorted(config().own_topics)]
    return {name: topic(name) for name in names} | {one.name: one for one in changed}


def bucket(name: str = "ours", **changes: Any) -> BucketFacts:
    settings = config().s3
    queue = Notification(to=QUEUE_ARN, events=("s3:ObjectCreated:*", "s3:ObjectRemoved:*"), prefix="data/there/")
    copies = Notification(to=SYNC_QUEUE_ARN, events=("s3:ObjectCreated:*",), prefix="data/here/")
    rules: Sequence[LifecycleRule] = [
        LifecycleRule(name="uploads", prefix="data/", aborts_uploads_after_days=7),
        LifecycleRule(name="versions", prefix="data/", noncurrent_days=30),
    ]
    found = BucketFacts(
        settings=replace(settings, bucket=name),
        regions=["here", "there"],
        clock_ahead=0.2,
        is_versioned=True,
        encryption=["AES256"],
        public_access=PublicAccess([]),
        lifecycle=rules,
        notifications=Notifications(queues=[queue, copies]),
        replication=[ReplicationRule(name="own", bucket="elsewhere", prefix="data/here/")],
        policy=BUCKET_POLICY,
        caller=CALLER,
        needed=[("s3:ListBucket", f"arn:aws:s3:::{name}"), ("s3:PutObject", f"arn:aws:s3:::{name}/data/here/*")],
        rights=[RightAnswer(action="s3:ListBucket", resource="data/here/", refusal="")],
        conditional_writes="",
    )
    return replace(found, **changes)


def lifecycle(*rules: LifecycleRule) -> Sequence[LifecycleRule]:
    """With one rule more."""
    found = bucket().lifecycle
    assert isinstance(found, list)
    return [*found, *rules]


def queue(**changes: Any) -> QueueFacts:
    setup = QueueSetup(
        arn=QUEUE_ARN,
        policy=POLICY,
        visibility=timedelta(seconds=60),
        retention=timedelta(days=14),
        dead_letter_arn=f"{QUEUE_ARN}-dead",
        max_receive_count=10,
    )
    return QueueFacts(name="ours-events", setup=replace(setup, **changes), dead_letters=0)


def sync_queue(**changes: Any) -> QueueFacts:
    found = queue(**{"arn": SYNC_QUEUE_ARN, "dead_letter_arn": f"{SYNC_QUEUE_ARN}-dead", **changes})
    return replace(found, name="ours-copies")


def cluster(**changes: Any) -> ClusterFacts:
    found = ClusterFacts(
        servers="kafka:9092",
        brokers=[BrokerNode(n, f"kafka-{n}:9092") for n in (1, 2, 3)],
        broker_configs=BROKER,
        names=frozenset({"orders", "there.orders"}),
        topics=topics(),
        groups=dict.fromkeys(["replicator.egress", "replicator.ingress"], frozenset({"READ", "DESCRIBE"})),
        transactions="",
    )
    return replace(found, **changes)


def sound(**changes: Any) -> DeploymentFacts:
    settings = config()
    found = DeploymentFacts(
        config=settings,
        roles=roles_of(settings),
        at=NOW,
        programs=ProgramFacts(replicator="kafka-segment-replicator 0.1.0", librdkafka="2.12.1", java="17.0.1"),
        bucket=bucket(),
        destination=bucket("theirs"),
        cluster=cluster(),
        queue=queue(),
        sync_queue=sync_queue(),
        keys=[
            KeyFacts(name=NEW_KEY, is_for_new_objects=True, problem=""),
            KeyFacts(name=EARLIER_KEY, is_for_new_objects=False, problem=""),
        ],
        probes=[ProbeFacts(source="there", arrived_at="ingress", waited=timedelta(seconds=20))],
        retention=[RetentionFacts(partition="orders/0", oldest=NOW - timedelta(hours=1), retention=timedelta(days=1))],
        written=[WrittenFacts(region="there", segment="s", writer="kafka-segment-replicator 0.1.0")],
    )
    return replace(found, **changes)
