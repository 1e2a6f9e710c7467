"""What `compact` prints when a later job ends it: what the jobs before have merged and deleted stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compaction.run import CompactionReport, Compactor, JobSelection
from compaction.task_rows import PlanOutcome
from formats.errors import StoreUnavailable
from replicator import main
from replicator.config import CompactionJob
from tests.formats.sample_records import segment

CONFIG = """
region = "a"
[s3]
bucket = "b"
[[compaction.jobs]]
name = "nightly"
[[compaction.jobs]]
name = "monthly"
"""
MERGED = PlanOutcome(segment=str(segment(0, 9, level=1)), merged=2, deleted=2, records=10)


def second_fails(_: Compactor, job: CompactionJob, _selection: JobSelection, *, dry_run: bool) -> CompactionReport:
    if job.name == "monthly":
        raise StoreUnavailable("the bucket answers 500")
    return CompactionReport(job.name, outcomes=[MERGED], objects=2, size_bytes=100)


@pytest.mark.parametrize("as_json", [False, True])
def test_the_jobs_before_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    monkeypatch.setattr(Compactor, "run", second_fails)
    file = tmp_path / "a.toml"
    file.write_text(CONFIG)
    with pytest.raises(SystemExit) as ended:
        main.main(["compact", "--dry-run", "--config", str(file), *(["--json"] if as_json else [])])
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert "the bucket answers 500" in printed.err
    if as_json:
        (report,) = json.loads(printed.out)
        assert (report["job"], report["outcomes"][0]["merged"]) == ("nightly", 2)
    else:
        assert printed.out.startswith("job nightly: 2 segments, ")


def test_without_any_there_is_only_the_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Compactor, "run", second_fails)
    file = tmp_path / "a.toml"
    file.write_text(CONFIG)
    with pytest.raises(SystemExit):
        main.main(["compact", "--dry-run", "--json", "--job", "monthly", "--config", str(file)])
    assert not capsys.readouterr().out
