"""Each kind of finding has its cause planted in facts that are otherwise sound; and what was not read is not sound."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from infra.contracts.deployment import (
    BrokerNode,
    LifecycleRule,
    Notification,
    Notifications,
    PublicAccess,
    ReplicationRule,
    Transition,
)
from replicator.doctor import bucket_checks, cluster_checks, program_checks, queue_checks
from replicator.doctor.catalogue import CHECKS, KINDS
from replicator.doctor.facts import (
    DeploymentFacts,
    ProbeFacts,
    ProgramFacts,
    RetentionFacts,
    RightAnswer,
    Unread,
    WrittenFacts,
)
from replicator.doctor.findings import Severity, examine
from replicator.doctor.gather import roles_of
from tests.replicator.doctor.deployment import (
    BROKER,
    EVERY_OPERATION,
    NOW,
    POLICY,
    QUEUE_ARN,
    bucket,
    checkpoint_topic,
    cluster,
    config,
    events_topic,
    lifecycle,
    queue,
    sound,
    sync_queue,
    topic,
    topics,
)

AWAY = Unread("it does not answer")
LOST = ProbeFacts(source="there", arrived_at="", waited=timedelta(seconds=20))
EVENTS, COPIES = bucket().notifications.queues  # type: ignore[union-attr]  # they are read
ALL = ("s3:ObjectCreated:*", "s3:ObjectRemoved:*")


def with_bucket(**changes: Any) -> DeploymentFacts:
    return sound(bucket=bucket(**changes))


def with_rule(**changes: Any) -> DeploymentFacts:
    return with_bucket(lifecycle=lifecycle(LifecycleRule(name="planted", **changes)))


def with_replication(*rules: ReplicationRule) -> DeploymentFacts:
    return with_bucket(replication=[ReplicationRule(name="own", bucket="elsewhere", prefix="data/here/"), *rules])


def with_notification(**changes: Any) -> DeploymentFacts:
    given: dict[str, Any] = {"to": QUEUE_ARN, "events": ALL, "prefix": "data/there/", **changes}
    return with_bucket(notifications=Notifications(queues=[Notification(**given), COPIES]))


def with_cluster(**changes: Any) -> DeploymentFacts:
    return sound(cluster=cluster(**changes))


def with_topic(name: str, **changes: Any) -> DeploymentFacts:
    return with_cluster(topics=topics(topic(name, **changes)))


def with_broker(**changes: str) -> DeploymentFacts:
    return with_cluster(broker_configs={**BROKER, **{name.replace("_", "."): value for name, value in changes.items()}})


def with_bucket_policy(settings: Mapping[str, Any] | None = None, **changes: Any) -> DeploymentFacts:
    """One statement that denies everything to everyone, but for what is changed."""
    statement = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "arn:aws:s3:::ours/*", **changes}
    given = replace(bucket().settings, **(settings or {}))
    return with_bucket(policy=json.dumps({"Statement": [statement]}), settings=given)


def with_keys(problem: str | Unread, *, new: bool) -> DeploymentFacts:
    return sound(keys=[replace(one, problem=problem if one.is_for_new_objects == new else "") for one in sound().keys])


def with_policy(policy: str) -> DeploymentFacts:
    return sound(queue=queue(policy=policy), probes=Unread("not sent"))


def with_programs(**changes: Any) -> DeploymentFacts:
    given: dict[str, Any] = {"replicator": "kafka-segment-replicator 0.1.0", "librdkafka": "2.12.1", "java": "17"}
    return sound(programs=ProgramFacts(**{**given, **changes}))


def aged(hours: float) -> DeploymentFacts:
    oldest = NOW - timedelta(hours=hours)
    return sound(retention=[RetentionFacts(partition="orders/0", oldest=oldest, retention=timedelta(days=1))])


def changed_policy(**changes: Any) -> str:
    (statement,) = json.loads(POLICY)["Statement"]
    return json.dumps({"Statement": [{**statement, **changes}]})


PLANTED: Mapping[str, Mapping[str, DeploymentFacts]] = {
    "bucket-unreachable": {"no answer": with_bucket(clock_ahead=AWAY)},
    "bucket-overwrites": {"ignores If-None-Match": with_bucket(conditional_writes="it ignores If-None-Match")},
    "bucket-right-missing": {
        "get": with_bucket(rights=[RightAnswer(action="s3:GetObject", resource="data/*", refusal="403")]),
        "there": sound(
            destination=bucket("theirs", rights=[RightAnswer(action="s3:PutObject", resource="data/*", refusal="403")])
        ),
    },
    "bucket-policy-denies": {
        "everyone": with_bucket_policy(),
        "all but another role": with_bucket_policy(
            Condition={"StringNotLike": {"aws:PrincipalArn": "arn:aws:iam::123456789012:role/admin"}}
        ),
        "this role": with_bucket_policy(Principal={"AWS": "arn:aws:iam::123456789012:role/replicator"}),
        "no JSON": with_bucket(policy="{"),
        "there": sound(
            destination=bucket(
                "theirs",
                policy='{"Statement": {"Effect": "Deny", "Principal": {"AWS": "*"}, "NotAction": "s3:Get*",'
                ' "Resource": "arn:aws:s3:::theirs/data/*"}}',
            )
        ),
    },
    "bucket-policy-needs-tls": {
        "an endpoint without": with_bucket(
            settings=replace(bucket().settings, endpoint_url="http://s3.us-east-1.amazonaws.com")
        )
    },
    "bucket-policy-needs-encryption": {
        "none is asked for": with_bucket_policy(
            Action="s3:PutObject", Condition={"Null": {"s3:x-amz-server-side-encryption": "true"}}
        ),
        "another key": with_bucket_policy(
            {"sse": "aws:kms", "kms_key_id": "theirs"},
            Action="s3:PutObject",
            Condition={"StringNotEquals": {"s3:x-amz-server-side-encryption-aws-kms-key-id": "ours"}},
        ),
    },
    "encryption-key-refused": {"disabled": with_keys("the key is disabled", new=True)},
    "encryption-key-unreachable": {"no answer": with_keys(AWAY, new=True)},
    "encryption-read-key-unusable": {"disabled": with_keys("its state is Disabled", new=False)},
    "bucket-right-needless": {
        "egress may delete": with_bucket(
            rights=[RightAnswer(action="s3:DeleteObject", resource="data/*", refusal="", is_needed=False)]
        )
    },
    "bucket-expires-segments": {
        "of the bucket": with_rule(expires="30 days after they were stored"),
        "of a part": with_rule(prefix="data/there/orders/", expires="on 2026-01-01"),
        "of some sizes": with_rule(prefix="data/", expires="on 2026-01-01", is_narrower=True),
    },
    "bucket-freezes-control-objects": {
        "every object": with_rule(prefix="data/", transitions=[Transition("DEEP_ARCHIVE", 30)])
    },
    "bucket-freezes-segments": {
        "large ones": with_rule(prefix="data/", is_narrower=True, transitions=[Transition("GLACIER", 30)])
    },
    "bucket-keeps-uploads": {
        "no rule": with_bucket(lifecycle=[LifecycleRule(name="versions", noncurrent_days=30)]),
        "of large ones only": with_bucket(
            lifecycle=[
                LifecycleRule(name="uploads", prefix="data/", aborts_uploads_after_days=7, is_narrower=True),
                LifecycleRule(name="versions", prefix="data/", noncurrent_days=30),
            ]
        ),
    },
    "bucket-keeps-versions": {
        "no rule": with_bucket(lifecycle=[LifecycleRule(name="uploads", aborts_uploads_after_days=7)]),
        "of one region": with_bucket(
            lifecycle=[
                LifecycleRule(name="uploads", aborts_uploads_after_days=7),
                LifecycleRule(name="versions", prefix="data/here/", noncurrent_days=30),
            ]
        ),
    },
    "bucket-not-versioned": {"off": with_bucket(is_versioned=False)},
    "bucket-not-encrypted": {"no default": with_bucket(encryption=[])},
    "bucket-may-be-public": {"one setting": with_bucket(public_access=PublicAccess(["BlockPublicPolicy"]))},
    "replication-of-other-regions": {
        "the whole bucket": with_replication(ReplicationRule(name="all", bucket="elsewhere")),
        "the whole archive": with_replication(ReplicationRule(name="all", bucket="elsewhere", prefix="data/")),
        "another region": with_replication(ReplicationRule(name="all", bucket="elsewhere", prefix="data/there/")),
    },
    "replication-of-a-part": {
        "one topic": with_bucket(
            replication=[ReplicationRule(name="part", bucket="elsewhere", prefix="data/here/orders/")]
        )
    },
    "replication-leaves-out-encrypted": {
        "the bucket's default": with_bucket(
            encryption=["aws:kms"],
            replication=[ReplicationRule(name="own", bucket="elsewhere", prefix="data/here/", takes_kms=False)],
        ),
        "the file": with_bucket(
            settings=replace(bucket().settings, sse="aws:kms:dsse"),
            replication=[ReplicationRule(name="own", bucket="elsewhere", prefix="data/here/", takes_kms=False)],
        ),
    },
    "replication-of-deletions": {
        "delete markers": with_bucket(
            replication=[
                ReplicationRule(name="own", bucket="elsewhere", prefix="data/here/", copies_delete_markers=True)
            ]
        )
    },
    "replication-beside-sync": {
        "to the same bucket": with_replication(ReplicationRule(name="own", bucket="theirs", prefix="data/here/"))
    },
    "clock-far-off": {"ahead": with_bucket(clock_ahead=901.0), "behind": with_bucket(clock_ahead=-86_400.0)},
    "clock-off": {"ahead": with_bucket(clock_ahead=5.5), "behind": with_bucket(clock_ahead=-900.0)},
    "queue-unreachable": {
        "absent": sound(queue=replace(queue(), setup=Unread("the queue does not exist"))),
        "of sync": sound(sync_queue=replace(sync_queue(), setup=Unread("the queue does not exist"))),
    },
    "notification-missing": {
        "none": with_bucket(notifications=Notifications(queues=[COPIES])),
        "none to sync": with_bucket(notifications=Notifications(queues=[EVENTS])),
        "to another queue": with_notification(to=f"{QUEUE_ARN}-2"),
        "of another region": with_notification(prefix="data/here/"),
        "of removals": with_notification(events=("s3:ObjectRemoved:*",)),
    },
    "notification-of-a-part": {
        "one topic": with_notification(prefix="data/there/orders/"),
        "a suffix": with_notification(prefix="data/", suffix=".parquet"),
    },
    "notification-of-some-events": {
        "small ones": with_notification(events=("s3:ObjectCreated:Put", "s3:ObjectRemoved:*")),
        "large ones": with_notification(events=("s3:ObjectCreated:CompleteMultipartUpload", "s3:ObjectRemoved:*")),
    },
    "notification-not-of-removals": {"created only": with_notification(events=("s3:ObjectCreated:*",))},
    "queue-refuses-bucket": {
        "no policy": with_policy(""),
        "not JSON": with_policy("{"),
        "another service": with_policy(changed_policy(Principal={"Service": "sns.amazonaws.com"})),
        "another action": with_policy(changed_policy(Action=["sqs:ReceiveMessage"])),
        "denied": with_policy(changed_policy(Effect="Deny")),
        "another bucket": with_policy(
            changed_policy(Condition={"ArnEquals": {"aws:SourceArn": "arn:aws:s3:::theirs"}})
        ),
        "of sync": sound(sync_queue=sync_queue(policy="")),
    },
    "queue-open-to-all": {"everyone": with_policy(changed_policy(Principal="*", Condition={}))},
    "queue-visibility-short": {
        "5 s": sound(queue=queue(visibility=timedelta(seconds=5))),
        "of sync": sound(sync_queue=sync_queue(visibility=timedelta(seconds=5))),
    },
    "queue-retention-short": {"an hour": sound(queue=queue(retention=timedelta(hours=1)))},
    "queue-without-dead-letter-queue": {"none": sound(queue=replace(queue(dead_letter_arn=""), dead_letters=None))},
    "queue-has-dead-letters": {
        "some": sound(queue=replace(queue(), dead_letters=3)),
        "of sync": sound(sync_queue=replace(sync_queue(), dead_letters=3)),
    },
    "notification-probe-lost": {"lost": sound(probes=[LOST])},
    "cluster-unreachable": {"no broker": with_cluster(brokers=Unread("kafka:9092: SASL"))},
    "cluster-too-old": {
        "3.0": with_cluster(broker_configs={name: BROKER[name] for name in BROKER if not name.startswith("early")})
    },
    "transaction-timeout-refused": {"20 s": with_broker(transaction_max_timeout_ms="20000")},
    "transactions-refused": {"no ACL": with_cluster(transactions="TRANSACTIONAL_ID_AUTHORIZATION_FAILED")},
    "transaction-log-fragile": {"one copy": with_broker(transaction_state_log_replication_factor="1")},
    "group-offsets-forgotten-soon": {"an hour": with_broker(offsets_retention_minutes="60")},
    "cluster-right-missing": {
        "READ": with_topic("orders", operations=frozenset({"DESCRIBE", "DESCRIBE_CONFIGS"})),
        "DESCRIBE": with_cluster(topics={**topics(), "orders": Unread("denied")}),
        "READ on the group": with_cluster(groups={**cluster().groups, "replicator.ingress": frozenset({"DESCRIBE"})}),
    },
    "cluster-right-optional": {
        "ALTER": with_topic("there.orders", operations=EVERY_OPERATION - {"ALTER"}),
        "DESCRIBE_CONFIGS of egress": with_topic("orders", operations=EVERY_OPERATION - {"DESCRIBE_CONFIGS"}),
    },
    "topic-cannot-be-created": {
        "no CREATE": with_cluster(
            topics={name: one for name, one in topics().items() if name != checkpoint_topic()},
            creations={checkpoint_topic(): "TOPIC_AUTHORIZATION_FAILED"},
        )
    },
    "topic-not-visible": {"absent": with_cluster(names=frozenset({"there.orders"}))},
    "own-topic-cleanup-policy": {
        "checkpoints": with_topic(checkpoint_topic(), configs={"cleanup.policy": "delete"}),
        "both": with_topic(checkpoint_topic(), configs={"cleanup.policy": "compact,delete"}),
        "events": with_topic(events_topic(), configs={"cleanup.policy": "compact"}),
    },
    "own-topic-partitions": {"two": with_topic(checkpoint_topic(), replicas=[3, 3], in_sync=[3, 3])},
    "own-topic-few-replicas": {
        "one": with_topic(checkpoint_topic(), replicas=[1], in_sync=[1], configs={"min.insync.replicas": "1"})
    },
    "own-topic-min-insync": {
        "one of three": with_topic(checkpoint_topic(), configs={"min.insync.replicas": "1"}),
        "two of two": with_topic(checkpoint_topic(), replicas=[2], in_sync=[2]),
    },
    "own-topic-unclean-election": {
        "checkpoints": with_topic(checkpoint_topic(), configs={"unclean.leader.election.enable": "true"})
    },
    "source-unclean-election": {"orders": with_topic("orders", configs={"unclean.leader.election.enable": "true"})},
    "topic-without-leader": {"orders": with_topic("orders", leaderless=[0])},
    "topic-below-min-insync": {"orders": with_topic("orders", in_sync=[1])},
    "retention-overtakes-soon": {"23 of 24 hours": aged(23)},
    "retention-near": {"13 of 24 hours": aged(13)},
    "librdkafka-old": {"2.11": with_programs(librdkafka="2.11.1")},
    "java-missing": {"none": with_programs(java=Unread("there is no Java"))},
    "archive-not-readable": {
        "a newer version": sound(written=[WrittenFacts(region="there", segment="s", problem="version 9")])
    },
    "archive-of-newer-version": {
        "0.10": sound(written=[WrittenFacts(region="there", segment="s", writer="kafka-segment-replicator 0.10.0")])
    },
}
OF_FILES = {"config-invalid", "config-contradiction"}


def test_a_sound_deployment_has_no_findings() -> None:
    found = examine(CHECKS, sound())
    assert [one for one in found if one.severity is not Severity.OK] == []
    assert [one.name for one in found] == [check.name for check in CHECKS]


def test_every_kind_is_planted() -> None:
    assert set(PLANTED) | OF_FILES == set(KINDS)


@pytest.mark.parametrize(
    ("name", "facts"),
    [pytest.param(name, facts, id=f"{name}: {how}") for name, ways in PLANTED.items() for how, facts in ways.items()],
)
def test_a_planted_cause_is_found_and_nothing_else(name: str, facts: DeploymentFacts) -> None:
    found = [one for one in examine(CHECKS, facts) if one.severity in (Severity.ERROR, Severity.WARNING)]
    assert {one.name for one in found} == {name}
    for one in found:
        assert one.severity is KINDS[name].severity
        assert one.where
        assert one.what
        assert one.why
        assert one.remedy


def test_problems_of_files() -> None:
    found = program_checks.of_files([("a.toml", "region: missing")], ["a.toml and b.toml share a queue"])
    assert [one.name for one in found] == ["config-invalid", "config-contradiction"]
    assert found[0].where == "a.toml"


def unread(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of the facts that may be `Unread`."""
    if not is_dataclass(value) or isinstance(value, Unread):
        return []
    found = []
    for one in fields(value):
        if "Unread" in str(one.type) and not str(one.type).startswith("Mapping[str, str | Unread]"):
            found.append((*path, one.name))
        if one.name in ("bucket", "destination", "cluster", "queue", "sync_queue", "programs"):
            found += unread(getattr(value, one.name), (*path, one.name))
    return found


