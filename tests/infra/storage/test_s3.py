from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest
from botocore.stub import Stubber
from hypothesis import given
from hypothesis import strategies as st

from formats.control.claim import TopicClaim
from formats.errors import SegmentExists, SegmentNotFound, StoreRefused, StoreUnavailable
from infra.archive.compare_objects import CopyState, Likeness, Located, ObjectComparison, compare, likeness
from infra.archive.control import ControlStore
from infra.local.aws import CREDENTIALS
from infra.local.ports import HOST, free_ports
from infra.settings.storage import MAX_PARTS
from infra.storage.aws import READ_TIMEOUT, AwsCredentials
from infra.storage.s3 import S3ObjectStore, S3PutOptions, make_s3_client
from infra.storage.s3_body import Slice, part_ranges
from infra.storage.s3_multipart import S3Uploads
from infra.storage.s3_reader import open_object
from replicator.config import S3Settings
from replicator.services.wiring import s3_store
from tests.contracts.store import KEY, StoreContract, get, put
from tests.infra.faulty_s3 import Answer, Cut, Fault, FaultyS3, Garble, Hang, Lose, faulty
from tests.infra.real_s3 import versitygw

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

    from infra.local.stack import LocalStack

MIB = 1024 * 1024
PART = 5 * MIB
KEYS = AwsCredentials(
    access_key_id=CREDENTIALS["aws_access_key_id"], secret_access_key=CREDENTIALS["aws_secret_access_key"]
)
LARGE = random.Random(1).randbytes(2 * PART + 12_345)


def client_of(endpoint_url: str, **options: Any) -> S3Client:
    return make_s3_client(
        endpoint_url=endpoint_url, region_name=CREDENTIALS["region_name"], credentials=KEYS, attempts=1, **options
    )


@contextmanager
def hooked(client: S3Client, event: str, hook: Callable[..., None]) -> Iterator[None]:
    client.meta.events.register(event, hook)
    try:
        yield
    finally:
        client.meta.events.unregister(event, hook)


def pages_of(count: int, client: S3Client) -> AbstractContextManager[None]:
    """Sets the number of keys per page of listings."""

    def limit(params: dict[str, Any], **_: object) -> None:
        params["MaxKeys"] = count

    return hooked(client, "provide-client-params.s3.ListObjectsV2", limit)


