"""Each bucket and queue with credentials of its own, on an AWS that judges each request by the policies of its keys."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import boto3
import pytest

from egress.bucket_sync import SyncResult
from formats.errors import ConfigError, QueueUnavailable, StoreRefused, StoreUnavailable
from infra.storage.aws import AssumedRole, AwsCredentials
from infra.storage.clients import role_credentials
from infra.storage.s3 import S3ObjectStore, make_s3_client
from infra.storage.sqs import SqsQueue, make_sqs_client
from replicator.config.load import from_mapping
from replicator.services.sync import build_sync
from tests.infra.enforced_aws import ACCOUNT, EnforcedAws, enforced_aws

pytestmark = pytest.mark.integration

REGION = "us-east-1"
OURS, THEIRS = "segments-ours", "segments-theirs"
OTHER_ACCOUNT = "222222222222"
WRITER = f"arn:aws:iam::{ACCOUNT}:role/writer"
EXTERNAL_ID = "kept-between-us"
KEY = "data/a/t/0/0/00000000000000000000-00000000000000000009"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnforcedAws]:
    with enforced_aws(tmp_path_factory.mktemp("aws")) as aws:
        yield aws


@pytest.fixture(scope="module")
def assuming(running: EnforcedAws) -> AwsCredentials:
    """Keys that may nothing but assume the role, which may write to their bucket."""
    for bucket in (OURS, THEIRS):
        running.admin("s3").create_bucket(Bucket=bucket)
    running.admin("sqs").create_queue(QueueName="events")
    keys = running.user("assuming", {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": WRITER})
    running.user("stranger", {"Effect": "Allow", "Action": "s3:ListAllMyBuckets", "Resource": "*"})
    trust = {
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:user/assuming"},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"sts:ExternalId": EXTERNAL_ID}},
    }
    rights = [
        {"Effect": "Allow", "Action": ["s3:PutObject", "s3:GetObject"], "Resource": f"arn:aws:s3:::{THEIRS}/*"},
        {"Effect": "Allow", "Action": ["s3:ListBucket", "s3:HeadBucket"], "Resource": f"arn:aws:s3:::{THEIRS}"},
        {"Effect": "Allow", "Action": "sqs:*", "Resource": "*"},
    ]
    iam = running.admin("iam")
    iam.create_role(RoleName="writer", AssumeRolePolicyDocument=document(trust))
    iam.put_role_policy(RoleName="writer", PolicyName="rights", PolicyDocument=document(*rights))
    return keys


def document(*statements: Any) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


@pytest.fixture
def aws(running: EnforcedAws, assuming: AwsCredentials, monkeypatch: pytest.MonkeyPatch) -> Iterator[EnforcedAws]:
    """In force. No process of the test has credentials of its environment."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", running.endpoint_url)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    running.enforce()
    yield running
    running.relax()


def put(aws: EnforcedAws, bucket: str, key: str, **arguments: Any) -> None:
    with closing(make_s3_client(endpoint_url=aws.endpoint_url, region_name=REGION, attempts=1, **arguments)) as client:
        S3ObjectStore(client, bucket).put_new(key, BytesIO(b"x"), 1)


def with_role(keys: AwsCredentials, **changes: Any) -> AwsCredentials:
    role = AssumedRole(**{"arn": WRITER, "external_id": EXTERNAL_ID, **changes})
    return AwsCredentials(access_key_id=keys.access_key_id, secret_access_key=keys.secret_access_key, role=role)


def test_the_keys_themselves_may_not_write(aws: EnforcedAws, assuming: AwsCredentials) -> None:
    with pytest.raises(StoreRefused, match=f"allow s3:PutObject on bucket {THEIRS}"):
        put(aws, THEIRS, "keys", credentials=assuming)


def test_a_role_is_assumed(aws: EnforcedAws, assuming: AwsCredentials) -> None:
    put(aws, THEIRS, "role", credentials=with_role(assuming))
    with pytest.raises(StoreRefused, match=f"allow s3:PutObject on bucket {OURS}"):
        put(aws, OURS, "role", credentials=with_role(assuming))


@pytest.mark.parametrize("changes", [{"external_id": "another"}, {"arn": f"arn:aws:iam::{ACCOUNT}:role/other"}])
def test_a_role_that_may_not_be_assumed(aws: EnforcedAws, assuming: AwsCredentials, changes: Any) -> None:
    with pytest.raises(StoreRefused, match=r"role_arn cannot be assumed: allow sts:AssumeRole.*external_id"):
        put(aws, THEIRS, "refused", credentials=with_role(assuming, **changes))


def test_a_role_of_a_queue(aws: EnforcedAws, assuming: AwsCredentials) -> None:
    def receive(credentials: AwsCredentials) -> Any:
        url = aws.endpoint_url
        with closing(make_sqs_client(endpoint_url=url, region_name=REGION, credentials=credentials)) as client:
            return SqsQueue(client, "events").receive(timedelta())

    assert receive(with_role(assuming)) == []
    with pytest.raises(QueueUnavailable, match="role_arn cannot be assumed"):
        receive(with_role(assuming, external_id="another"))
    with pytest.raises(QueueUnavailable, match="allow sqs:GetQueueUrl"):
        receive(assuming)