def with_unread(value: Any, path: tuple[str, ...]) -> Any:
    head, *rest = path
    return replace(value, **{head: with_unread(getattr(value, head), tuple(rest)) if rest else AWAY})


ERRORS_BY_THEMSELVES = {  # that these cannot be read is a finding, not only a check that was not made
    ("bucket", "clock_ahead"): "bucket-unreachable",
    ("destination", "clock_ahead"): "bucket-unreachable",
    ("cluster", "brokers"): "cluster-unreachable",
    ("queue", "setup"): "queue-unreachable",
    ("sync_queue", "setup"): "queue-unreachable",
    ("programs", "java"): "java-missing",
}
NOT_JUDGED = {("destination", "notifications"), ("destination", "replication")}


def test_the_facts_that_may_be_unread_are_known() -> None:
    assert len(unread(sound())) > 20
    assert set(ERRORS_BY_THEMSELVES) | NOT_JUDGED < set(unread(sound()))


@pytest.mark.parametrize(
    "path", [one for one in unread(sound()) if one[-1] not in ("groups", "creations", "rights")], ids=".".join
)
def test_what_was_not_read_is_never_well(path: tuple[str, ...]) -> None:
    facts = with_unread(sound(), path)
    before = {one.name for one in examine(CHECKS, sound())}
    found = examine(CHECKS, facts)
    errors = {one.name for one in found if one.severity in (Severity.ERROR, Severity.WARNING)}
    not_made = {one.name for one in found if one.severity is Severity.UNKNOWN}
    assert errors == ({ERRORS_BY_THEMSELVES[path]} if path in ERRORS_BY_THEMSELVES else set())
    if path in NOT_JUDGED:
        assert not not_made
        return
    assert errors | not_made
    assert all(AWAY.reason in one.why for one in found if one.severity is Severity.UNKNOWN)
    others = {one.name for one in found if one.severity is Severity.OK}
    assert others >= before - not_made - {check.name for check in CHECKS if {k.name for k in check.kinds} & errors}


