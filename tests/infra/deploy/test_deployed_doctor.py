"""The doctor on what the templates deploy into moto: nothing to find, and what is taken away is found."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from infra.contracts.deployment import ReplicationRule
from infra.local.aws import CREDENTIALS
from infra.runtime.lifecycle import SystemClock
from replicator.config import Config, from_mapping
from replicator.doctor.bucket_checks import BUCKET_CHECKS
from replicator.doctor.facts import DeploymentFacts
from replicator.doctor.findings import Diagnosis, Severity, examine
from replicator.doctor.gather import gather
from replicator.doctor.key_checks import KEY_CHECKS
from replicator.doctor.queue_checks import QUEUE_CHECKS
from replicator.rights.table import ROLES
from tests.infra.deploy.stacks import OTHER, REGION, SOURCE, deployed
from tests.infra.enforced_aws import ACCOUNT, EnforcedAws

pytestmark = [pytest.mark.integration, pytest.mark.long]

HEAD = {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key"}
KEYS = {HEAD.get(name, name): value for name, value in CREDENTIALS.items()}
NEEDLESS = {"bucket-right-needless"}  # moto's keys may do everything
UNREAD_WITHOUT_QUEUE = ("notifications", "queue-policy", "queue-settings", "dead-letters")
NO_GROUP = {"notification-probe"}  # without a cluster it is not known whether ingress runs


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnforcedAws]:
    with deployed(tmp_path_factory.mktemp("aws")) as running:
        yield running


def config(aws: EnforcedAws, region: str) -> Config:
    """The file of a region, with moto's addresses."""
    at = {"endpoint_url": aws.endpoint_url, **KEYS}
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    if region == REGION:
        return from_mapping(
            {"region": REGION, "kafka": kafka, "s3": {"bucket": "ours", **at}, "egress": {"topics": {"t": {}}}}
        )
    return from_mapping(
        {
            "region": OTHER,
            "kafka": kafka,
            "s3": {"bucket": "theirs", **at},
            "sqs": {"queue": "theirs-events", **at, "region_name": OTHER},
            "ingress": {"sources": [{"region": REGION, "topic": "^.*", "destination_topic": "us.{topic}"}]},
        }
    )


def facts_of(settings: Config, *roles: str) -> DeploymentFacts:
    pool = ThreadPoolExecutor(8)
    try:
        with ExitStack() as opened:
            return gather(settings, [one for one in ROLES if one.name in roles], pool, SystemClock(), opened)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def found_in(facts: DeploymentFacts) -> Sequence[Diagnosis]:
    found = examine([*BUCKET_CHECKS, *QUEUE_CHECKS], facts)
    return [one for one in found if one.severity is not Severity.OK and one.name not in NEEDLESS | NO_GROUP]


def names(facts: DeploymentFacts) -> Collection[str]:
    return {one.name for one in found_in(facts)}


def with_filter(facts: DeploymentFacts) -> DeploymentFacts:
    """moto forgets the filter of a replication rule, so it is that of the template."""
    assert isinstance(facts.bucket.replication, list)
    (rule,) = facts.bucket.replication
    (given,) = SOURCE.properties("Bucket")["ReplicationConfiguration"]["Rules"]
    kept: ReplicationRule = replace(rule, prefix=given["Filter"]["Prefix"])
    return replace(facts, bucket=replace(facts.bucket, replication=[kept]))


def test_the_source_region_is_clean(aws: EnforcedAws) -> None:
    facts = facts_of(config(aws, REGION), "egress")
    assert found_in(with_filter(facts)) == []
    assert names(facts) == {"replication-of-other-regions"}, "moto forgets the filter"
    compacts = facts_of(config(aws, REGION), "compact")
    assert found_in(with_filter(compacts)) == []


def test_the_target_region_is_clean(aws: EnforcedAws) -> None:
    assert found_in(facts_of(config(aws, OTHER), "ingress")) == []


def facts_as(aws: EnforcedAws, settings: Config, role: str, service: str) -> DeploymentFacts:
    """As they are to a role of the templates, while IAM is in force."""
    assumed = as_role(aws, settings, role)
    aws.enforce()
    try:
        return facts_of(assumed, service)
    finally:
        aws.relax()


def as_role(aws: EnforcedAws, settings: Config, role: str) -> Config:
    """With the keys of a role of the templates."""
    assume: Any = {"RoleSessionName": "session", "ExternalId": "kept-secret"}
    keys = aws.admin("sts").assume_role(RoleArn=f"arn:aws:iam::{ACCOUNT}:role/{role}", **assume)["Credentials"]
    assumed = {
        "access_key_id": keys["AccessKeyId"],
        "secret_access_key": keys["SecretAccessKey"],
        "session_token": keys["SessionToken"],
    }
    queue = None if settings.sqs is None else replace(settings.sqs, **assumed)
    return replace(settings, s3=replace(settings.s3, **assumed), sqs=queue)


@pytest.mark.parametrize(
    ("region", "role", "service"),
    [(REGION, f"source-{REGION}-doctor", "egress"), (OTHER, f"target-{OTHER}-doctor", "ingress")],
    ids=["source", "target"],
)
def test_under_the_doctors_role_everything_is_read(aws: EnforcedAws, region: str, role: str, service: str) -> None:
    """And found to be well, but for the right to delete control objects, which the service does not need."""
    facts = facts_as(aws, config(aws, region), role, service)
    assert found_in(with_filter(facts) if region == REGION else facts) == []


