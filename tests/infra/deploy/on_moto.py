"""Deploys a template into moto, and then what moto's CloudFormation leaves out, from the same template.

Each type of resource and each of its properties has a row here. One without a row fails: nothing of a template is
skipped without a word.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.infra.deploy.template import Template, file_of
from tests.infra.enforced_aws import EnforcedAws, as_moto_asks

Properties = Mapping[str, Any]
OnMoto = Callable[["Applying", Any], None] | None  # None: moto's CloudFormation does it


class NotKnown(AssertionError):
    """A property of a template that nothing applies."""


class Applying:
    """One resource of a template."""

    def __init__(self, aws: EnforcedAws, template: Template, properties: Properties) -> None:
        self.aws, self.template, self.properties = aws, template, properties

    def client(self, service: str) -> Any:
        return self.aws.admin(service, self.template.region)

    @property
    def bucket(self) -> Mapping[str, str]:
        return {"Bucket": self.properties.get("BucketName") or self.properties["Bucket"]}


def deploy(aws: EnforcedAws, template: Template) -> None:
    """A stack that is there is replaced by one with these parameters, and what it made stays."""
    resources = list(template.resources())
    for name, kind, properties in resources:
        if kind not in KNOWN:
            raise NotKnown(f"{name}: nothing knows {kind}")
        if unknown := set(properties) - set(KNOWN[kind]):
            raise NotKnown(f"{name}: nothing applies {', '.join(sorted(unknown))} of {kind}")
    parameters = [{"ParameterKey": name, "ParameterValue": value} for name, value in template.parameters.items()]
    aws.admin("cloudformation", template.region).create_stack(
        StackName=template.stack,
        TemplateBody=file_of(template.name).read_text(encoding="utf-8"),
        Parameters=parameters,
        Capabilities=["CAPABILITY_NAMED_IAM"],
    )
    for _, kind, properties in sorted(resources, key=lambda one: ORDER.index(one[1])):
        applying = Applying(aws, template, properties)
        for name, apply in KNOWN[kind].items():
            if name in properties and apply is not None:
                apply(applying, properties[name])


def _versioning(one: Applying, value: Properties) -> None:
    one.client("s3").put_bucket_versioning(**one.bucket, VersioningConfiguration=_only(value, "Status"))


def _object_lock(one: Applying, value: Any) -> None:
    assert value is True
    one.client("s3").put_object_lock_configuration(
        **one.bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled"}
    )


def _public_access(one: Applying, value: Properties) -> None:
    one.client("s3").put_public_access_block(**one.bucket, PublicAccessBlockConfiguration=value)


def _ownership(one: Applying, value: Properties) -> None:
    one.client("s3").put_bucket_ownership_controls(**one.bucket, OwnershipControls=value)


def _lifecycle(one: Applying, value: Properties) -> None:
    rules = [_rule(rule) for rule in _only(value, "Rules")["Rules"]]
    one.client("s3").put_bucket_lifecycle_configuration(**one.bucket, LifecycleConfiguration={"Rules": rules})


def _rule(rule: Properties) -> Properties:
    known = ("Id", "Status", "Prefix", "AbortIncompleteMultipartUpload", "NoncurrentVersionExpiration")
    _only(rule, *known, "ExpiredObjectDeleteMarker", "ObjectSizeGreaterThan", "Transitions")
    found: dict[str, Any] = {"ID": rule["Id"], "Status": rule["Status"], "Filter": {"Prefix": rule["Prefix"]}}
    if "ObjectSizeGreaterThan" in rule:
        size = int(rule["ObjectSizeGreaterThan"])
        found["Filter"] = {"And": {"Prefix": rule["Prefix"], "ObjectSizeGreaterThan": size}}
    if "AbortIncompleteMultipartUpload" in rule:
        found["AbortIncompleteMultipartUpload"] = _only(rule["AbortIncompleteMultipartUpload"], "DaysAfterInitiation")
    if "NoncurrentVersionExpiration" in rule:
        days = int(_only(rule["NoncurrentVersionExpiration"], "NoncurrentDays")["NoncurrentDays"])
        found["NoncurrentVersionExpiration"] = {"NoncurrentDays": days}
    if rule.get("ExpiredObjectDeleteMarker"):
        found["Expiration"] = {"ExpiredObjectDeleteMarker": True}
    if "Transitions" in rule:
        moves = [_only(move, "StorageClass", "TransitionInDays") for move in rule["Transitions"]]
        found["Transitions"] = [
            {"StorageClass": move["StorageClass"], "Days": int(move["TransitionInDays"])} for move in moves
        ]
    return found


def _notifications(one: Applying, value: Properties) -> None:
    queues = []
    for queue in _only(value, "QueueConfigurations")["QueueConfigurations"]:
        rules = _only(_only(_only(queue, "Event", "Queue", "Filter")["Filter"], "S3Key")["S3Key"], "Rules")["Rules"]
        filtered = {"Key": {"FilterRules": [_only(rule, "Name", "Value") for rule in rules]}}
        queues.append({"QueueArn": queue["Queue"], "Events": [queue["Event"]], "Filter": filtered})
    one.client("s3").put_bucket_notification_configuration(
        **one.bucket, NotificationConfiguration={"QueueConfigurations": queues}
    )


def _replication(one: Applying, value: Properties) -> None:
    rules = []
    for rule in _only(value, "Role", "Rules")["Rules"]:
        known = ("Id", "Status", "Priority", "Filter", "DeleteMarkerReplication", "Destination")
        _only(rule, *known, "SourceSelectionCriteria")
        _only(rule["Destination"], "Bucket", "EncryptionConfiguration", "ReplicationTime", "Metrics")
        rules.append({"ID": rule["Id"], **{key: part for key, part in rule.items() if key != "Id"}})
    one.client("s3").put_bucket_replication(
        **one.bucket, ReplicationConfiguration={"Role": value["Role"], "Rules": rules}
    )


def _bucket_policy(one: Applying, value: Properties) -> None:
    """Read back, and taken away: moto does not judge conditions, and would take every request for one without TLS."""
    s3 = one.client("s3")
    s3.put_bucket_policy(**one.bucket, Policy=json.dumps(value))
    assert json.loads(s3.get_bucket_policy(**one.bucket)["Policy"]) == value
    s3.delete_bucket_policy(**one.bucket)


def _queue_policy(one: Applying, value: Properties) -> None:
    sqs = one.client("sqs")
    for queue in one.properties["Queues"]:
        url = sqs.get_queue_url(QueueName=queue.rpartition("/")[2])["QueueUrl"]
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(value)})


def _trust(one: Applying, value: Properties) -> None:
    """Again: moto keeps a statement that is left out (AWS::NoValue) as null."""
    one.client("iam").update_assume_role_policy(RoleName=one.properties["RoleName"], PolicyDocument=json.dumps(value))


def _role_policies(one: Applying, value: Any) -> None:
    """Again, with what moto asks for in place of AWS's actions."""
    for policy in value:
        _only(policy, "PolicyName", "PolicyDocument")
        put_policy(one.aws, one.properties["RoleName"], policy["PolicyDocument"]["Statement"], policy["PolicyName"])