def test_what_is_unread_of_one_topic_or_group_hides_no_other() -> None:
    planted = cluster(
        topics=topics(topic("orders", operations=frozenset({"DESCRIBE", "DESCRIBE_CONFIGS"}))),
        groups={**cluster().groups, "replicator.egress": AWAY},
        creations={events_topic(): AWAY},
    )
    found = examine(CHECKS, sound(cluster=planted))
    assert {one.name for one in found if one.severity is Severity.ERROR} == {"cluster-right-missing"}
    assert {one.name for one in found if one.severity is Severity.UNKNOWN} == {"cluster-rights", "own-topics"}


def test_a_right_that_was_not_asked_for_is_unknown_beside_one_that_is_missing() -> None:
    rights = [
        RightAnswer(action="s3:PutObject", resource="data/*", refusal=AWAY),
        RightAnswer(action="s3:GetObject", resource="data/*", refusal="403"),
    ]
    found = examine(bucket_checks.BUCKET_CHECKS, with_bucket(rights=rights))
    assert [one.severity for one in found if one.name.startswith("bucket-right")] == [Severity.ERROR, Severity.UNKNOWN]


def test_a_message_that_arrived_says_more_than_the_policy() -> None:
    facts = sound(queue=queue(policy=""))
    assert [one for one in examine(queue_checks.QUEUE_CHECKS, facts) if one.severity is not Severity.OK] == []


