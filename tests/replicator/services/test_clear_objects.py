"""A round of `sync` where objects in clear are refused: the error names and counts them, and so does a metric."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import pytest

from egress.bucket_sync import BucketSide, BucketSync
from formats.errors import StoreUnavailable
from infra.runtime.lifecycle import Stop
from infra.settings.encryption import EncryptionSettings
from infra.storage.encryption_mark import MARK
from replicator.services.clear_objects import NAMED, ClearObjects
from replicator.services.encryption import sealed_only
from replicator.services.sync import one_round
from tests.fakes.surroundings import CountedMetrics, FailingStore, HandClock

REFUSES = EncryptionSettings(key="kms", kms_key_id="arn:aws:kms:us-east-1:123456789012:key/k", clear_objects="refuse")


def name(start: int) -> str:
    return f"a/t/0/0/{start:020d}-{start:020d}"


class Buckets:
    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.here, self.there = FailingStore(HandClock()), FailingStore(HandClock())
        self.metrics, self.stop = CountedMetrics(), Stop()
        self.clear = ClearObjects("copies", self.metrics)
        sides = BucketSide(self.here, "data"), BucketSide(sealed_only(self.there, REFUSES, self.clear.refuse), "copies")
        self.sync = BucketSync("a", *sides, (), (), pool, 2, self.metrics, self.stop)

    def put(self, start: int, *, is_encrypted: bool) -> None:
        body = b"x" * 100 + (MARK if is_encrypted else b"")
        self.here.memory.put_new(f"data/{name(start)}", BytesIO(body), len(body))

    def problem(self) -> str:
        with pytest.raises(StoreUnavailable) as caught:
            one_round(self.sync, self.stop, self.clear)
        return str(caught.value)


@pytest.fixture
def buckets() -> Iterator[Buckets]:
    with ThreadPoolExecutor(2) as pool:
        yield Buckets(pool)


def test_objects_in_clear_are_counted_and_named(buckets: Buckets) -> None:
    for start in range(4):
        buckets.put(start, is_encrypted=start > 1)
    assert buckets.problem() == (
        "sync: 2 objects could not be copied, 2 were; 2 not encrypted, and refused by encryption.clear_objects = "
        f'"refuse" ({name(0)}, {name(1)}): find out who wrote them; "read" copies objects from before they were '
        "encrypted, too"
    )
    assert buckets.metrics.by_label("sync_clear_objects", topic="t") == 2
    assert [info.key for info in buckets.there.memory.list("")] == [f"copies/{name(2)}", f"copies/{name(3)}"]


def test_what_failed_otherwise_may_work_in_another_run(buckets: Buckets) -> None:
    buckets.put(0, is_encrypted=False)
    buckets.put(1, is_encrypted=True)
    buckets.there.away = {"put_new"}
    problem = buckets.problem()
    assert "2 objects could not be copied, 0 were; 1 not encrypted" in problem
    assert problem.endswith("run it again")


def test_what_differs_is_named_beside_what_failed(buckets: Buckets) -> None:
    buckets.put(0, is_encrypted=False)
    buckets.put(1, is_encrypted=True)
    buckets.there.memory.put_new(f"copies/{name(1)}", BytesIO(b"other"), 5)
    assert f"1 objects differ from their copies, which are left as they are: {name(1)}" in buckets.problem()


def test_of_many_some_are_named(buckets: Buckets) -> None:
    for start in range(NAMED + 5):
        buckets.put(start, is_encrypted=False)
    problem = buckets.problem()
    assert f"{NAMED + 5} not encrypted" in problem
    assert problem.count("a/t/0/0/") == NAMED
    assert ", …)" in problem


def test_a_round_without_them_is_whole(buckets: Buckets) -> None:
    buckets.put(0, is_encrypted=True)
    assert one_round(buckets.sync, buckets.stop, buckets.clear).copied == 1
    assert buckets.clear.problem == ""
