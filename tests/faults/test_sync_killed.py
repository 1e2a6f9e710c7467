"""kill -9 of `sync`, before and after each copy, and in the middle of a large one: what is there is whole, and the next
run copies the rest."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from formats.control.keys import probe_key
from infra.local.aws import s3_client
from infra.local.stack import LocalStack
from infra.runtime.crash_points import AFTER, BEFORE
from tests.faults.crash_points import SYNC
from tests.faults.ordered_command import run_ordered
from tests.faults.victim import CrashPoint, Orders
from tests.integration.on_spark import QUICK
from tests.processes.harness import to_toml

pytestmark = [pytest.mark.integration, pytest.mark.long]

SECONDS = 90
KILLED, DONE = -signal.SIGKILL, 0
PART_BYTES = 5 << 20
SEGMENTS = [f"data/a/orders/{p}/0/{n:020d}-{n + 9:020d}" for p in range(2) for n in range(0, 40, 10)]
LARGE = "data/a/orders/2/0/00000000000000000000-00000000000000000009"
CONTROL = ["data/a/_control/v1/places/orders"]
STAYS = ["data/a/_control/v1/leases/compaction/00000000000000000007", "data/b/orders/0/0/" + SEGMENTS[0][-41:]]
"""Of this bucket alone, and of another region."""
PROBE = probe_key("data", "a")  # the command's own, in the bucket that it fills


def points() -> Iterator[object]:
    for step, occurrences in SYNC.items():
        for occurrence in occurrences:
            for when in (BEFORE, AFTER):
                yield pytest.param(
                    CrashPoint(step=step, when=when, occurrence=occurrence),
                    id=f"{when}-{step.value}-{occurrence}",
                )


class Buckets:
    """Two of them, and the command between them, under orders."""

    def __init__(self, stack: LocalStack, unique: Callable[[str], str], folder: Path) -> None:
        self.folder, self.endpoint_url = folder, stack.moto.endpoint_url
        self.orders = Orders(folder / "given")
        self.client = s3_client(self.endpoint_url)
        self.source, self.destination = unique("bucket"), unique("bucket")
        random = Random(7)
        for name in (self.source, self.destination):
            self.client.create_bucket(Bucket=name)
        sizes = {**dict.fromkeys([*SEGMENTS, *CONTROL, *STAYS], 1000), LARGE: 2 * PART_BYTES + 1}
        self.wanted = {key: random.randbytes(size) for key, size in sizes.items()}
        for key, body in self.wanted.items():
            self.client.put_object(Bucket=self.source, Key=key, Body=body)

    def copies(self) -> dict[str, bytes]:
        listed = self.client.list_objects_v2(Bucket=self.destination).get("Contents", [])
        keys = [one["Key"] for one in listed if one["Key"] != PROBE]
        return {key: self.client.get_object(Bucket=self.destination, Key=key)["Body"].read() for key in keys}

    def run(self, code: int, *, on_spark: bool = False) -> str:
        """On Spark its workers are under orders, too."""
        s3 = {
            "endpoint_url": self.endpoint_url,
            "region_name": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "${SECRET}",
            "part_size": "5MiB",
        }
        destination = {**s3, "bucket": self.destination}
        file = self.folder / "replicator.toml"
        tables = {
            "region": "a",
            "s3": {**s3, "bucket": self.source},
            "sync": {"destination": destination},
            "compaction": {"master": "local[2,4]", "spark": QUICK, "jobs": [{"name": "all"}]},
        }
        file.write_text(to_toml(tables), encoding="utf-8")
        command = ["sync", "--once", *(["--spark"] if on_spark else []), "--config", str(file)]
        return run_ordered(self.orders, command, code=code, folder=self.folder, seconds=SECONDS, on_spark=on_spark)


def counts(printed: str) -> tuple[int, int]:
    """How many objects a run copied, and how many it found there."""
    match = re.fullmatch(r"copied (\d+) objects, .*; (\d+) were there\n", printed)
    assert match, printed
    return int(match[1]), int(match[2])


@pytest.fixture
def buckets(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Buckets]:
    made = Buckets(stack, unique, tmp_path)
    with closing(made.client):
        yield made


@pytest.mark.parametrize("point", list(points()))
def test_killed_at(buckets: Buckets, point: CrashPoint) -> None:
    wanted = {key: body for key, body in buckets.wanted.items() if key not in STAYS}
    buckets.orders.give(point)
    buckets.run(KILLED)
    assert buckets.orders.carried_out(CrashPoint) == point
    there = buckets.copies()
    assert there == {key: wanted[key] for key in there}, "what is there is whole"
    assert there.keys() <= wanted.keys()
    copied, present = counts(buckets.run(DONE))
    assert copied + present == len(wanted), "each object is copied by one run only"
    assert present >= len(there), "what S3 had received when the process died may be stored after it was listed here"
    assert buckets.copies() == wanted
    assert buckets.run(DONE) == f"copied 0 objects, 0 B; {len(wanted)} were there\n"


@pytest.mark.parametrize("point", list(points()))
def test_a_worker_of_spark_is_killed_at(buckets: Buckets, point: CrashPoint) -> None:
    """Another one does its work: what the dead one copied is there, and equal."""
    wanted = {key: body for key, body in buckets.wanted.items() if key not in STAYS}
    buckets.orders.give(point)
    copied, present = counts(buckets.run(DONE, on_spark=True))
    assert buckets.orders.carried_out(CrashPoint) == point
    assert copied + present == len(wanted)
    assert buckets.copies() == wanted