def put_policy(aws: EnforcedAws, role: str, statements: Any, name: str) -> None:
    document = {"Version": "2012-10-17", "Statement": [part for one in statements for part in as_moto_asks(one)]}
    aws.admin("iam").put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=json.dumps(document))


def _alarm(one: Applying, _: Any) -> None:
    numbers = {key: float(one.properties[key]) for key in ("Threshold",)}
    whole = {key: int(one.properties[key]) for key in ("Period", "EvaluationPeriods")}
    name = f"{one.template.stack}-{one.properties['MetricName']}"
    one.client("cloudwatch").put_metric_alarm(AlarmName=name, **{**one.properties, **numbers, **whole})


def _only(value: Properties, *known: str) -> Properties:
    if unknown := set(value) - set(known):
        raise NotKnown(f"nothing applies {', '.join(sorted(unknown))}")
    return value


KNOWN: Mapping[str, Mapping[str, OnMoto]] = {
    "AWS::SQS::Queue": dict.fromkeys(
        ("QueueName", "SqsManagedSseEnabled", "VisibilityTimeout", "MessageRetentionPeriod", "RedrivePolicy")
    ),
    "AWS::SQS::QueuePolicy": {"Queues": None, "PolicyDocument": _queue_policy},
    "AWS::IAM::Role": {
        **dict.fromkeys(("RoleName", "Description")),
        "AssumeRolePolicyDocument": _trust,
        "Policies": _role_policies,
    },
    "AWS::S3::Bucket": {
        "BucketName": None,
        "BucketEncryption": None,
        "VersioningConfiguration": _versioning,
        "ObjectLockEnabled": _object_lock,
        "PublicAccessBlockConfiguration": _public_access,
        "OwnershipControls": _ownership,
        "LifecycleConfiguration": _lifecycle,
        "NotificationConfiguration": _notifications,
        "ReplicationConfiguration": _replication,
    },
    "AWS::S3::BucketPolicy": {"Bucket": None, "PolicyDocument": _bucket_policy},
    "AWS::CloudWatch::Alarm": {
        **dict.fromkeys(
            (
                *("AlarmDescription", "Namespace", "Dimensions", "Statistic", "Period", "EvaluationPeriods"),
                *("Threshold", "ComparisonOperator", "TreatMissingData", "AlarmActions"),
            )
        ),
        "MetricName": _alarm,
    },
}
ORDER = tuple(KNOWN)  # a bucket tests whether it may send to its queue