def test_notifications_may_go_by_sns_or_event_bridge() -> None:
    by_sns = Notifications(topics=[Notification(to="arn:aws:sns:x", events=ALL, prefix="data/")])
    policy = changed_policy(
        Principal={"Service": "sns.amazonaws.com"}, Condition={"ArnEquals": {"aws:SourceArn": "arn:aws:sns:x"}}
    )
    for ways in (by_sns, Notifications(to_event_bridge=True)):
        sends = changed_policy(Principal={"Service": "events.amazonaws.com"}) if ways.to_event_bridge else policy
        facts = sound(bucket=bucket(notifications=ways), queue=queue(policy=sends), sync_queue=None, probes=[])
        found = examine(queue_checks.QUEUE_CHECKS, facts)
        assert [one for one in found if one.severity is not Severity.OK] == []


@pytest.mark.parametrize("partition", ["aws-cn", "aws-us-gov"])
def test_the_policy_of_a_queue_names_the_bucket_in_its_own_partition_of_aws(partition: str) -> None:
    sends = changed_policy(Condition={"ArnLike": {"aws:SourceArn": f"arn:{partition}:s3:::ours"}})
    arn = QUEUE_ARN.replace("arn:aws:", f"arn:{partition}:")
    there = replace(with_notification(to=arn), queue=queue(arn=arn, policy=sends), probes=Unread("not sent"))
    found = examine(queue_checks.QUEUE_CHECKS, there)
    assert {one.name for one in found if one.severity is Severity.ERROR} == set()
    other = replace(there, queue=queue(arn=arn, policy=POLICY))
    assert "queue-refuses-bucket" in {one.name for one in examine(queue_checks.QUEUE_CHECKS, other)}


