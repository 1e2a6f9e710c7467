"""`sync --once --spark` and `gc --spark`: copies, comparisons and proofs on Spark, with the refusals of any run."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.archive.control import ControlStore
from infra.local.stack import LocalStack
from replicator import main
from replicator.services import sync
from replicator.services.spark_jobs import SparkJobs
from tests.formats.sample_records import ORIGIN, batch_of
from tests.integration.bucket import Bucket
from tests.processes.harness import to_toml

pytestmark = pytest.mark.integration

PARTITIONS, SEGMENTS, ROWS = 3, 6, 10
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("SECRET", "test")

    def command(tables: dict[str, Any], *arguments: str) -> tuple[int, str, str]:
        file = tmp_path / "replicator.toml"
        file.write_text(to_toml(tables), encoding="utf-8")
        with pytest.raises(SystemExit) as caught:
            main.main([*arguments, "--config", str(file)])
        assert isinstance(caught.value.code, int | None)
        printed = capsys.readouterr()
        return caught.value.code or 0, printed.out, printed.err

    return command


@pytest.fixture
def here(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> Bucket:
    bucket = Bucket(stack, unique, tmp_path)
    bucket.fill("orders", PARTITIONS, SEGMENTS, ROWS)
    return bucket


@pytest.fixture
def there(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> Bucket:
    return Bucket(stack, unique, tmp_path)


def tables(here: Bucket, there: Bucket, **retention: Any) -> dict[str, Any]:
    found = here.tables()
    found["s3"]["secret_access_key"] = "${SECRET}"
    destination = {**found["s3"], "bucket": there.name}
    rules = {"delete_grace": "0s", "max_delete_percent": 100, "topics": {"orders": retention}}
    return found | {"sync": {"destination": destination}} | ({"retention": rules} if retention else {})


def name(partition: int, start: int, end: int, level: int = 0) -> Segment:
    return Segment(SourcePartition("a", "orders", partition), level, OffsetRange(start, end))


def bodies(bucket: Bucket) -> dict[str, bytes]:
    found = {}
    for key in (info.key for info in bucket.objects.list("data/a/orders/")):
        with bucket.objects.open(key) as body:
            found[key] = body.read()
    return found


def spoil(bucket: Bucket, segment: Segment) -> None:
    key = format_key("data", segment)
    bucket.client.put_object(Bucket=bucket.name, Key=key, Body=b"another object")


@pytest.mark.long
def test_sync(here: Bucket, there: Bucket, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "ROWS_TOGETHER", 1)
    sizes: list[int] = []  # of the jobs
    run_jobs = SparkJobs.run

    def watched(jobs: SparkJobs, task: Any, items: Any, **options: Any) -> Any:
        sizes.append(sum(map(len, items)))
        return run_jobs(jobs, task, items, **options)

    monkeypatch.setattr(SparkJobs, "run", watched)
    monkeypatch.setattr(sync, "STEPS_TOGETHER", 8)
    wanted = bodies(here)
    code, text, err = run(tables(here, there), "sync", "--once", "--spark")
    assert (code, text.startswith(f"copied {len(wanted)} objects,")) == (0, True), text + err
    assert bodies(there) == wanted
    assert (max(sizes), sum(sizes)) == (8, len(wanted)), "never more than one job's rows are in memory"
    code, text, err = run(tables(here, there), "sync", "--once", "--spark")
    assert (code, text) == (0, f"copied 0 objects, 0 B; {len(wanted)} were there\n"), err
    there.store.delete_many([name(1, 0, 9)])
    spoil(there, name(2, 10, 19))
    code, text, err = run(tables(here, there), "sync", "--once", "--spark")
    assert (code, "copied 1 objects" in text, str(name(2, 10, 19)) in err) == (3, True, True), text + err
    assert {key for key, body in bodies(there).items() if body != wanted[key]} == {format_key("data", name(2, 10, 19))}


def test_sync_goes_on_for_ever_without_once(here: Bucket, there: Bucket, run: Run) -> None:
    code, _, err = run(tables(here, there), "sync", "--spark")
    assert (code, "--spark needs --once" in err) == (2, True)


def test_gc(here: Bucket, there: Bucket, run: Run) -> None:
    """Expired segments need their copies; covered ones, a keeper that provably holds their records."""
    assert run(tables(here, there), "sync", "--once")[0] == 0
    spoil(there, name(1, 10, 19))
    merged, body = name(0, 30, 49, level=1), io.BytesIO()
    writer = here.format.create(body)
    writer.write([batch_of([*here.rows(name(0, 30, 39)), *here.rows(name(0, 40, 49))])])
    writer.close(merged, replace(ORIGIN, created_at=datetime.now(UTC)))
    here.store.store(merged, body, body.tell())
    assert run(tables(here, there), "sync", "--once")[0] == 3
    given = tables(here, there, max_bytes=1, keep_segments=2)
    code, text, err = run(given, "gc", "--spark", "--covered", "--json")
    assert code == 3, text + err
    report = json.loads(text)
    assert list(report["kept"]) == [str(name(1, 10, 19))]
    assert {one["deleted"] for one in report["covered"]["outcomes"]} == {2}
    assert {info.segment for info in here.store.list(name(0, 0, 0).source)} == {merged, name(0, 50, 59)}
    assert here.segments(name(1, 0, 0).source) == [name(1, start, start + 9) for start in range(10, 60, 10)]
    assert here.segments(name(2, 0, 0).source) == [name(2, 40, 49), name(2, 50, 59)]
    control = ControlStore(here.objects, "data")
    gaps = {source.partition: control.gaps.ranges(source) for source in control.gaps.sources("a")}
    assert gaps == {0: [OffsetRange(0, 29)], 1: [OffsetRange(0, 9)], 2: [OffsetRange(0, 39)]}
