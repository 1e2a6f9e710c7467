"""Source regions of which nothing has ever arrived, on a bucket in memory."""

from __future__ import annotations

from io import BytesIO

import pytest

from infra.archive.segments import SegmentStore
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.status.empty_sources import empty_sources

HERE = "eu-west-1"


def problems(*keys: str, regions: tuple[str, ...] = ("us-esat-1",), prefix: str = "data") -> list[str]:
    objects = MemoryObjectStore()
    for key in keys:
        objects.put_new(key, BytesIO(b"x"), 1)
    return list(empty_sources(SegmentStore(objects, prefix), regions, HERE).values())


def test_a_mistyped_region_is_a_problem_that_names_the_one_that_was_meant() -> None:
    [problem] = problems("data/us-east-1/orders/0/x", f"data/{HERE}/orders/0/x")
    assert problem == (
        "nothing of source region us-esat-1 has ever arrived in this bucket, neither a heartbeat nor a claim nor a "
        "segment (did you mean 'us-east-1'?); it has archives of us-east-1. Correct the name in [[ingress.sources]], "
        "or start egress in that region, and see that its archive is in this bucket and prefix or is copied to it "
        "(S3 replication, sync)"
    )


def test_an_empty_bucket_has_no_region_to_suggest() -> None:
    [problem] = problems()
    assert "did you mean" not in problem
    assert "it has no archive of another region" in problem


@pytest.mark.parametrize(
    "key",
    ["orders/0/x", "_control/v1/places/orders", "_control/v1/heartbeat/1", "_control/v1/catalog/1"],
)
@pytest.mark.parametrize("prefix", ["data", ""])
def test_whatever_has_arrived_ends_it(key: str, prefix: str) -> None:
    assert problems(f"{prefix}/us-esat-1/{key}".lstrip("/"), prefix=prefix) == []


def test_what_another_process_puts_below_the_name_is_no_sign_of_the_region() -> None:
    assert len(problems("data/us-esat-1/_control/v1/heartbeats/compact/1")) == 1


def test_each_region_has_its_own() -> None:
    found = problems("data/a/orders/0/x", regions=("a", "b", "c"))
    assert [one.split()[4] for one in found] == ["b", "c"]
