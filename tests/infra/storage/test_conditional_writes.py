"""A bucket that lets objects be overwritten is detected before anything relies on it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from formats.control.keys import probe_key
from formats.errors import StoreUnavailable
from infra.contracts.storage import ObjectStore
from infra.local.aws import CREDENTIALS
from infra.local.stack import LocalStack
from infra.storage.aws import AwsCredentials
from infra.storage.conditional_writes import ProvenObjectStore
from infra.storage.memory_and_folder import MemoryObjectStore
from infra.storage.s3 import S3ObjectStore, S3PutOptions, make_s3_client
from infra.storage.s3_multipart import S3Uploads
from tests.contracts.store import KEY, StoreContract, get, put
from tests.infra.faulty_s3 import Answer, FaultyS3, faulty

PROBE = probe_key("data", "a")
BUCKET = "probed-bucket"
KEYS = AwsCredentials(
    access_key_id=CREDENTIALS["aws_access_key_id"], secret_access_key=CREDENTIALS["aws_secret_access_key"]
)


@pytest.mark.integration
class TestAsking:
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, stack: LocalStack) -> Iterator[FaultyS3]:
        with faulty(stack.moto.endpoint_url) as server:
            yield server

    @pytest.fixture(scope="class")
    @classmethod
    def client(cls, server: FaultyS3) -> Iterator[Any]:
        made = make_s3_client(
            endpoint_url=server.endpoint_url, region_name=CREDENTIALS["region_name"], credentials=KEYS, attempts=1
        )
        with closing(made) as client:
            client.create_bucket(Bucket=BUCKET)
            yield client

    @pytest.fixture(params=[S3PutOptions(), S3PutOptions(checksum_algorithm="", sse="AES256")])
    def store(self, request: pytest.FixtureRequest, client: Any, server: FaultyS3) -> Iterator[S3ObjectStore]:
        server.reset()
        client.delete_object(Bucket=BUCKET, Key=PROBE)
        yield S3ObjectStore(client, BUCKET, put_options=request.param)
        assert list(S3Uploads(client, BUCKET).list("")) == [], "an upload was not aborted"

    def test_a_store_that_honours_the_header(self, store: S3ObjectStore, server: FaultyS3) -> None:
        assert store.problem_of_conditional_writes(PROBE) == ""
        assert server.requests.count("PutObject") == 2
        first = store.stat(PROBE)
        server.reset()
        assert store.problem_of_conditional_writes(PROBE) == ""
        assert server.requests.count("PutObject") == 1, "the object of the first check is enough"
        second = store.stat(PROBE)
        assert first is not None
        assert second is not None
        assert (first.etag, first.modified_at) == (second.etag, second.modified_at)

    @pytest.mark.parametrize(
        "ignored", [["PutObject"], ["CompleteMultipartUpload"], ["PutObject", "CompleteMultipartUpload"]]
    )
    def test_a_store_that_ignores_the_header_is_named_with_the_remedy(
        self, store: S3ObjectStore, server: FaultyS3, ignored: list[str]
    ) -> None:
        for _ in range(2):  # also with the object of the first check
            server.unconditional = set(ignored)
            problem = store.problem_of_conditional_writes(PROBE)
            assert f"ignores If-None-Match in {' and '.join(ignored)}," in problem
            assert BUCKET in problem
            assert PROBE in problem
            assert server.endpoint_url in problem
            assert "conditional_writes = 'assume'" in problem

    def test_a_store_that_does_not_implement_the_header(self, store: S3ObjectStore, server: FaultyS3) -> None:
        server.fail("PutObject", *[Answer(501, "NotImplemented")] * 2)
        assert "ignores If-None-Match in PutObject," in store.problem_of_conditional_writes(PROBE)

    @pytest.mark.parametrize(
        "operation", ["PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"]
    )
    @pytest.mark.parametrize("answer", [Answer(503, "SlowDown"), Answer(403, "AccessDenied")])
    def test_an_error_raises(self, store: S3ObjectStore, server: FaultyS3, operation: str, answer: Answer) -> None:
        server.fail(operation, answer)
        with pytest.raises(StoreUnavailable, match=operation):
            store.problem_of_conditional_writes(PROBE)

    def test_a_concurrent_check_is_not_a_problem(self, store: S3ObjectStore, server: FaultyS3) -> None:
        server.fail("PutObject", Answer(409, "ConditionalRequestConflict"))
        assert store.problem_of_conditional_writes(PROBE) == ""


class Asked:
    """Returns the planned results, then no problem."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        answer = self.answers.pop(0) if self.answers else ""
        if isinstance(answer, Exception):
            raise answer
        return answer


class TestProvenStore(StoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        self.memory = MemoryObjectStore()
        return ProvenObjectStore(self.memory, Asked())

    def peek(self, key: str) -> bytes | None:
        return get(self.memory, key) if self.memory.stat(key) else None


def test_nothing_is_put_before_the_store_is_proven() -> None:
    memory, asked = MemoryObjectStore(), Asked("it overwrites", StoreUnavailable("no answer"))
    store = ProvenObjectStore(memory, asked)
    for reason in ("it overwrites", "no answer"):
        with pytest.raises(StoreUnavailable, match=reason):
            put(store, KEY)
        assert memory.stat(KEY) is None
        assert store.stat(KEY) is None, "reading needs no check"
    put(store, KEY)
    put(store, f"{KEY}1")
    assert store.problem() == ""
    assert asked.count == 3, "once is enough"


def test_the_check_runs_once_with_several_threads() -> None:
    asked = Asked()
    store = ProvenObjectStore(MemoryObjectStore(), asked)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: put(store, f"{KEY}{n}"), range(64)))
    assert asked.count == 1