def test_sections_that_are_not_there_are_not_checked() -> None:
    alone = replace(config(), ingress=None, sqs=None, sync=None, compaction=None, encryption=None)
    facts = sound(
        config=alone,
        queue=None,
        sync_queue=None,
        keys=[],
        destination=None,
        probes=[],
        cluster=cluster(transactions=None),
        programs=ProgramFacts(replicator="x 1", librdkafka="2.12.1"),
    )
    names = {one.name for one in examine(CHECKS, facts)}
    assert not [
        name for name in names if name.startswith(("queue", "destination", "notification", "dead", "sync", "key"))
    ]
    assert names & {"own-topics", "transactions", "java"} == set()


def test_rules_beside_the_archive_are_not_judged() -> None:
    others = [
        LifecycleRule(name="logs", prefix="logs/", expires="7 days after they were stored"),
        LifecycleRule(name="longer", prefix="data2/", expires="7 days after they were stored"),
    ]
    replicated = ReplicationRule(name="logs", bucket="theirs", prefix="logs/", copies_delete_markers=True)
    facts = sound(bucket=bucket(lifecycle=lifecycle(*others), replication=[replicated]))
    assert [one for one in examine(CHECKS, facts) if one.severity is not Severity.OK] == []


def test_one_broker_needs_no_replicas() -> None:
    single = {name: replace(one, replicas=[1], in_sync=[1]) for name, one in topics().items()}
    one_copy = {name: replace(one, configs={**one.configs, "min.insync.replicas": "1"}) for name, one in single.items()}
    planted = cluster(
        brokers=[BrokerNode(1, "kafka:9092")],
        topics=one_copy,
        broker_configs={**BROKER, "transaction.state.log.replication.factor": "1"},
    )
    found = examine(cluster_checks.CLUSTER_CHECKS, sound(cluster=planted))
    assert [one for one in found if one.severity is not Severity.OK] == []


