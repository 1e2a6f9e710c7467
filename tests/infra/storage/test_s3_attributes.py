"""Attributes of requests: encryption by the server, Object Lock, and whose bucket it has to be, as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import pytest

from egress.sync_steps import SyncStep
from formats.errors import ConfigError, SegmentExists, StoreRefused, StoreUnavailable
from formats.segment import format_key
from infra.local.aws import CREDENTIALS
from infra.runtime.lifecycle import Stop
from replicator.config import S3Settings
from replicator.config.load import from_mapping
from replicator.services.sync_task import CopyTask, bucket_sync
from replicator.services.wiring import s3_cold, s3_store, s3_uploads
from tests.contracts.store import get, put
from tests.fakes.key_files import encrypted_around
from tests.formats.sample_records import SOURCE, segment
from tests.infra.faulty_s3 import Answer, FaultyS3, Lose, faulty
from tests.infra.storage.test_s3 import LARGE, PART, client_of

if TYPE_CHECKING:
    from infra.local.stack import LocalStack

ACCOUNT = "123456789012"  # moto's
SEGMENT = format_key("data", segment(0, 9))
CLAIM, HEARTBEAT = (
    "data/eu-west-1/_control/v1/places/orders",
    "data/eu-west-1/_control/v1/heartbeat/00000000000000000001",
)
LEASE, PROBE = "data/eu-west-1/_control/v1/leases/compaction/00000000000000000001", "data/eu-west-1/_control/v1/probe"
KEY_ARN = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
WRITES = {"PutObject", "CreateMultipartUpload"}  # the requests that attributes of an object belong to

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def proxy(stack: LocalStack) -> Iterator[FaultyS3]:
    with faulty(stack.moto.endpoint_url) as made:
        yield made


@pytest.fixture
def wire(proxy: FaultyS3) -> FaultyS3:
    proxy.reset()
    return proxy


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def settings(wire: FaultyS3, opened: ExitStack, unique: Callable[[str], str]) -> S3Settings:
    bucket = unique("bucket")
    client = client_of(wire.endpoint_url)
    opened.callback(client.close)
    client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    wire.reset()
    return S3Settings(
        bucket=bucket,
        endpoint_url=wire.endpoint_url,
        region_name=CREDENTIALS["region_name"],
        access_key_id=CREDENTIALS["aws_access_key_id"],
        secret_access_key=CREDENTIALS["aws_secret_access_key"],
        part_size=PART,
    )


def sent(wire: FaultyS3, header: str) -> dict[str, set[str | None]]:
    """Values of a header by operation; None: without it."""
    found: dict[str, set[str | None]] = {}
    for operation, headers in wire.headers:
        found.setdefault(operation, set()).add(headers.get(header))
    return found


def test_encryption_by_the_server_is_asked_for_with_each_object(
    wire: FaultyS3, settings: S3Settings, opened: ExitStack
) -> None:
    store = s3_store(replace(settings, sse="aws:kms", kms_key_id=KEY_ARN, bucket_key=True), 1, opened, once=True)
    put(store, SEGMENT)
    put(store, f"{SEGMENT}0", LARGE)
    put(store, CLAIM)
    assert store.problem_of_conditional_writes(PROBE) == ""
    for header, value in (
        ("x-amz-server-side-encryption", "aws:kms"),
        ("x-amz-server-side-encryption-aws-kms-key-id", KEY_ARN),
        ("x-amz-server-side-encryption-bucket-key-enabled", "true"),
    ):
        found = sent(wire, header)
        assert {operation for operation, values in found.items() if values == {value}} == WRITES, header
        assert all(values == {None} for operation, values in found.items() if operation not in WRITES), header
    assert sent(wire, "if-none-match")["PutObject"] == {"*"}
    assert sent(wire, "if-none-match")["CompleteMultipartUpload"] == {"*"}


def test_encryption_with_the_servers_own_keys(wire: FaultyS3, settings: S3Settings, opened: ExitStack) -> None:
    store = s3_store(replace(settings, sse="AES256"), 1, opened, once=True)
    put(store, SEGMENT)
    assert sent(wire, "x-amz-server-side-encryption") == {"PutObject": {"AES256"}}
    assert sent(wire, "x-amz-server-side-encryption-bucket-key-enabled") == {"PutObject": {None}}


@pytest.mark.parametrize("mode", ["GOVERNANCE", "COMPLIANCE"])
def test_new_objects_are_locked_from_when_they_are_put(
    wire: FaultyS3, settings: S3Settings, opened: ExitStack, mode: Literal["GOVERNANCE", "COMPLIANCE"]
) -> None:
    locked = replace(settings, object_lock_mode=mode, object_lock_retention=timedelta(days=30))
    store = s3_store(locked, 1, opened, once=True)
    put(store, SEGMENT)
    put(store, f"{SEGMENT}0", LARGE)
    put(store, CLAIM)
    assert sent(wire, "x-amz-object-lock-mode")["PutObject"] == {mode}
    assert sent(wire, "x-amz-object-lock-mode")["CreateMultipartUpload"] == {mode}
    until = sent(wire, "x-amz-object-lock-retain-until-date")
    for operation in WRITES:
        for text in until[operation]:
            assert text is not None
            left = datetime.fromisoformat(text).astimezone(UTC) - datetime.now(UTC)
            assert timedelta(days=30) - timedelta(minutes=10) < left <= timedelta(days=30, seconds=1)
    # S3 refuses a lock without a checksum
    assert None not in sent(wire, "x-amz-sdk-checksum-algorithm")["PutObject"]


def test_objects_about_the_bucket_itself_are_not_locked(
    wire: FaultyS3, settings: S3Settings, opened: ExitStack
) -> None:
    """Leases and heartbeats come every few seconds, and are deleted."""
    locked = replace(settings, object_lock_mode="GOVERNANCE", object_lock_retention=timedelta(days=1))
    store = s3_store(locked, 1, opened, once=True)
    for key in (HEARTBEAT, LEASE):
        put(store, key)
    assert store.problem_of_conditional_writes(PROBE) == ""
    assert sent(wire, "x-amz-object-lock-mode")["PutObject"] == {None}
    assert sent(wire, "x-amz-object-lock-mode")["CreateMultipartUpload"] == {None}


def test_a_delete_of_a_locked_object_leaves_its_version(
    wire: FaultyS3, settings: S3Settings, opened: ExitStack
) -> None:
    """What `gc` and `compact` do with Object Lock: the key is gone, and its bytes are stored until the lock ends."""
    locked = replace(settings, object_lock_mode="COMPLIANCE", object_lock_retention=timedelta(days=1))
    store = s3_store(locked, 1, opened, once=True)
    put(store, SEGMENT, b"locked")
    store.delete_many([SEGMENT])
    assert store.stat(SEGMENT) is None
    assert list(store.list("")) == []
    client = client_of(wire.endpoint_url)
    opened.callback(client.close)
    versions = client.list_object_versions(Bucket=settings.bucket)
    assert [one["Key"] for one in versions["DeleteMarkers"]] == [SEGMENT]
    (version,) = versions["Versions"]
    with pytest.raises(client.exceptions.ClientError, match="AccessDenied"):
        client.delete_object(Bucket=settings.bucket, Key=SEGMENT, VersionId=version["VersionId"])
    put(store, SEGMENT, b"again")
    assert get(store, SEGMENT) == b"again"


def test_every_request_says_whose_bucket_it_is_for(wire: FaultyS3, settings: S3Settings, opened: ExitStack) -> None:
    owned = replace(settings, expected_bucket_owner=ACCOUNT)
    store = s3_store(owned, 1, opened, once=True)
    assert store.problem_of_conditional_writes(PROBE) == ""
    put(store, SEGMENT)
    put(store, f"{SEGMENT}0", LARGE * 3)
    with pytest.raises(SegmentExists):
        put(store, SEGMENT)
    assert get(store, f"{SEGMENT}0") == LARGE * 3
    assert len(list(store.list("", limit=1))) == 1
    assert store.stat(SEGMENT) is not None
    assert store.stat("absent") is None
    s3_cold(owned, Stop(), opened).state(SEGMENT)
    uploads = s3_uploads(owned, opened)
    client = client_of(wire.endpoint_url)
    opened.callback(client.close)
    client.create_multipart_upload(Bucket=settings.bucket, Key="left", ExpectedBucketOwner=ACCOUNT)
    (left,) = uploads.list("")
    uploads.abort(left)
    store.delete_many([SEGMENT])
    found = sent(wire, "x-amz-expected-bucket-owner")
    assert found == {operation: {ACCOUNT} for operation in found}
    assert {"PutObject", "UploadPart", "CompleteMultipartUpload", "GetObject", "HeadObject", "HeadBucket"} < set(found)
    assert {"ListObjectsV2", "DeleteObjects", "AbortMultipartUpload", "CreateMultipartUpload"} < set(found)


def test_without_the_setting_no_request_has_it(wire: FaultyS3, settings: S3Settings, opened: ExitStack) -> None:
    store = s3_store(settings, 1, opened, once=True)
    put(store, SEGMENT)
    get(store, SEGMENT)
    found = sent(wire, "x-amz-expected-bucket-owner")
    assert found == {operation: {None} for operation in found}


def test_a_refusal_names_the_setting(wire: FaultyS3, settings: S3Settings, opened: ExitStack) -> None:
    store = s3_store(replace(settings, expected_bucket_owner="210987654321"), 1, opened, once=True)
    wire.fail("PutObject", Answer(403, "AccessDenied"))
    with pytest.raises(StoreRefused, match="if expected_bucket_owner is set, see that the bucket is of that account"):
        put(store, SEGMENT)


def test_the_destination_of_sync_has_its_own(wire: FaultyS3, settings: S3Settings, opened: ExitStack) -> None:
    """Attributes of both buckets in one process, each with its own."""
    here = s3_store(settings, 1, opened, once=True)
    put(here, SEGMENT, LARGE)
    access: dict[str, Any] = {
        "endpoint_url": settings.endpoint_url,
        "region_name": settings.region_name,
        "access_key_id": settings.access_key_id,
        "secret_access_key": settings.secret_access_key,
        "part_size": PART,
        "bucket": settings.bucket,
    }
    there = {
        "prefix": "copies",
        "sse": "aws:kms",
        "kms_key_id": KEY_ARN,
        "object_lock_mode": "GOVERNANCE",
        "object_lock_retention": "7d",
        "expected_bucket_owner": ACCOUNT,
    }
    config = from_mapping({"region": SOURCE.region, "s3": access, "sync": {"destination": access | there}})
    wire.reset()
    assert bucket_sync(config, Stop(), opened).once().copied == 1
    writes = {"CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"}
    owners = sent(wire, "x-amz-expected-bucket-owner")
    assert all(owners[operation] == {ACCOUNT} for operation in writes)
    assert owners["GetObject"] == {None}
    assert sent(wire, "x-amz-object-lock-mode")["CreateMultipartUpload"] == {"GOVERNANCE"}
    assert sent(wire, "x-amz-server-side-encryption")["CreateMultipartUpload"] == {"aws:kms"}


def test_a_task_of_sync_names_what_it_refused(wire: FaultyS3, settings: S3Settings, opened: ExitStack) -> None:
    put(s3_store(settings, 1, opened, once=True), SEGMENT)
    access = {
        "endpoint_url": settings.endpoint_url,
        "region_name": settings.region_name,
        "access_key_id": settings.access_key_id,
        "secret_access_key": settings.secret_access_key,
        "bucket": settings.bucket,
    }
    encryption = {"key": "kms", "kms_key_id": KEY_ARN, "clear_objects": "refuse"}
    sync = {"destination": access | {"prefix": "copies"}}
    task = CopyTask(from_mapping({"region": SOURCE.region, "s3": access, "sync": sync, "encryption": encryption}))
    name = SEGMENT.removeprefix("data/")
    outcome = task.outcome(task(task.row([SyncStep(name, is_copy=True)])))
    assert (outcome.done, outcome.failed, outcome.in_clear) == ([], [name], [f"copies/{name}"])


def test_an_encrypted_object_goes_in_parts_and_comes_by_ranges(
    wire: FaultyS3, settings: S3Settings, opened: ExitStack
) -> None:
    """Larger than what one request fetches; the end is read first, as a Parquet reader does."""
    store = encrypted_around(s3_store(settings, 1, opened, once=True))
    wire.fail("UploadPart", None, Lose())
    with pytest.raises(StoreUnavailable):
        put(store, SEGMENT, LARGE)
    put(store, SEGMENT, LARGE)
    with pytest.raises(SegmentExists):
        put(store, SEGMENT, LARGE)
    wire.reset()
    with closing(store.open(SEGMENT)) as file:
        assert wire.requests == ["GetObject"], "nothing is requested for the envelope alone"
        assert file.seek(-1000, 2) == len(LARGE) - 1000
        assert file.read() == LARGE[-1000:]
        assert wire.requests == ["GetObject"]
        file.seek(0)
        assert file.read() == LARGE
    assert set(wire.requests) == {"GetObject"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"bucket_key": True}, 'bucket_key: needs sse = "aws:kms"'),
        ({"object_lock_mode": "GOVERNANCE"}, "object_lock_mode: and object_lock_retention need each other"),
        ({"object_lock_retention": "1d"}, "object_lock_mode: and object_lock_retention need each other"),
        (
            {"object_lock_mode": "COMPLIANCE", "object_lock_retention": "1h"},
            "object_lock_retention: must be at least 1d",
        ),
        ({"object_lock_mode": "LEGAL"}, "object_lock_mode: must be"),
        ({"expected_bucket_owner": "1234"}, "expected_bucket_owner: must be an account of 12 digits"),
    ],
)
def test_contradictions(given: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        from_mapping({"region": "a", "s3": {"bucket": "b", **given}})
