"""`replicator gc` as users run it, on a bucket: what it would do, what it does, and what it refuses."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore
from infra.local.aws import s3_client
from infra.local.stack import LocalStack
from infra.storage.s3 import S3ObjectStore
from replicator import main
from tests.formats.sample_records import ORIGIN, batch_of, sample_rows
from tests.processes.harness import to_toml

pytestmark = pytest.mark.integration

SOURCE = SourcePartition("a", "orders", 0)
ROWS = sample_rows(60)


def segment(start: int, end: int) -> Segment:
    return Segment(SOURCE, 0, OffsetRange(start, end))


def write(store: SegmentStore, name: Segment) -> int:
    body = io.BytesIO()
    writer = ParquetFormat().create(body)
    writer.write([batch_of(ROWS[name.offsets.start : name.offsets.next_offset])])
    writer.close(name, replace(ORIGIN, created_at=datetime.now(UTC)))
    store.store(name, body, body.tell())
    return body.tell()


def test_the_command(
    stack: LocalStack,
    unique: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SECRET", "test")
    client, bucket = s3_client(stack.moto.endpoint_url), unique("bucket")
    client.create_bucket(Bucket=bucket)
    objects = S3ObjectStore(client, bucket)
    store, control = SegmentStore(objects, "data"), ControlStore(objects, "data")
    names = [segment(10 * n, 10 * n + 9) for n in range(6)]
    sizes = [write(store, name) for name in names]
    inside = segment(52, 55)
    write(store, inside)
    client.put_object(Bucket=bucket, Key="data/a/orders/0/notes.txt", Body=b"x")
    abandoned = format_key("data", segment(60, 69))  # in 2010, as moto tells of every upload
    for key in (abandoned, "data/a/orders/0/notes.txt"):
        client.create_multipart_upload(Bucket=bucket, Key=key)
    rule = {"max_bytes": sum(sizes[3:]), "hold": ["0:15-15"]}
    tables: dict[str, Any] = {
        "region": "a",
        "s3": {
            "bucket": bucket,
            "endpoint_url": stack.moto.endpoint_url,
            "region_name": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "${SECRET}",
        },
        "retention": {"delete_grace": "0s", "max_delete_percent": 20, "topics": {"orders": rule}},
    }
    file = tmp_path / "replicator.toml"
    file.write_text(to_toml(tables), encoding="utf-8")

    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as caught:
            main.main([*arguments, "--config", str(file)])
        assert isinstance(caught.value.code, int | None)
        return caught.value.code or 0, capsys.readouterr().out

    code, text = run("gc", "--dry-run")
    assert (code, "would remove 2 segments" in text, "--allow-large" in text) == (3, True, True)
    assert f"  {names[0]}: newer segments fill max_bytes" in text
    assert "notes.txt" in text
    assert "nothing was changed" in text
    assert run("gc")[0] == 3
    assert len(store.list(SOURCE)) == 7

    code, text = run("gc", "--allow-large", "--covered", "--json")
    report = json.loads(text)
    assert code == 0, report
    assert [list(one["segments"]) for one in report["removed"]] == [[str(names[0]), str(names[2])]]
    assert report["covered"]["outcomes"][0]["deleted"] == 1
    assert {info.segment for info in store.list(SOURCE)} == {names[1], *names[3:]}
    assert control.gaps.ranges(SOURCE) == [OffsetRange(0, 9), OffsetRange(20, 29)]
    assert report["aborted_uploads"] == [abandoned]
    left = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [one["Key"] for one in left] == ["data/a/orders/0/notes.txt"]
    assert client.head_object(Bucket=bucket, Key="data/a/orders/0/notes.txt")

    code, text = run("gc")
    assert (code, "nothing was removed" in text) == (0, True)
    assert "Object Lock" not in text
    code, text = run("gc", "--topic", "unknown")
    assert code == 2
    tables["s3"] |= {"object_lock_mode": "GOVERNANCE", "object_lock_retention": "30d"}
    file.write_text(to_toml(tables), encoding="utf-8")
    code, text = run("gc", "--dry-run")
    assert (
        "Object Lock, GOVERNANCE: a removed object gets a delete marker. Its bytes stay, and cost money, until 30d"
        in text
    )
    assert "until 30d" in json.loads(run("gc", "--json")[1])["object_lock"]
    client.close()