def test_a_managed_cluster_that_shows_few_of_its_settings_is_not_called_old() -> None:
    found = examine(cluster_checks.CLUSTER_CHECKS, with_cluster(broker_configs={"num.partitions": "6"}))
    assert [one.name for one in found if one.severity is not Severity.OK] == ["cluster-version"]
    (version,) = [one for one in found if one.name == "cluster-version"]
    assert version.severity is Severity.UNKNOWN
    assert version.why == "the cluster shows only some of its brokers' settings"


def test_a_setting_of_a_broker_without_a_value_counts_as_its_default() -> None:
    names = ("transaction.max.timeout.ms", "transaction.state.log.replication.factor", "offsets.retention.minutes")
    facts = with_cluster(broker_configs={**BROKER, **dict.fromkeys(names, "")})
    assert [one for one in examine(cluster_checks.CLUSTER_CHECKS, facts) if one.severity is not Severity.OK] == []


def test_many_names_are_cut() -> None:
    assert cluster_checks.some(["d", "b", "a", "c"]) == "a, b, c and 1 more"


def test_roles_of_a_file() -> None:
    """Those of its services; compaction and retention run elsewhere, unless the file has nothing else."""
    assert [role.name for role in roles_of(config())] == ["egress", "ingress", "sync"]
    jobs = replace(config(), egress=None, ingress=None, sqs=None, sync=None)
    assert [role.name for role in roles_of(jobs)] == ["compact"]


def test_a_key_that_may_not_be_described_is_unknown_and_hides_no_other() -> None:
    facts = with_keys(AWAY, new=False)
    planted = replace(facts, keys=[*facts.keys, replace(facts.keys[-1], problem="its state is Disabled")])
    found = [one for one in examine(CHECKS, planted) if one.severity is not Severity.OK]
    assert [one.name for one in found] == ["encryption-read-key-unusable", "encryption-read-keys"]


def test_who_asks_matters_for_a_policy_alone() -> None:
    """Where it is not known, what is denied to everyone is found all the same."""
    unknown = sound(bucket=replace(with_bucket_policy().bucket, caller=AWAY))
    found = [one for one in examine(CHECKS, unknown) if one.severity is not Severity.OK]
    assert [one.name for one in found] == ["bucket-policy-denies", "bucket-policy"]
    without = sound(bucket=bucket(policy="", caller=AWAY))
    assert [one for one in examine(CHECKS, without) if one.severity is not Severity.OK] == []