def test_under_its_own_role_egress_is_clean_but_for_what_it_may_not_read(aws: EnforcedAws) -> None:
    """And once IAM is in force, the rights are what the template gives: none to delete."""
    facts = facts_as(aws, config(aws, REGION), f"source-{REGION}-egress", "egress")
    found = examine(BUCKET_CHECKS, facts)
    bad = {one.name for one in found if one.severity in (Severity.ERROR, Severity.WARNING)}
    assert bad <= {"replication-of-other-regions"}, "moto forgets the filter"
    unread = {one.name: one.why for one in found if one.severity is Severity.UNKNOWN}
    assert unread.keys() >= {"bucket-lifecycle", "bucket-versioning"}, unread  # moto judges not every reading
    assert all("allow s3:Get" in why for why in unread.values()), unread
    assert {one.name for one in found if one.severity is Severity.OK} >= {"bucket-rights", "bucket-conditional-writes"}


def test_a_role_that_may_put_control_objects_alone_cannot_archive(aws: EnforcedAws) -> None:
    """That of ingress, for instance; the question leaves no upload."""
    facts = facts_as(aws, config(aws, OTHER), f"target-{OTHER}-ingress", "egress")
    whats = [one.what for one in examine(BUCKET_CHECKS, facts) if one.name == "bucket-right-missing"]
    assert [what for what in whats if what.startswith(f"s3:PutObject on data/{OTHER}/* is refused")], whats
    uploads = aws.admin("s3").list_multipart_uploads(Bucket="theirs").get("Uploads", [])
    assert [one["Key"] for one in uploads if "_control/" not in one["Key"]] == []


def test_what_is_taken_away_is_found(aws: EnforcedAws) -> None:
    s3 = aws.admin("s3")
    s3.delete_bucket_lifecycle(Bucket="theirs")
    s3.delete_public_access_block(Bucket="theirs")
    s3.delete_bucket_encryption(Bucket="theirs")
    assert names(facts_of(config(aws, OTHER), "ingress")) == {
        "bucket-keeps-uploads",
        "bucket-keeps-versions",
        "bucket-may-be-public",
        "bucket-not-encrypted",
    }


def test_a_statement_of_the_buckets_policy_is_named(aws: EnforcedAws) -> None:
    """Under the condition that every put asks for an encryption, which the bucket's default does not."""
    statement = {
        "Sid": "OnlyEncrypted",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:PutObject",
        "Resource": "arn:aws:s3:::ours/*",
        "Condition": {"Null": {"s3:x-amz-server-side-encryption": "true"}},
    }
    s3 = aws.admin("s3")
    s3.put_bucket_policy(Bucket="ours", Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    try:
        found = found_in(with_filter(facts_of(config(aws, REGION), "egress")))
    finally:
        s3.delete_bucket_policy(Bucket="ours")
    (policy,) = [one for one in found if one.name == "bucket-policy-needs-encryption"]
    assert policy.what == (
        "statement OnlyEncrypted of its policy denies s3:PutObject on arn:aws:s3:::ours/data/us-east-1/* as the "
        "settings ask for encryption"
    )


def test_the_queue_of_sync_and_the_keys_are_asked_for(aws: EnforcedAws) -> None:
    at = {"endpoint_url": aws.endpoint_url, **KEYS}
    kms, sqs = aws.admin("kms"), aws.admin("sqs")
    new, earlier = (str(kms.create_key()["KeyMetadata"]["Arn"]) for _ in range(2))
    kms_at = {"kms_endpoint_url": aws.endpoint_url, **{key: value for key, value in KEYS.items() if "key" in key}}
    settings = from_mapping(
        {
            "region": REGION,
            "kafka": {"bootstrap.servers": "127.0.0.1:1"},
            "s3": {"bucket": "ours", **at},
            "sync": {
                "destination": {"bucket": "theirs", **at},
                "queue": {"queue": "copies", **at, "region_name": REGION},
            },
            "egress": {"topics": {"t": {}}},
            "encryption": {"key": "kms", "kms_key_id": new, "kms_read_key_ids": [earlier], **kms_at},
        }
    )

    def about(settings: Config = settings) -> set[str]:
        facts = facts_of(settings, "egress", "sync")
        checks = [one for one in [*KEY_CHECKS, *QUEUE_CHECKS] if one.applies(facts)]
        return {one.name for one in examine(checks, facts) if one.severity is not Severity.OK}

    assert about() == {"queue-unreachable", *(f"sync-{name}" for name in UNREAD_WITHOUT_QUEUE)}
    sqs.create_queue(QueueName="copies", Attributes={"VisibilityTimeout": "5"})
    kms.disable_key(KeyId=earlier.rpartition("/")[2])
    assert about() == {
        *("notification-missing", "queue-refuses-bucket", "queue-visibility-short", "queue-without-dead-letter-queue"),
        "encryption-read-key-unusable",
    }
    gone = replace(settings, encryption=replace(settings.encryption, kms_key_id=f"{new[:-4]}0000"))  # type: ignore[type-var]
    assert "encryption-key-refused" in about(gone)
