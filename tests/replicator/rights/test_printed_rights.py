"""Rights with the names of a configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from formats.topic_selection import TopicPattern
from replicator.config import Config, parse
from replicator.config.load import from_mapping
from replicator.main import app
from replicator.rights.arns import queue_arn
from replicator.rights.config import policies_of
from replicator.rights.iam import ArchiveAccess, KeyAccess, key_statements, statements
from replicator.rights.kafka import Name, acls, name_of
from replicator.rights.table import IAM, KAFKA, OPTIONAL, ROLES
from tests.docs.markdown import ROOT

BY_NAME = {role.name: role for role in ROLES}
DEPLOYED = ROOT / "infra" / "deploy"


DELETES_ONLY = {"backfill": "leases", "verify": "proven", "doctor": "doctor"}


def deployed(name: str) -> Config:
    return parse((DEPLOYED / name).read_text(), source=name, environment={"KAFKA_PASSWORD": "x"})


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("orders", Name("orders")),
        ("^orders", Name("orders")),
        (r"^orders\.eu$", Name("orders.eu")),
        (r"^orders\..*", Name("orders.", is_prefix=True)),
        (r"^orders[.].+", Name("orders.", is_prefix=True)),
        ("^.*", Name("*")),
        (r"^orders\.[a-z]+", Name("orders.", is_prefix=True, broader=r"^orders\.[a-z]+")),
        (r"^orders?\..*", Name("order", is_prefix=True, broader=r"^orders?\..*")),
        ("^ab+c", Name("ab", is_prefix=True, broader="^ab+c")),
        ("^orders.*|bills", Name("*", broader="^orders.*|bills")),
        ("^a(b|c)", Name("a", is_prefix=True, broader="^a(b|c)")),
        (r"^\d+", Name("*", broader=r"^\d+")),
    ],
)
def test_the_name_of_an_expression(pattern: str, name: Name) -> None:
    assert name_of(TopicPattern(pattern)) == name


@given(st.from_regex(r"\^([a-c]|\\\.|\[\.\]|\.|\*|\+|\?|\(a\||b\)|\||\[ab\])*\Z"), st.text("abc.", max_size=6))
def test_no_topic_of_an_expression_is_without_its_rights(expression: str, topic: str) -> None:
    try:
        pattern = TopicPattern(expression)
    except ValueError:
        return
    name = name_of(pattern)
    if pattern.matches(topic):
        assert name.text == "*" or (topic.startswith(name.text) if name.is_prefix else topic == name.text)
    elif not name.broader and name.text not in ("*", topic):
        assert not name.is_prefix or not topic.startswith(name.text)


def test_every_row_is_of_a_role() -> None:
    named = {who for role in ROLES for who in (*role.kafka, *role.iam, *role.there)}
    rows = {one.who for one in KAFKA if one.on is not None} | {one.who for one in IAM}
    assert named == rows
    assert {f"`{one.who}`" for one in OPTIONAL} <= {role.kafka[0] for role in ROLES if role.kafka}


def test_egress_and_ingress_of_the_deployed_files() -> None:
    config = deployed("us-east-1.toml")
    assert [(one.kind, one.name.text, one.name.is_prefix) for one in acls(BY_NAME["egress"], config)] == [
        ("topic", "sensor.events", False),
        ("topic", "orders.", True),
        ("group", "replicator.egress", False),
    ]
    found = {(one.name.text, one.name.is_prefix): one.operations for one in acls(BY_NAME["ingress"], config)}
    assert found[("eu.orders.", True)] == ["READ", "WRITE", "CREATE", "ALTER", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"]
    assert found[("replicator.offsetmap", False)] == ["WRITE", "CREATE", "DESCRIBE_CONFIGS"]
    more = acls(BY_NAME["ingress"], config, optional=True)
    assert [(one.name.text, one.operations) for one in more if one.without] == [
        ("kafka-cluster", ["ALTER", "DESCRIBE"]),
        ("replicator.offsetmap", ["READ"]),
    ]


def statement(action: str, resource: str) -> Any:
    return {"Effect": "Allow", "Action": action.split(), "Resource": resource.split()}


def test_policies_of_the_deployed_files() -> None:
    config = deployed("eu-west-1.toml")
    here, there = "arn:aws:s3:::segments-eu-west-1", "arn:aws:s3:::segments-us-east-1"
    assert policies_of(BY_NAME["egress"], config)["s3"]["Statement"] == [
        statement("s3:ListBucket", here),
        statement("s3:AbortMultipartUpload s3:GetObject s3:PutObject", f"{here}/data/eu-west-1/*"),
    ]
    assert policies_of(BY_NAME["ingress"], config, "123456789012")["s3"]["Statement"] == [
        statement("s3:ListBucket", here),
        statement("s3:GetObject", f"{here}/data/us-east-1/*"),
        statement("s3:GetObject s3:PutObject", f"{here}/data/eu-west-1/_control/*"),
        statement(
            "sqs:DeleteMessage sqs:GetQueueUrl sqs:ReceiveMessage",
            "arn:aws:sqs:eu-west-1:123456789012:segments-eu-west-1-events",
        ),
    ]
    assert policies_of(BY_NAME["sync"], config)["sync.destination"]["Statement"] == [
        statement("s3:ListBucket", there),
        statement("s3:AbortMultipartUpload s3:GetObject s3:PutObject", f"{there}/data/eu-west-1/*"),
    ]


def test_what_no_role_may() -> None:
    """Egress deletes nothing, ingress writes no segment, verify and gc put control objects alone."""
    archive = ArchiveAccess(bucket_arn="B", prefix="p", region="r", sources=["s"], queue_arn="Q")
    for role in ROLES:
        for one in statements(role.iam, archive):
            deletes = "s3:DeleteObject" in one["Action"]
            assert not deletes or role.name in ("backfill", "compact", "doctor", "gc", "repair-segment", "verify")
            only_control = role.name in ("ingress", "verify", "repair", "gc", "status", "restore")
            if "s3:PutObject" in one["Action"] and only_control:
                assert all("/_control/" in resource for resource in one["Resource"]), role.name
            if (only := DELETES_ONLY.get(role.name)) and deletes:
                assert all(resource.endswith(f"/_control/v1/{only}/*") for resource in one["Resource"]), role.name


def test_verify_and_the_doctor_put_their_own_control_objects_alone() -> None:
    archive = ArchiveAccess(bucket_arn="B", prefix="p", region="r")
    puts = {
        role: {
            resource.partition("/_control/v1/")[2]
            for one in statements(BY_NAME[role].iam, archive)
            if "s3:PutObject" in one["Action"]
            for resource in one["Resource"]
        }
        for role in ("verify", "doctor")
    }
    assert puts == {"verify": {"proven/*"}, "doctor": {"doctor/*", "probe"}}


def test_another_regions_archive_is_compacted_from_below_the_own_region() -> None:
    archive = ArchiveAccess(bucket_arn="B", prefix="p", region="r", archives=["other"])
    for role, names in (("compact", {"probe", "compaction-runs/*", "heartbeats/*"}), ("gc", {"probe"})):
        resources = {one for each in statements(BY_NAME[role].iam, archive) for one in each["Resource"]}
        own = {one.removeprefix("B/p/r/_control/v1/") for one in resources if one.startswith("B/p/r/")}
        assert own == names
        assert "B/p/other/*" in resources
    alone = ArchiveAccess(bucket_arn="B", prefix="p", region="r")
    assert {one for each in statements(BY_NAME["compact"].iam, alone) for one in each["Resource"]} == {"B", "B/p/r/*"}


def test_a_key_of_the_account() -> None:
    archive = ArchiveAccess(bucket_arn="B", prefix="p", region="r", kms_key_arn="K")
    assert statements(["`egress`"], archive)[-1] == statement("kms:Decrypt kms:GenerateDataKey", "K")
    assert statements(BY_NAME["restore"].iam, archive)[-1] == statement("kms:Decrypt", "K")


def test_keys_of_encryption() -> None:
    """By those who read and put content; `sync` copies what is stored, and has none."""
    keys = KeyAccess(creates="K", reads=["L", "M"])
    both = [statement("kms:Decrypt kms:GenerateDataKey", "K"), statement("kms:Decrypt", "L M")]
    one = [statement("kms:Decrypt", "K"), statement("kms:Decrypt", "L M")]
    found = {role.name: key_statements(role.iam, keys) for role in ROLES}
    assert found == {
        **dict.fromkeys(found, both),
        **dict.fromkeys(("restore", "status"), one),
        "sync": [],
    }
    assert key_statements(BY_NAME["egress"].iam, KeyAccess()) == []


def test_keys_of_encryption_by_the_file() -> None:
    arn = "arn:aws:kms:us-east-1:123456789012:key"
    tables = {"key": "kms", "kms_key_id": f"{arn}/new", "kms_read_key_ids": [f"{arn}/old"]}
    base = {"region": "a", "s3": {"bucket": "b"}}
    policies = policies_of(BY_NAME["egress"], from_mapping({**base, "encryption": tables}))
    assert policies["encryption"]["Statement"] == [
        statement("kms:Decrypt kms:GenerateDataKey", f"{arn}/new"),
        statement("kms:Decrypt", f"{arn}/old"),
    ]
    moved = {"key": "file", "key_file": "/keys.toml", "kms_key_id": f"{arn}/new"}
    policies = policies_of(BY_NAME["egress"], from_mapping({**base, "encryption": moved}))
    assert policies["encryption"]["Statement"] == [statement("kms:Decrypt", f"{arn}/new")]
    assert set(policies_of(BY_NAME["egress"], from_mapping(base))) == {"s3"}


def test_locked_objects_need_a_right_of_their_own() -> None:
    archive = ArchiveAccess(bucket_arn="B", prefix="p", region="r", locks=True)
    puts = [one for one in statements(["`egress`"], archive) if "s3:PutObject" in one["Action"]]
    assert puts
    assert all("s3:PutObjectRetention" in one["Action"] for one in puts)
    assert "s3:PutObjectRetention" not in str(statements(["`restore`"], archive))


@pytest.mark.parametrize(
    ("queue", "arn"),
    [
        ("events", "arn:aws:sqs:eu-west-1:*:events"),
        ("https://sqs.us-east-1.amazonaws.com/123456789012/events", "arn:aws:sqs:us-east-1:123456789012:events"),
    ],
)
def test_the_arn_of_a_queue(queue: str, arn: str) -> None:
    config = parse(f'region = "r"\n[s3]\nbucket = "b"\n[sqs]\nqueue = "{queue}"\nregion_name = "eu-west-1"')
    assert config.sqs is not None
    assert queue_arn(config.sqs, "*") == arn


def run(*arguments: str) -> Any:
    file = str(DEPLOYED / "us-east-1.toml")
    return CliRunner(env={"KAFKA_PASSWORD": "x"}).invoke(app, ["rights", *arguments, "--config", file])


def test_the_forms_of_the_command() -> None:
    lines = run("egress", "--kafka-acls", "--principal", "User:{role}@corp").output.splitlines()
    assert lines[1].endswith(
        "--add --allow-principal User:egress@corp --operation Read --operation DescribeConfigs "
        "--topic orders. --resource-pattern-type prefixed"
    )
    policy = json.loads(run("compact", "--iam").output)
    assert policy["Version"] == "2012-10-17"
    found = json.loads(run("--json").output)
    assert set(found) == set(BY_NAME)
    assert found["compact"]["iam"]["s3"] == policy
    assert found["compact"]["kafka"] == []
    assert "optional; without it is left out: ACLs in the catalogue" in run("egress", "--optional").output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [(["egres"], "there is no role egres"), (["--iam"], "name it"), (["egress", "--iam", "--json"], "exclude each")],
)
def test_what_the_command_refuses(arguments: list[str], problem: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert problem in result.output


KEY_ID = "1234abcd-12ab-34cd-56ef-1234567890ab"


@pytest.mark.parametrize(
    ("key", "resource", "alias"),
    [
        (KEY_ID, f"arn:aws:kms:eu-west-1:123456789012:key/{KEY_ID}", None),
        ("alias/ours", "arn:aws:kms:eu-west-1:123456789012:key/*", "alias/ours"),
        (
            "arn:aws-cn:kms:cn-north-1:210987654321:alias/ours",
            "arn:aws-cn:kms:cn-north-1:210987654321:key/*",
            "alias/ours",
        ),
        (f"arn:aws:kms:us-east-1:1:key/{KEY_ID}", f"arn:aws:kms:us-east-1:1:key/{KEY_ID}", None),
    ],
    ids=["id", "alias", "ARN of an alias", "ARN of a key"],
)
def test_a_key_by_any_of_its_names(key: str, resource: str, alias: str | None) -> None:
    s3 = {"bucket": "b", "region_name": "eu-west-1", "sse": "aws:kms", "kms_key_id": key}
    found = policies_of(BY_NAME["egress"], from_mapping({"region": "r", "s3": s3}), "123456789012")
    condition = {} if alias is None else {"Condition": {"ForAnyValue:StringEquals": {"kms:ResourceAliases": alias}}}
    assert found["s3"]["Statement"][-1] == {**statement("kms:Decrypt kms:GenerateDataKey", resource), **condition}


@pytest.mark.parametrize(
    ("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov"), ("eu-west-1", "aws")]
)
def test_arns_are_of_the_regions_partition(region: str, partition: str) -> None:
    for tables in (
        {"region": region, "s3": {"bucket": "b"}},
        {"region": "r", "s3": {"bucket": "b", "region_name": region}},
    ):
        policy = policies_of(BY_NAME["egress"], from_mapping(tables))["s3"]["Statement"]
        resources = [one for each in policy for one in each["Resource"]]
        assert all(one.startswith(f"arn:{partition}:s3:::b") for one in resources), resources
    config = parse(f'region = "r"\n[s3]\nbucket = "b"\n[sqs]\nqueue = "q"\nregion_name = "{region}"')
    assert config.sqs is not None
    assert queue_arn(config.sqs, "*") == f"arn:{partition}:sqs:{region}:*:q"


def test_a_restore_writes_archived_topics_by_their_own_names() -> None:
    """And the destinations, where the archive of another region is restored."""
    config = deployed("us-east-1.toml")
    allowed = [
        one.name for one in acls(BY_NAME["restore"], config) if one.kind == "topic" and "WRITE" in one.operations
    ]
    assert allowed[:3] == [
        Name("sensor.events"),
        Name("orders.", is_prefix=True),
        Name("eu.orders.", is_prefix=True),
    ]
    (named, _) = [one for one in acls(BY_NAME["restore"], config, [Name("t")]) if one.kind == "topic"]
    assert named.name == Name("t")


def test_the_doctor_reads_dead_letter_queues() -> None:
    text = 'region = "r"\n[s3]\nbucket = "b"\n[sqs]\nqueue = "q"\nregion_name = "eu-west-1"'
    policy = policies_of(BY_NAME["doctor"], parse(text), "123456789012")["s3"]["Statement"]
    assert statement("sqs:GetQueueAttributes sqs:GetQueueUrl", "arn:aws:sqs:eu-west-1:123456789012:*") in policy


def test_a_segment_of_any_region_is_repaired() -> None:
    archive = ArchiveAccess(bucket_arn="B", prefix="p", region="r")
    assert statement("s3:AbortMultipartUpload s3:DeleteObject s3:GetObject s3:PutObject", "B/p/*/*") in statements(
        BY_NAME["repair-segment"].iam, archive
    )
    assert statement("s3:GetObject", "B/p/*/*") in statements(BY_NAME["repair-segment"].there, archive)