class S3Contract(StoreContract):
    """Behaviour of S3 stores beyond the contract. Subclasses provide the fixture `endpoint_url` with scope "class"."""

    @pytest.fixture(scope="class")
    @classmethod
    def shared_client(cls, endpoint_url: str) -> Iterator[S3Client]:
        """Class scope: creating a client takes longer than most tests."""
        with closing(client_of(endpoint_url)) as client:
            yield client

    @pytest.fixture
    def store(self, shared_client: S3Client, unique: Callable[[str], str]) -> S3ObjectStore:
        self.client, self.bucket = shared_client, unique("bucket")
        self.client.create_bucket(Bucket=self.bucket)
        return S3ObjectStore(self.client, self.bucket, part_size_bytes=PART)

    def peek(self, key: str) -> bytes | None:
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=key).get("Contents", [])
        if key not in [item["Key"] for item in found]:
            return None
        return self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def uploads(self) -> list[Any]:
        return list(self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", []))

    def test_a_large_object_is_uploaded_in_parts(self, store: S3ObjectStore) -> None:
        put(store, KEY, LARGE)
        assert self.peek(KEY) == LARGE
        stat = store.stat(KEY)
        assert stat is not None
        assert stat.etag.endswith('-3"')
        assert self.uploads() == []

    def test_a_large_object_does_not_replace_another(self, store: S3ObjectStore) -> None:
        put(store, KEY, b"one")
        with pytest.raises(SegmentExists, match=KEY):
            put(store, KEY, LARGE)
        assert self.peek(KEY) == b"one"
        assert self.uploads() == []

    def test_an_incomplete_upload_is_found_and_aborted(self, store: S3ObjectStore) -> None:
        uploads = S3Uploads(self.client, self.bucket)
        assert list(uploads.list("data/")) == []
        for key in ("data/b", "data/a", "other"):
            self.client.create_multipart_upload(Bucket=self.bucket, Key=key)
        found = sorted(uploads.list("data/"), key=lambda upload: upload.key)
        assert [upload.key for upload in found] == ["data/a", "data/b"]
        # moto returns 2010
        assert all(upload.initiated_at < datetime.now(UTC) + timedelta(minutes=1) for upload in found)
        uploads.abort(found[0])
        uploads.abort(found[0])
        assert {upload["Key"] for upload in self.uploads()} == {"data/b", "other"}

    def test_copies_with_other_part_sizes_are_equal_and_a_flipped_bit_is_not(self, store: S3ObjectStore) -> None:
        """The ETags of the copies differ."""
        put(store, KEY, LARGE)
        at_once = S3ObjectStore(self.client, self.bucket, part_size_bytes=3 * PART)
        put(at_once, f"{KEY}-copy", LARGE)
        bad = LARGE[:PART] + bytes([LARGE[PART] ^ 1]) + LARGE[PART + 1 :]
        self.client.put_object(Bucket=self.bucket, Key=f"{KEY}-bad", Body=bad)  # by another tool
        put(at_once, f"{KEY}-cut", LARGE[:-1])
        original = Located(store, KEY)
        assert compare(original, Located(store, f"{KEY}-copy")) == ObjectComparison(CopyState.SAME)
        found = compare(original, Located(store, f"{KEY}-bad"))
        assert found == ObjectComparison(CopyState.DIFFERENT, f"the same size, and other bytes from byte {PART} on")
        assert compare(original, Located(store, f"{KEY}-cut")).state is CopyState.DIFFERENT

    def test_conditional_writes_are_honoured(self, store: S3ObjectStore) -> None:
        for _ in range(2):
            assert store.problem_of_conditional_writes(f"{KEY}-probe") == ""
        assert self.uploads() == []

    def test_a_large_object_is_read_anywhere(self, store: S3ObjectStore) -> None:
        put(store, KEY, LARGE)
        with closing(open_object(self.client, self.bucket, KEY, tail_bytes=MIB)) as file:
            assert read_anywhere(file, LARGE, random.Random(2), rounds=40)
            file.seek(0)
            assert file.read() == LARGE

    def test_a_large_object_that_is_replaced_is_not_mixed(self, store: S3ObjectStore) -> None:
        put(store, KEY, LARGE)
        with closing(open_object(self.client, self.bucket, KEY, tail_bytes=MIB)) as file:
            assert file.read(10) == LARGE[:10]
            self.client.put_object(Bucket=self.bucket, Key=KEY, Body=bytes(len(LARGE)))
            file.seek(PART)
            with pytest.raises(SegmentNotFound, match=KEY):
                file.read(10)

    def test_a_large_object_that_is_deleted_is_not_found(self, store: S3ObjectStore) -> None:
        put(store, KEY, LARGE)
        with closing(open_object(self.client, self.bucket, KEY, tail_bytes=MIB)) as file:
            store.delete_many([KEY])
            with pytest.raises(SegmentNotFound, match=KEY):
                file.read(10)

    def test_a_missing_bucket_is_not_an_absent_object(self, store: S3ObjectStore) -> None:
        elsewhere = S3ObjectStore(self.client, f"{self.bucket}-not", part_size_bytes=PART)
        for call in every_call(elsewhere):
            with pytest.raises(StoreRefused, match=f"bucket {self.bucket}-not does not exist"):
                call()

    def test_a_listing_of_many_pages(self, store: S3ObjectStore) -> None:
        keys = [f"k/{number} +%" for number in range(7)]
        for key in keys:
            put(store, key)
        with pages_of(3, self.client):
            assert [info.key for info in store.list("k/")] == keys
            assert [info.key for info in store.list("k/", start_after=keys[1])] == keys[2:]


def read_anywhere(file: BinaryIO, data: bytes, choose: random.Random, *, rounds: int) -> bool:
    """Check that seeks and reads of all sizes return `data`; about half of the reads are sequential."""
    position = file.tell()
    for _ in range(rounds):
        if choose.random() < 0.5:
            position = choose.choice([choose.randrange(len(data) + 10), len(data) - choose.randrange(100)])
            assert file.seek(position) == position
        size = choose.choice([1, 100, 70_000, 300_000, 3 * MIB])
        got = file.read(size)
        if got != data[position : position + size]:
            return False
        position += len(got)
    return True


def every_call(store: S3ObjectStore, *, stat: bool = True) -> list[Callable[[], object]]:
    return [
        lambda: list(store.list("")),
        lambda: store.folders(""),
        lambda: store.open(KEY),
        lambda: put(store, KEY),
        lambda: put(store, KEY, LARGE),
        lambda: store.delete_many([KEY]),
        *([lambda: store.stat(KEY)] if stat else []),
    ]


@pytest.mark.integration
class TestS3StoreOnMoto(S3Contract):
    @pytest.fixture(scope="class")
    @classmethod
    def endpoint_url(cls, stack: LocalStack) -> str:
        return stack.moto.endpoint_url

    def test_put_options_reach_the_store(self, store: S3ObjectStore) -> None:
        options = S3PutOptions(storage_class="STANDARD_IA", sse="aws:kms", kms_key_id="alias/archive")
        store = S3ObjectStore(self.client, self.bucket, put_options=options, part_size_bytes=PART)
        for key, data in (("small", b"x"), ("large", LARGE)):
            put(store, key, data)
            head = self.client.head_object(Bucket=self.bucket, Key=key)
            assert head["StorageClass"] == "STANDARD_IA"
            assert head["ServerSideEncryption"] == "aws:kms"
            assert head["SSEKMSKeyId"].endswith("alias/archive")

    def test_the_archives_storage_class_is_for_segments_only(self, store: S3ObjectStore) -> None:
        """Control objects in an archive class would be unreadable, and with them the archive."""
        settings = S3Settings(
            bucket=self.bucket,
            endpoint_url=self.client.meta.endpoint_url,
            region_name=CREDENTIALS["region_name"],
            access_key_id=KEYS.access_key_id,
            secret_access_key=KEYS.secret_access_key,
            storage_class="GLACIER",
        )
        claim = TopicClaim(topic_id="id", cluster_id="c", number=0, claimed_at=datetime.now(UTC))
        with ExitStack() as resources:
            objects = s3_store(settings, 1, resources)
            ControlStore(objects, settings.prefix).claims.record("a", "t", claim)
            put(objects, "data/a/t/0/0/segment", b"x")
            assert ControlStore(objects, settings.prefix).claims.of("a", "t") == claim
        head = self.client.head_object(Bucket=self.bucket, Key="data/a/t/0/0/segment")
        assert head["StorageClass"] == "GLACIER"

    def test_equal_content_is_recognised_by_its_checksum(self, store: S3ObjectStore) -> None:
        put(store, KEY, LARGE)
        put(S3ObjectStore(self.client, self.bucket, part_size_bytes=3 * PART), f"{KEY}-copy", LARGE)
        here, there = store.stat(KEY), store.stat(f"{KEY}-copy")
        assert here is not None
        assert there is not None
        assert here.etag != there.etag
        assert likeness(here, there) is Likeness.SAME

    def test_a_checksum_is_stored(self, store: S3ObjectStore) -> None:
        put(store, "small", b"123456789")
        head = self.client.head_object(Bucket=self.bucket, Key="small", ChecksumMode="ENABLED")
        assert head["ChecksumCRC64NVME"] == "rosUhgp5mIg="  # the check value of CRC-64/NVME

    def test_bodies_of_files(self, store: S3ObjectStore, tmp_path: Path) -> None:
        path = tmp_path / "segment"
        path.write_bytes(LARGE)
        with path.open("rb") as file:
            store.put_new("large", file, len(LARGE))
            store.put_new("small", file, 1000)
            assert not file.closed
        assert self.peek("large") == LARGE
        assert self.peek("small") == LARGE[:1000]


@pytest.mark.real_s3
class TestS3StoreOnServer(S3Contract):
    keys_may_be_folders = False

    @pytest.fixture(scope="class")
    @classmethod
    def endpoint_url(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        with versitygw(tmp_path_factory.mktemp("versitygw")) as url:
            yield url

    def test_a_wrong_signature_is_for_the_operator(self, store: S3ObjectStore, endpoint_url: str) -> None:
        wrong = AwsCredentials(access_key_id=KEYS.access_key_id, secret_access_key="wrong")
        with (
            closing(make_s3_client(endpoint_url=endpoint_url, region_name="us-east-1", credentials=wrong)) as client,
            pytest.raises(StoreRefused, match=r"SignatureDoesNotMatch.*repair the credentials"),
        ):
            S3ObjectStore(client, self.bucket).open(KEY)


def test_a_page_that_is_truncated_without_a_token_is_not_the_end() -> None:
    first = {"IsTruncated": True, "Contents": [{"Key": KEY, "Size": 1, "LastModified": datetime.now(UTC)}]}
    with closing(client_of("http://localhost:1")) as client, Stubber(client) as stub:
        store = S3ObjectStore(client, "b")
        stub.add_response("list_objects_v2", first)
        found = store.list("")
        assert next(found).key == KEY
        with pytest.raises(StoreUnavailable, match="truncated, without a token"):
            next(found)
        stub.add_response("list_objects_v2", {"IsTruncated": True, "CommonPrefixes": [{"Prefix": "t/"}]})
        with pytest.raises(StoreUnavailable, match="truncated, without a token"):
            store.folders("")


def test_an_answer_that_is_no_listing_is_not_an_empty_archive() -> None:
    """Such as one without a body, or the page of another server: the client finds no object in either."""
    empty: dict[str, Any] = {"IsTruncated": False, "Name": "b", "KeyCount": 0}
    with closing(client_of("http://localhost:1")) as client, Stubber(client) as stub:
        store = S3ObjectStore(client, "b")
        calls: Sequence[Callable[[], object]] = (lambda: list(store.list("data/")), lambda: store.folders("data/"))
        for call in calls:
            stub.add_response("list_objects_v2", {})
            with pytest.raises(StoreUnavailable, match=r"list s3://b/data/: the answer is no listing"):
                call()
            stub.add_response("list_objects_v2", empty)
            assert call() == []


UPLOAD = {"UploadId": "u"}
PART_STORED = {"ETag": '"e"'}


@pytest.mark.parametrize(
    ("data", "answers", "operation"),
    [
        (b"one", [("put_object", {})], "PutObject"),
        (b"", [("put_object", {})], "PutObject"),
        (LARGE, [("create_multipart_upload", {})], "CreateMultipartUpload"),
        (LARGE, [("create_multipart_upload", UPLOAD), ("upload_part", {})], "UploadPart"),
        (
            LARGE,
            [
                ("create_multipart_upload", UPLOAD),
                *[("upload_part", PART_STORED)] * 3,
                ("complete_multipart_upload", {}),
            ],
            "CompleteMultipartUpload",
        ),
    ],
    ids=["whole", "empty", "begin", "part", "end"],
)
def test_an_answer_that_names_no_object_does_not_say_that_it_is_stored(
    data: bytes, answers: Sequence[tuple[str, dict[str, Any]]], operation: str
) -> None:
    """Of a gateway, such as one without a body: it would be committed at the source, and be nowhere."""
    with closing(client_of("http://localhost:1")) as client, Stubber(client) as stub:
        store = S3ObjectStore(client, "b", part_size_bytes=PART)
        for method, answer in answers:
            stub.add_response(method, answer)
        if operation not in ("PutObject", "CreateMultipartUpload"):
            stub.add_response("abort_multipart_upload", {})
        with pytest.raises(StoreUnavailable, match=rf"{operation} s3://b/{KEY}: the answer has no (ETag|UploadId)"):
            put(store, KEY, data)
        stub.assert_no_pending_responses()


def test_a_store_that_cannot_be_reached_names_the_setting() -> None:
    with closing(client_of(f"http://{HOST}:{free_ports(1)[0]}")) as client, pytest.raises(StoreUnavailable) as caught:
        S3ObjectStore(client, "bucket").open(KEY)
    assert "check the endpoint_url in the configuration" in str(caught.value)


# --- faults on the wire ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Proxied:
    wire: FaultyS3
    direct: S3Client  # without the proxy
    patient: S3Client
    impatient: S3Client  # for hanging requests


@pytest.mark.integration
class TestFaults:
    """Typed results of faults, and the contents of the store afterwards."""

    @pytest.fixture(scope="class")
    @classmethod
    def proxied(cls, stack: LocalStack) -> Iterator[Proxied]:
        """Class scope: creating clients takes longer than most tests."""
        with (
            faulty(stack.moto.endpoint_url) as wire,
            closing(client_of(stack.moto.endpoint_url)) as direct,
            closing(client_of(wire.endpoint_url, read_timeout=READ_TIMEOUT)) as patient,
            closing(client_of(wire.endpoint_url, read_timeout=timedelta(seconds=1))) as impatient,
        ):
            yield Proxied(wire, direct, patient, impatient)

    @pytest.fixture
    def wire(self, proxied: Proxied, unique: Callable[[str], str]) -> Iterator[FaultyS3]:
        self.direct, self.client, self.impatient = proxied.direct, proxied.patient, proxied.impatient
        self.bucket = unique("bucket")
        self.direct.create_bucket(Bucket=self.bucket)
        yield proxied.wire
        proxied.wire.reset()

    @pytest.fixture
    def store(self, wire: FaultyS3) -> S3ObjectStore:
        return self.through(self.client)

    def through(self, client: S3Client) -> S3ObjectStore:
        return S3ObjectStore(client, self.bucket, part_size_bytes=PART)

    def stored(self) -> dict[str, int]:
        found = self.direct.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return {item["Key"]: item["Size"] for item in found}

    def uploads(self) -> list[Any]:
        return list(self.direct.list_multipart_uploads(Bucket=self.bucket).get("Uploads", []))

    CONFLICT = Answer(409, "ConditionalRequestConflict")

    @pytest.mark.parametrize("data", [b"one", LARGE], ids=["whole", "parts"])
    def test_a_conflict_is_tried_again_from_the_start(self, wire: FaultyS3, store: S3ObjectStore, data: bytes) -> None:
        for operation in ("PutObject", "CompleteMultipartUpload"):
            wire.fail(operation, self.CONFLICT, self.CONFLICT)
        put(store, KEY, data)
        assert get(store, KEY) == data
        assert self.uploads() == []
        assert wire.requests.count("CreateMultipartUpload") == wire.requests.count("CompleteMultipartUpload")

    @pytest.mark.parametrize("data", [b"one", LARGE], ids=["whole", "parts"])
    def test_retries_of_conflicts_are_limited(self, wire: FaultyS3, store: S3ObjectStore, data: bytes) -> None:
        for operation in ("PutObject", "CompleteMultipartUpload"):
            wire.fail(operation, *[self.CONFLICT] * 10)
        with pytest.raises(StoreUnavailable, match="conflicting write"):
            put(store, KEY, data)
        assert self.stored() == {}
        assert self.uploads() == []

    @pytest.mark.parametrize("data", [b"one", LARGE], ids=["whole", "parts"])
    def test_a_taken_key(self, wire: FaultyS3, store: S3ObjectStore, data: bytes) -> None:
        for operation in ("PutObject", "CompleteMultipartUpload"):
            wire.fail(operation, Answer(412, "PreconditionFailed"))
        with pytest.raises(SegmentExists, match=KEY):
            put(store, KEY, data)
        assert self.stored() == {}
        assert self.uploads() == []

    TROUBLE: tuple[Fault, ...] = (
        Answer(500, "InternalError"),
        Answer(503, "SlowDown"),
        Answer(503, "ServiceUnavailable"),
        Answer(404, "NoSuchUpload"),
        Answer(404, "NoSuchBucket"),
        Answer(404, "SomethingElse"),
        Answer(403, "AccessDenied"),
        Answer(403, "InvalidObjectState"),
        Answer(400, "ExpiredToken"),
        Answer(302, "Moved"),
    )

    @pytest.mark.parametrize("fault", TROUBLE, ids=str)
    def test_a_failure_never_looks_like_an_absent_object(
        self, wire: FaultyS3, store: S3ObjectStore, fault: Fault
    ) -> None:
        for operation in ("ListObjectsV2", "GetObject", "PutObject", "CreateMultipartUpload", "DeleteObjects"):
            wire.fail(operation, *[fault] * 10)
        for call in every_call(store, stat=False):
            with pytest.raises(StoreUnavailable, match=self.bucket):
                call()
        assert self.stored() == {}
        assert self.uploads() == []

    def test_a_store_that_hangs(self, wire: FaultyS3) -> None:
        wire.fail("GetObject", Hang())
        wire.fail("PutObject", Hang())
        store = self.through(self.impatient)
        with pytest.raises(StoreUnavailable, match=r"GetObject.*ReadTimeoutError"):
            store.open(KEY)
        with pytest.raises(StoreUnavailable, match=r"PutObject.*ReadTimeoutError"):
            put(store, KEY)
        assert self.stored() == {}

    @pytest.mark.parametrize("fault", [Answer(500, ""), Answer(403, ""), Lose()], ids=str)
    def test_stat_with_faults(self, wire: FaultyS3, store: S3ObjectStore, fault: Fault) -> None:
        wire.fail("HeadObject", fault)
        with pytest.raises(StoreUnavailable, match=KEY):
            store.stat(KEY)
        wire.fail("HeadBucket", fault)
        with pytest.raises(StoreUnavailable, match="HeadBucket"):
            store.stat(KEY)
        assert store.stat(KEY) is None

    @pytest.mark.parametrize(
        ("operation", "data"), [("PutObject", b"one"), ("CompleteMultipartUpload", LARGE)], ids=["whole", "parts"]
    )
    def test_a_put_whose_answer_is_lost_may_have_succeeded(
        self, wire: FaultyS3, store: S3ObjectStore, operation: str, data: bytes
    ) -> None:
        wire.fail(operation, Lose())
        with pytest.raises(StoreUnavailable, match=KEY):
            put(store, KEY, data)
        with pytest.raises(SegmentExists):
            put(store, KEY, data)
        assert get(store, KEY) == data
        assert self.uploads() == []

    @pytest.mark.parametrize("fault", [Answer(503, "SlowDown"), Lose()], ids=str)
    def test_a_part_that_fails_aborts_the_upload(self, wire: FaultyS3, store: S3ObjectStore, fault: Fault) -> None:
        wire.fail("UploadPart", None, fault)
        with pytest.raises(StoreUnavailable, match="UploadPart"):
            put(store, KEY, LARGE)
        assert wire.requests.count("UploadPart") == 2
        assert self.uploads() == []
        assert self.stored() == {}

    def test_an_abort_that_fails_hides_nothing(
        self, wire: FaultyS3, store: S3ObjectStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        wire.fail("UploadPart", Answer(403, "AccessDenied"))
        wire.fail("AbortMultipartUpload", Answer(500, "InternalError"))
        with pytest.raises(StoreRefused, match=r"UploadPart.*AccessDenied.*allow s3:PutObject"):
            put(store, KEY, LARGE)
        assert [(record.levelno, record.message) for record in caplog.records if record.name == "infra.storage.s3"] == [
            (logging.WARNING, "multipart_abort_failed")
        ]

    def test_a_body_that_fails_aborts_the_upload(self, wire: FaultyS3, store: S3ObjectStore) -> None:
        class Broken(BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                if self.tell() >= PART:
                    raise KeyboardInterrupt
                return super().read(size)

        with pytest.raises(KeyboardInterrupt):
            store.put_new(KEY, Broken(LARGE), len(LARGE))
        assert self.uploads() == []
        assert self.stored() == {}

    def test_failed_deletes_are_named(self, wire: FaultyS3, store: S3ObjectStore) -> None:
        put(store, KEY)

        def refuse(parsed: dict[str, Any], **_: object) -> None:
            parsed["Errors"] = [{"Key": KEY, "Code": "AccessDenied", "Message": "no"}]

        with (
            hooked(self.client, "after-call.s3.DeleteObjects", refuse),
            pytest.raises(StoreRefused, match=rf"1 keys refused.*{KEY}.*s3:DeleteObject"),
        ):
            store.delete_many([KEY, "b"])

    def test_a_listing_that_fails_is_not_a_short_one(self, wire: FaultyS3, store: S3ObjectStore) -> None:
        for number in range(4):
            put(store, f"k/{number}")
        wire.fail("ListObjectsV2", None, Answer(503, "SlowDown"))
        with pages_of(2, self.client):
            listing = store.list("k/")
            assert [next(listing).key, next(listing).key] == ["k/0", "k/1"]
            with pytest.raises(StoreUnavailable):
                next(listing)
        wire.fail("ListObjectsV2", Cut(100))
        with pytest.raises(StoreUnavailable):
            list(store.list("k/"))

    @pytest.mark.parametrize("fault", [Cut(0), Cut(3), Garble()], ids=str)
    def test_a_small_corrupt_body_is_requested_again(self, wire: FaultyS3, store: S3ObjectStore, fault: Fault) -> None:
        put(store, KEY, b"123456789")
        wire.fail("GetObject", fault, fault)
        assert get(store, KEY) == b"123456789"
        wire.fail("GetObject", *[fault] * 10)
        with pytest.raises(StoreUnavailable, match=KEY):
            store.open(KEY)

    def test_a_large_truncated_body_is_resumed(self, wire: FaultyS3) -> None:
        put(self.through(self.direct), KEY, LARGE)
        with closing(open_object(self.impatient, self.bucket, KEY, tail_bytes=MIB)) as file:
            slow_down = Answer(503, "SlowDown")
            wire.fail("GetObject", Cut(0), Cut(1), Cut(100_000), Hang(), slow_down, Cut(70_000), None, Lose())
            assert file.read() == LARGE
            file.seek(0)
            wire.fail("GetObject", Cut(5000), None, Cut(100_000), None, Cut(1))
            assert read_anywhere(file, LARGE, random.Random(3), rounds=10)

    @pytest.mark.parametrize(
        "fault", [Cut(0), Lose(), Answer(500, "InternalError"), Answer(403, "AccessDenied")], ids=str
    )
    def test_a_large_body_that_never_arrives(self, wire: FaultyS3, fault: Fault) -> None:
        put(self.through(self.direct), KEY, LARGE)
        with closing(open_object(self.client, self.bucket, KEY, tail_bytes=MIB)) as file:
            wire.fail("GetObject", *[fault] * 30)
            with pytest.raises(StoreUnavailable, match=KEY):
                file.read(10)
            wire.fail("GetObject")
            assert file.read(10) == LARGE[:10]  # the file's position is unchanged

    def test_connections_are_reused(self, wire: FaultyS3) -> None:
        put(self.through(self.direct), KEY, LARGE)
        with closing(open_object(self.client, self.bucket, KEY, tail_bytes=MIB)) as file:
            while file.read(100_000):
                pass
        assert wire.requests.count("GetObject") > 5
        assert wire.connections <= 1

    def test_sequential_reads_take_fewer_and_fewer_requests(self, wire: FaultyS3) -> None:
        put(self.through(self.direct), KEY, LARGE)
        with closing(open_object(self.client, self.bucket, KEY, tail_bytes=MIB)) as file:
            while file.read(1000):
                pass
        assert wire.requests.count("GetObject") <= 9


def test_no_server_listens() -> None:
    with closing(client_of("http://127.0.0.1:1")) as client:
        for call in every_call(S3ObjectStore(client, "b", part_size_bytes=PART)):
            with pytest.raises(StoreUnavailable, match="s3://b"):
                call()


def test_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with (
        closing(make_s3_client(endpoint_url="http://127.0.0.1:1", region_name="us-east-1")) as client,
        pytest.raises(StoreRefused, match="set the AWS credentials"),
    ):
        put(S3ObjectStore(client, "b"), KEY)


def test_secrets_are_not_shown() -> None:
    shown = repr(AwsCredentials(access_key_id="AKIA", secret_access_key="hush", session_token="token"))
    assert "AKIA" in shown
    assert "hush" not in shown
    assert "token=" not in shown


def test_contradictory_options_are_rejected() -> None:
    with pytest.raises(ValueError, match="KMS"):
        S3PutOptions(kms_key_id="k")
    with pytest.raises(ValueError, match="KMS"):
        S3PutOptions(sse="AES256", kms_key_id="k")


# --- parts -----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 10**13), st.integers(PART, 100 * MIB))
def test_parts_cover_the_body_and_are_few_enough(size_bytes: int, part_size_bytes: int) -> None:
    parts = list(part_ranges(size_bytes, part_size_bytes))
    assert 1 <= len(parts) <= MAX_PARTS
    ends = [start + length for start, length in parts]
    assert [start for start, _ in parts] == [0, *ends[:-1]]
    assert ends[-1] == size_bytes
    assert len({length for _, length in parts[:-1]}) <= 1
    assert all(length >= min(part_size_bytes, size_bytes) for _, length in parts[:-1])


@given(st.binary(max_size=50), st.integers(0, 60), st.integers(0, 60), st.data())
def test_a_slice_behaves_like_a_file_of_its_bytes(data: bytes, start: int, length: int, choose: st.DataObject) -> None:
    whole = BytesIO(data)
    same = BytesIO(data[start : start + length])
    part = Slice(whole, start, len(same.getbuffer()))
    for _ in range(10):
        whole.seek(choose.draw(st.integers(0, 50)))  # other readers move the position
        if choose.draw(st.booleans()):
            offset, whence = choose.draw(
                st.one_of(st.tuples(st.integers(0, 60), st.just(0)), st.tuples(st.integers(-10, 0), st.just(2)))
            )
            if whence == 2:
                offset = max(offset, -len(part))
            assert part.seek(offset, whence) == same.seek(offset, whence)
        else:
            size = choose.draw(st.none() | st.integers(-1, 20))
            assert part.read(size) == same.read(size)
        assert part.tell() == same.tell()
    part.close()
    assert not whole.closed