def test_keys_of_a_role_are_renewed_before_their_end(aws: EnforcedAws, assuming: AwsCredentials) -> None:
    at = datetime.now(UTC)
    source = boto3.Session(assuming.access_key_id, assuming.secret_access_key).get_credentials()
    role = AssumedRole(arn=WRITER, external_id=EXTERNAL_ID, duration=timedelta(hours=1))
    keys = role_credentials(role, source, REGION, now=lambda: at)
    first = keys.get_frozen_credentials()
    at += timedelta(minutes=40)
    assert keys.get_frozen_credentials() == first
    at += timedelta(minutes=6)  # 14 minutes before their end
    renewed = keys.get_frozen_credentials()
    assert renewed.access_key != first.access_key
    found = AwsCredentials(
        access_key_id=renewed.access_key, secret_access_key=renewed.secret_key, session_token=renewed.token
    )
    put(aws, THEIRS, "renewed", credentials=found)


def test_a_profile(aws: EnforcedAws, assuming: AwsCredentials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"
    file.write_text(
        f"[theirs]\naws_access_key_id = {assuming.access_key_id}\n"
        f"aws_secret_access_key = {assuming.secret_access_key}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    role = AssumedRole(arn=WRITER, external_id=EXTERNAL_ID)
    put(aws, THEIRS, "profile", credentials=AwsCredentials(profile="theirs", role=role))
    with pytest.raises(ConfigError, match=r"(?s)S3.*\(none\) could not be found"):
        put(aws, THEIRS, "profile2", credentials=AwsCredentials(profile="none"))
    with pytest.raises(ConfigError, match=r"(?s)SQS.*\(none\) could not be found"):
        make_sqs_client(region_name=REGION, credentials=AwsCredentials(profile="none"))


def test_a_role_without_credentials_to_assume_it(aws: EnforcedAws) -> None:
    with pytest.raises(StoreRefused, match="set the AWS credentials in the environment"):
        put(aws, THEIRS, "none", credentials=AwsCredentials(role=AssumedRole(arn=WRITER)))


class ErrorPage(BaseHTTPRequestHandler):
    """What a proxy, or a server that is overloaded, answers."""

    def do_POST(self) -> None:
        body = b"<!doctype html><title>500 Internal Server Error</title>"
        self.send_response(500)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("is_of_sts", [True, False])
def test_an_answer_that_is_none_is_no_refusal(
    aws: EnforcedAws, assuming: AwsCredentials, monkeypatch: pytest.MonkeyPatch, is_of_sts: bool
) -> None:
    """It may work later: a service goes on asking."""
    with ThreadingHTTPServer(("127.0.0.1", 0), ErrorPage) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            if is_of_sts:
                monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
            place = aws if is_of_sts else EnforcedAws(url)
            credentials = with_role(assuming) if is_of_sts else assuming
            with pytest.raises(StoreUnavailable) as caught:
                put(place, THEIRS, "unparsed", credentials=credentials)
            assert not isinstance(caught.value, StoreRefused)
        finally:
            server.shutdown()
            thread.join()


def test_sync_from_one_account_to_another(aws: EnforcedAws) -> None:
    """The source with the program's session, the destination with a role of the account that it is in."""
    with aws.relaxed():
        arn = f"arn:aws:iam::{OTHER_ACCOUNT}:role/receiver"
        may_read: Any = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": f"arn:aws:s3:::{OURS}/*"}
        may_list: Any = {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": f"arn:aws:s3:::{OURS}"}
        keys = aws.user("sender", may_read, may_list, {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": arn})
        aws.admin("s3").put_object(Bucket=OURS, Key=KEY, Body=b"records")
        there = in_other_account(aws)
        there["s3"].create_bucket(Bucket="segments-elsewhere")
        trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
        there["iam"].create_role(RoleName="receiver", AssumeRolePolicyDocument=document(trust))
        rights: Any = {
            "Effect": "Allow",
            "Action": ["s3:ListBucket", "s3:HeadBucket", "s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"],
            "Resource": ["arn:aws:s3:::segments-elsewhere", "arn:aws:s3:::segments-elsewhere/*"],
        }
        there["iam"].put_role_policy(RoleName="receiver", PolicyName="r", PolicyDocument=document(rights))
    bucket = {"endpoint_url": aws.endpoint_url, "region_name": REGION}
    destination = {**bucket, "bucket": "segments-elsewhere", "role_arn": arn, "external_id": EXTERNAL_ID}
    config = from_mapping(
        {"region": "a", "s3": {**bucket, "bucket": OURS}, "sync": {"destination": destination}}, source="test"
    )
    results: list[SyncResult] = []
    service = build_sync(config, once=results.append, session=boto3.Session(keys.access_key_id, keys.secret_access_key))
    service.start()
    service.join(timedelta(seconds=60))
    assert results[0].copied == 1
    with aws.relaxed():
        assert there["s3"].get_object(Bucket="segments-elsewhere", Key=KEY)["Body"].read() == b"records"
    for client in there.values():
        client.close()


def in_other_account(aws: EnforcedAws) -> dict[str, Any]:
    """Clients of another account's administrator."""
    root = f"arn:aws:iam::{OTHER_ACCOUNT}:role/administrator"
    keys = aws.admin("sts").assume_role(RoleArn=root, RoleSessionName="administrator")["Credentials"]
    session = boto3.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], REGION)
    return {name: session.client(name, endpoint_url=aws.endpoint_url) for name in ("s3", "iam")}
