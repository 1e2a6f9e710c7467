"""Which statements of a bucket's policy hit a request of a role."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.doctor.bucket_policy import Caller, Cause, denials
from tests.examples import property_examples

ROLE = "arn:aws:sts::123456789012:assumed-role/replicator/session"
USER = "arn:aws:iam::123456789012:user/replicator"
BUCKET, OBJECTS = "arn:aws:s3:::ours", "arn:aws:s3:::ours/data/here/*"
CONTROL = "arn:aws:s3:::ours/data/here/_control/*"
NEEDED = [("s3:ListBucket", BUCKET), ("s3:GetObject", OBJECTS), ("s3:PutObject", OBJECTS), ("s3:PutObject", CONTROL)]
SSE, SSE_KEY = "s3:x-amz-server-side-encryption", "s3:x-amz-server-side-encryption-aws-kms-key-id"
ALL = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": [BUCKET, f"{BUCKET}/*"]}


def policy(*statements: Mapping[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def found(statement: Mapping[str, Any], caller: Caller) -> list[tuple[str, Cause]]:
    return [(one.action, one.cause) for one in denials(policy({**ALL, **statement}), NEEDED, caller)]


KNOWN = Caller(arn=ROLE)
LIST, GET, PUT = (("s3:ListBucket", Cause.ANY), ("s3:GetObject", Cause.ANY), ("s3:PutObject", Cause.ANY))


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ({}, LIST),
        ({"Effect": "Allow"}, None),
        ({"Action": ["s3:Get*", "s3:PutBucketPolicy"]}, GET),
        ({"Action": "S3:PUTOBJECT"}, PUT),
        ({"Action": "s3:DeleteObject"}, None),
        ({"Action": ["s3:GetBucketPolicy", "s3:PutBucketPolicy"]}, None),
        ({"NotAction": ["s3:List*", "s3:Get*"], "Action": None}, PUT),
        ({"NotAction": "s3:*", "Action": None}, None),
        ({"Resource": BUCKET}, LIST),
        ({"Resource": f"{BUCKET}/*"}, GET),
        ({"Resource": "*"}, LIST),
        ({"Resource": "arn:aws-cn:s3:::ours/data/*"}, GET),
        ({"Resource": f"{BUCKET}/data/here/_control/v1/claims/*"}, GET),
        ({"Resource": f"{BUCKET}/data/there/*"}, None),
        ({"Resource": f"{BUCKET}/logs/*"}, None),
        ({"Resource": "arn:aws:s3:::ours2/*"}, None),
        ({"NotResource": f"{BUCKET}/*", "Resource": None}, LIST),
        ({"NotResource": [BUCKET, f"{BUCKET}/data/*"], "Resource": None}, None),
    ],
    ids=str,
)
def test_what_is_denied_to_everyone(statement: Mapping[str, Any], expected: tuple[str, Cause] | None) -> None:
    given = {key: value for key, value in {**ALL, **statement}.items() if value is not None}
    hit = [(one.action, one.cause) for one in denials(policy(given), NEEDED, Caller())]
    assert hit == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("principal", "is_hit"),
    [
        ({"Principal": {"AWS": "*"}}, True),
        ({"Principal": {"AWS": "arn:aws:iam::123456789012:role/replicator"}}, True),
        (
            {
                "Principal": {
                    "AWS": ["arn:aws:iam::123456789012:role/x", "arn:aws:iam::123456789012:role/team/replicator"]
                }
            },
            True,
        ),
        ({"Principal": {"AWS": "arn:aws:iam::210987654321:role/replicator"}}, False),
        ({"Principal": {"AWS": "arn:aws:iam::123456789012:role/replicator-2"}}, False),
        ({"Principal": {"AWS": "123456789012"}}, True),
        ({"Principal": {"AWS": "arn:aws:iam::123456789012:root"}}, True),
        ({"Principal": {"AWS": USER}}, False),
        ({"Principal": {"Service": "s3.amazonaws.com"}}, False),
        ({"NotPrincipal": {"AWS": "arn:aws:iam::123456789012:role/replicator"}}, False),
        ({"NotPrincipal": {"AWS": "arn:aws:iam::123456789012:role/admin"}}, True),
        ({"Condition": {"ArnNotLike": {"aws:PrincipalArn": ["arn:aws:iam::*:role/admin"]}}}, True),
        ({"Condition": {"ArnNotLike": {"aws:PrincipalArn": ["arn:aws:iam::*:role/repl*"]}}}, False),
        ({"Condition": {"StringEquals": {"aws:PrincipalArn": "arn:aws:iam::123456789012:role/replicator"}}}, True),
        ({"Condition": {"StringNotEquals": {"aws:PrincipalAccount": ["123456789012"]}}}, False),
        ({"Condition": {"StringNotEquals": {"aws:PrincipalAccount": "210987654321"}}}, True),
    ],
    ids=str,
)
def test_whom_a_statement_is_about(principal: Mapping[str, Any], *, is_hit: bool) -> None:
    given = {
        key: value
        for key, value in {**ALL, **principal}.items()
        if key != "Principal" or "NotPrincipal" not in principal
    }
    assert bool(list(denials(policy(given), NEEDED, KNOWN))) == is_hit
    everyone = principal.get("Principal") == {"AWS": "*"}
    assert bool(list(denials(policy(given), NEEDED, Caller()))) == everyone, "of a caller that is not known"


def test_a_user_is_no_role() -> None:
    about = {"Principal": {"AWS": USER}}
    assert found(about, Caller(arn=USER)) == [LIST]
    assert found({"Principal": {"AWS": "arn:aws:iam::123456789012:role/replicator"}}, Caller(arn=USER)) == []


@pytest.mark.parametrize(
    ("condition", "caller", "cause"),
    [
        ({"Bool": {"aws:SecureTransport": "false"}}, Caller(), None),
        ({"Bool": {"aws:SecureTransport": False}}, Caller(is_tls=False), Cause.NO_TLS),
        ({"BoolIfExists": {"AWS:securetransport": "false"}}, Caller(is_tls=False), Cause.NO_TLS),
        ({"Null": {SSE: "true"}}, Caller(), Cause.NOT_ENCRYPTED),
        ({"Null": {SSE: "true"}}, Caller(sse="AES256"), None),
        ({"StringNotEquals": {SSE: "aws:kms"}}, Caller(), Cause.NOT_ENCRYPTED),
        ({"StringNotEquals": {SSE: "aws:kms"}}, Caller(sse="AES256"), Cause.NOT_ENCRYPTED),
        ({"StringNotEquals": {SSE: ["aws:kms", "AES256"]}}, Caller(sse="AES256"), None),
        ({"StringNotEqualsIfExists": {SSE_KEY: "k"}}, Caller(sse="aws:kms", key_id="other"), Cause.NOT_ENCRYPTED),
        ({"StringNotEquals": {SSE_KEY: "k"}}, Caller(sse="aws:kms", key_id="k"), None),
        ({"StringEquals": {SSE: "AES256"}}, Caller(), None),
        ({"NotIpAddress": {"aws:SourceIp": "10.0.0.0/8"}}, Caller(), None),
        ({"StringNotEquals": {"aws:SourceVpce": "vpce-1"}}, Caller(), None),
        ({"StringNotEquals": {"aws:SourceVpce": "vpce-1", SSE: "aws:kms"}}, Caller(), None),
        ({"ForAllValues:StringEquals": {SSE: "x"}}, Caller(), None),
        ({"Null": {SSE: "true"}, "Bool": {"aws:SecureTransport": "true"}}, Caller(), Cause.NO_TLS),
    ],
    ids=str,
)
def test_conditions_of_a_put(condition: Mapping[str, Any], caller: Caller, cause: Cause | None) -> None:
    """What cannot be judged from here is not denied."""
    statement = {"Action": "s3:PutObject", "Condition": condition}
    assert found(statement, caller) == ([] if cause is None else [("s3:PutObject", cause)])


def test_a_read_has_no_header_of_an_encryption() -> None:
    """AWS takes the key of a condition for absent: such a statement denies reads, too."""
    statement = {"Action": "s3:GetObject", "Condition": {"StringNotEquals": {SSE: "aws:kms"}}}
    assert found(statement, Caller(sse="aws:kms")) == [("s3:GetObject", Cause.NOT_ENCRYPTED)]


def test_statements_are_named() -> None:
    text = policy({**ALL, "Effect": "Allow"}, ALL, {**ALL, "Sid": "Mine"})
    assert [one.statement for one in denials(text, NEEDED, Caller())] == ["number 2", "Mine"]
    assert list(denials("", NEEDED, Caller())) == []
    assert list(denials(json.dumps({"Statement": ALL}), NEEDED, Caller())) != []
    with pytest.raises(ValueError, match="Expecting"):
        list(denials("{", NEEDED, Caller()))


VALUES = st.sampled_from(["*", "s3:*", "s3:Get*", "s3:PutObject", "s3:ListBucket", "s3:DeleteObject"])
CONDITIONS = st.dictionaries(
    st.sampled_from(["Bool", "Null", "StringNotEquals", "StringEquals", "StringLikeIfExists", "IpAddress"]),
    st.dictionaries(
        st.sampled_from(["aws:SecureTransport", SSE, "aws:PrincipalArn", "aws:SourceIp"]),
        st.sampled_from(["true", "false", "aws:kms", "AES256", "arn:aws:iam::123456789012:role/replicator"]),
        max_size=2,
    ),
    max_size=2,
)
STATEMENTS = st.fixed_dictionaries(
    {
        "Effect": st.sampled_from(["Deny", "Allow"]),
        "Principal": st.sampled_from(["*", {"AWS": ROLE}, {"AWS": USER}]),
        "Action": VALUES | st.lists(VALUES, max_size=3),
        "Resource": st.sampled_from(["*", BUCKET, f"{BUCKET}/*", f"{BUCKET}/other/*"]),
        "Condition": CONDITIONS,
    }
)
CALLERS = st.builds(
    Caller, arn=st.sampled_from(["", ROLE, USER]), is_tls=st.booleans(), sse=st.sampled_from([None, "aws:kms"])
)


@property_examples()
@given(st.lists(STATEMENTS, max_size=4), CALLERS)
def test_conditions_only_ever_spare(statements: list[dict[str, Any]], caller: Caller) -> None:
    """And what allows denies nothing; nothing fails, whatever a statement has."""
    hit = {one.statement for one in denials(policy(*statements), NEEDED, caller)}
    plain = {
        one.statement for one in denials(policy(*({**one, "Condition": {}} for one in statements)), NEEDED, caller)
    }
    assert hit <= plain
    allows = {f"number {n}" for n, one in enumerate(statements, start=1) if one["Effect"] == "Allow"}
    assert not plain & allows
