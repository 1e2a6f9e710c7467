"""The CloudFormation templates: linted, and their roles have the rights of the table, no more and no less."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from formats.control.keys import heartbeat_prefix
from infra.settings.field import region_name
from replicator.config.load import from_mapping
from replicator.rights.iam import ArchiveAccess, KeyAccess, key_statements, statements
from replicator.rights.table import ACCEPTS, DOCTOR, INSPECTS, READERS, SEEDS, SYNC_READS, SYNC_WRITES, THAWS
from tests.infra.deploy.on_moto import KNOWN
from tests.infra.deploy.template import TEMPLATES, Template, file_of, read

ARCHIVE, OTHER = "us-east-1", "eu-west-1"
NAMES = {"BucketName": "ours", "ArchiveRegion": ARCHIVE}
LOCKS = ("ObjectLock", "ReplicaObjectLock")
QUEUE = "arn:aws:sqs:us-east-1:123456789012:ours-events"
KEY = "arn:aws:kms:us-east-1:123456789012:key/k"
OTHER_KEY = "arn:aws:kms:eu-west-1:123456789012:key/k"
SOURCE = Template("source-region", {**NAMES, "ReplicaBucketName": "theirs", "ReplicateWith": "sync"})
TARGET = Template("target-region", {**NAMES, "SourceRegion": OTHER})
COMPACTION = Template("compaction", {**NAMES, "CopyBucketName": "theirs"})
OF_A_COPY = Template(
    "compaction", {**NAMES, "ArchiveRegion": OTHER, "ConfigRegion": ARCHIVE, "CopyBucketName": "theirs"}
)
COPY_KEYS = {"source-region": "ReplicaKmsKeyArn", "compaction": "CopyKmsKeyArn"}
SYNC_QUEUE = {"SyncQueueArn": QUEUE, "SyncDeadLetterQueueArn": f"{QUEUE}-dead"}
SOURCE_WITH_QUEUE = Template("source-region", {**SOURCE.parameters, **SYNC_QUEUE})
WITH_QUEUE = (
    *((TARGET, role) for role in ("IngressRole", "DoctorRole")),
    *((SOURCE_WITH_QUEUE, role) for role in ("SyncRole", "DoctorRole")),
)

Pairs = Collection[tuple[str, str]]
HERE = ("ours", ARCHIVE)
THERE = ("theirs", ARCHIVE)

ROLES: Sequence[tuple[Template, str, Sequence[tuple[Collection[str], tuple[str, str]]]]] = (
    (SOURCE, "EgressRole", [(["`egress`"], HERE)]),
    (SOURCE, "BackfillRole", [(["`backfill`"], HERE)]),
    *((one, "SyncRole", [([SYNC_READS], HERE), ([SYNC_WRITES], THERE)]) for one in (SOURCE, SOURCE_WITH_QUEUE)),
    *((one, "RestoreRole", [([READERS, THAWS], HERE)]) for one in (SOURCE, TARGET)),
    *((one, "StatusRole", [([INSPECTS], HERE)]) for one in (SOURCE, TARGET)),
    *(
        (one, "DoctorRole", [([INSPECTS, DOCTOR], HERE), ([INSPECTS, DOCTOR], THERE)])
        for one in (SOURCE, SOURCE_WITH_QUEUE)
    ),
    (TARGET, "DoctorRole", [([INSPECTS, DOCTOR], HERE)]),
    *((one, "RepairRole", [([INSPECTS, SEEDS, ACCEPTS], HERE)]) for one in (SOURCE, TARGET)),
    (TARGET, "IngressRole", [(["`ingress`"], HERE)]),
    (TARGET, "SyncWriterRole", [([SYNC_WRITES], ("ours", OTHER))]),
    *(
        row
        for one in (COMPACTION, OF_A_COPY)
        for row in (
            (one, "CompactRole", [(["`compact`"], HERE), ([SYNC_READS], THERE)]),
            (one, "GcRole", [(["`gc`"], HERE), ([SYNC_READS], THERE)]),
            (one, "VerifyRole", [(["`verify`"], HERE)]),
        )
    ),
)


def pairs(parts: Sequence[Mapping[str, Any]]) -> Pairs:
    found = set()
    for one in parts:
        assert one["Effect"] == "Allow"
        actions, resources = one["Action"], one["Resource"]
        for action in [actions] if isinstance(actions, str) else actions:
            for resource in [resources] if isinstance(resources, str) else resources:
                found.add((action, resource))
    return found


@pytest.mark.parametrize("locks", [False, True], ids=["", "locks"])
@pytest.mark.parametrize(
    ("template", "role", "rows"),
    ROLES,
    ids=[f"{t.name} {t.parameters['ArchiveRegion']} {role}" for t, role, _ in ROLES],
)
def test_a_role_has_the_rights_of_the_table(
    template: Template, role: str, rows: Sequence[tuple[Collection[str], tuple[str, str]]], *, locks: bool
) -> None:
    queue = QUEUE if (template, role) in WITH_QUEUE else ""
    own, earlier = f"{KEY}/own", f"{KEY}/earlier"
    archives = [template.parameters["ArchiveRegion"]] if template.name == "compaction" else []
    for key, copy_key, keys in (("", "", KeyAccess()), (KEY, OTHER_KEY, KeyAccess(creates=own, reads=[earlier]))):
        wanted: set[tuple[str, str]] = set()
        for who, (bucket, region) in rows:
            archive = ArchiveAccess(
                bucket_arn=f"arn:aws:s3:::{bucket}",
                prefix="data",
                region=region,
                archives=archives,
                sources=[OTHER],
                queue_arn=queue,
                dead_letter_arns=[f"{queue}-dead"] if queue else [],
                locks=locks,
                kms_key_arn=key if bucket == "ours" else copy_key,
            )
            wanted |= set(pairs([*statements(who, archive), *key_statements(who, keys)]))
        envelope = {"EncryptionKeyArn": keys.creates, "EncryptionReadKeyArns": ",".join(keys.reads)}
        copied = {name: copy_key for kind, name in COPY_KEYS.items() if kind == template.name}
        locked = {name: "true" for name in LOCKS if locks and name in template.tree["Parameters"]}
        encrypted = Template(template.name, {**template.parameters, "KmsKeyArn": key, **copied, **envelope, **locked})
        assert set(pairs(encrypted.statements(role))) == wanted


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_role_is_compared(name: str) -> None:
    roles = {logical for logical, one in read(name)["Resources"].items() if one["Type"] == "AWS::IAM::Role"}
    assert roles - {"ReplicationRole"} == {role for template, role, _ in ROLES if template.name == name}


def test_s3_replicates_the_own_archive_alone() -> None:
    template = Template("source-region", {**NAMES, "ReplicaBucketName": "theirs"})
    (rule,) = template.properties("Bucket")["ReplicationConfiguration"]["Rules"]
    assert rule["Filter"] == {"Prefix": f"data/{ARCHIVE}/"}
    assert rule["DeleteMarkerReplication"] == {"Status": "Disabled"}
    assert {resource for _, resource in pairs(template.statements("ReplicationRole"))} == {
        "arn:aws:s3:::ours",
        f"arn:aws:s3:::ours/data/{ARCHIVE}/*",
        f"arn:aws:s3:::theirs/data/{ARCHIVE}/*",
    }
    assert "ReplicationConfiguration" not in SOURCE.properties("Bucket"), "sync copies it"


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        ({}, False),
        ({"KmsKeyArn": KEY}, True),
        ({"KmsKeyArn": KEY, "ReplicateWith": "sync"}, False),
        ({"KmsKeyArn": KEY, "ReplicaBucketName": ""}, False),
        ({"KmsKeyArn": KEY, "ReplicaKmsKeyArn": KEY}, False),
    ],
    ids=["plain", "encrypted", "encrypted, sync", "encrypted, no copy", "both encrypted"],
)
def test_a_rule_that_would_replicate_nothing_is_refused(changes: Mapping[str, str], *, is_refused: bool) -> None:
    template = Template("source-region", {**NAMES, "ReplicaBucketName": "theirs", **changes})
    assert bool(template.refusals()) is is_refused
    replication = template.properties("Bucket").get("ReplicationConfiguration")
    if replication is not None and "KmsKeyArn" in changes and not is_refused:
        (rule,) = replication["Rules"]
        assert rule["SourceSelectionCriteria"] == {"SseKmsEncryptedObjects": {"Status": "Enabled"}}


@pytest.mark.parametrize("template", [SOURCE, TARGET], ids=lambda template: template.name)
def test_a_bucket_is_safe(template: Template) -> None:
    large = Template(template.name, {**template.parameters, "LargeObjectClass": "GLACIER_IR"})
    bucket = large.properties("Bucket")
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    rules = {rule["Id"]: rule for rule in bucket["LifecycleConfiguration"]["Rules"]}
    heartbeats = set(rules) - {"incomplete-uploads", "noncurrent-versions", "delete-markers", "large-objects"}
    assert len(heartbeats) == 1
    assert not [rule for rule in rules.values() if {"ExpirationInDays", "ExpirationDate"} & set(rule)]
    assert int(rules["large-objects"]["ObjectSizeGreaterThan"]) >= 128 * 1024
    classes = read(template.name)["Parameters"]["LargeObjectClass"]["AllowedValues"]
    assert not {"GLACIER", "DEEP_ARCHIVE"} & set(classes), "compaction, verify and ingress read what is stored"
    tree = read(template.name)["Resources"]["Bucket"]
    assert tree["DeletionPolicy"] == tree["UpdateReplacePolicy"] == "Retain"


BOTH_WAYS = Template("source-region", {**SOURCE.parameters, "EventsQueueArn": QUEUE, "EventsPrefix": f"data/{OTHER}/"})


@pytest.mark.parametrize(
    ("template", "regions"),
    [(SOURCE, [ARCHIVE]), (BOTH_WAYS, [ARCHIVE, OTHER]), (TARGET, [OTHER])],
    ids=["source", "both ways", "target"],
)
def test_the_alarm_of_many_objects_is_quiet_while_nothing_happens(template: Template, regions: Sequence[str]) -> None:
    """A heartbeat is put under a key of its own and deleted by thinning: a version, and the marker of its deletion. S3
    rounds days up, removes versions once a day, and markers after their versions."""
    rules = template.properties("Bucket")["LifecycleConfiguration"]["Rules"]
    tables = {"region": ARCHIVE, "kafka": {"bootstrap.servers": "b:1"}, "s3": {"bucket": "ours"}}
    egress = from_mapping({**tables, "egress": {"topics": {"t": {}}}}).egress
    assert egress is not None
    a_day = timedelta(days=1) / egress.heartbeat_interval
    kept = 0.0
    for region in regions:
        key = f"{heartbeat_prefix('data', region)}{1:020d}"
        days = [
            int(rule["NoncurrentVersionExpiration"]["NoncurrentDays"])
            for rule in rules
            if "NoncurrentVersionExpiration" in rule and key.startswith(rule["Prefix"])
        ]
        kept += a_day * (min(days) + 2) + a_day * (min(days) + 4)
    assert kept < int(COMPACTION.tree["Parameters"]["ManyObjects"]["Default"]) / 2
    for rule in rules:
        short = int(rule.get("NoncurrentVersionExpiration", {}).get("NoncurrentDays", 30)) < 30
        assert not (short and f"data/{ARCHIVE}/orders/0/0/".startswith(rule["Prefix"])), "segments can be brought back"


@pytest.mark.parametrize("template", [SOURCE, TARGET], ids=lambda template: template.name)
def test_a_bucket_can_lock_objects_where_that_is_asked_for(template: Template) -> None:
    """Without a default retention, which would lock leases and probes, too."""
    locked = Template(template.name, {**template.parameters, "ObjectLock": "true"}).properties("Bucket")
    assert locked["ObjectLockEnabled"] is True
    assert "ObjectLockEnabled" not in template.properties("Bucket")
    assert "ObjectLockConfiguration" not in locked


def test_s3_may_replicate_locks_where_there_are_some() -> None:
    names = {**NAMES, "ReplicaBucketName": "theirs"}
    plain = pairs(Template("source-region", names).statements("ReplicationRole"))
    locked = pairs(Template("source-region", {**names, "ObjectLock": "true"}).statements("ReplicationRole"))
    objects = f"arn:aws:s3:::ours/data/{ARCHIVE}/*"
    reads = {("s3:GetObjectLegalHold", objects), ("s3:GetObjectRetention", objects)}
    assert set(locked) - set(plain) == reads


def test_notifications_are_of_the_source_alone() -> None:
    queues = TARGET.properties("Bucket")["NotificationConfiguration"]["QueueConfigurations"]
    assert {queue["Event"] for queue in queues} == {"s3:ObjectCreated:*", "s3:ObjectRemoved:*"}
    assert {rule["Value"] for queue in queues for rule in queue["Filter"]["S3Key"]["Rules"]} == {f"data/{OTHER}/"}
    every = Template("target-region", {**NAMES, "SourceRegion": "*"})
    (first, _) = every.properties("Bucket")["NotificationConfiguration"]["QueueConfigurations"]
    assert first["Filter"]["S3Key"]["Rules"] == [{"Name": "prefix", "Value": "data/"}]
    (statement,) = TARGET.properties("EventsQueuePolicy")["PolicyDocument"]["Statement"]
    assert statement["Condition"]["ArnEquals"] == {"aws:SourceArn": "arn:aws:s3:::ours"}


@pytest.mark.parametrize("name", TEMPLATES)
def test_everything_of_a_template_can_be_deployed_in_a_test(name: str) -> None:
    for one in read(name)["Resources"].values():
        assert set(one["Properties"]) <= set(KNOWN[one["Type"]])


def test_regions_are_named_as_in_the_file() -> None:
    for name in TEMPLATES:
        pattern = read(name)["Parameters"]["ArchiveRegion"]["AllowedPattern"]
        assert pattern == "[A-Za-z0-9._-]{1,64}"
    assert region_name("a" * 64) is None
    assert region_name("a" * 65) is not None


def findings(file: Path) -> Sequence[str]:
    from cfnlint.api import lint_file  # noqa: PLC0415 -- takes a second

    return [f"{one.rule.id} {one.message}" for one in lint_file(file)]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_cfn_lint_finds_nothing() -> None:
    assert {name: findings(file_of(name)) for name in TEMPLATES} == {name: [] for name in TEMPLATES}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("VisibilityTimeout:", "VisibilityTimeOut:"),
        ("!GetAtt EventsQueue.Arn", "!GetAtt EventQueue.Arn"),
        ("Status: Enabled", "Status: Yes please"),
    ],
)
def test_cfn_lint_finds_a_planted_mistake(tmp_path: Path, right: str, wrong: str) -> None:
    text = file_of("target-region").read_text(encoding="utf-8")
    assert right in text
    planted = tmp_path / "planted.yaml"
    planted.write_text(text.replace(right, wrong), encoding="utf-8")
    assert findings(planted)
