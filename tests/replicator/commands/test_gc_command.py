"""What `gc` reports when its second part fails: the first one has removed segments for good."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from compaction.gc import GcReport
from compaction.retention import Expiry, plan_expiry
from compaction.run import CompactionReport
from formats.errors import StoreUnavailable
from formats.segment import SegmentInfo
from replicator import main
from replicator.config import RetentionRule
from replicator.services.retention import Retention
from tests.formats.sample_records import segment

NOW = datetime(2026, 3, 5, tzinfo=UTC)
CONFIG = """
region = "a"
[kafka]
"bootstrap.servers" = "localhost:9092"
[s3]
bucket = "b"
[retention.topics.orders]
max_age = "7d"
"""


class FailsToClean(Retention):
    def collect(self, topics: Collection[str] = (), *, dry_run: bool = False, allow_large: bool = False) -> GcReport:
        stored = [SegmentInfo(segment(10 * n, 10 * n + 9), 100, NOW - timedelta(days=9 * (2 - n))) for n in (1, 2)]
        plan = plan_expiry(stored, RetentionRule(max_age=timedelta(days=7)), NOW)
        assert isinstance(plan, Expiry)
        return GcReport(region="a", plans=[plan], removed=[plan])

    def clean(self, topics: Collection[str] = (), *, dry_run: bool = False) -> CompactionReport:
        raise StoreUnavailable("the bucket answers 500")


@pytest.mark.parametrize("as_json", [False, True])
def test_what_was_removed_is_reported_although_cleaning_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    monkeypatch.setattr("replicator.services.retention.Retention", FailsToClean)
    file = tmp_path / "a.toml"
    file.write_text(CONFIG)
    with pytest.raises(SystemExit) as ended:
        main.main(["gc", "--covered", "--config", str(file), *(["--json"] if as_json else [])])
    assert ended.value.code == 1
    text = capsys.readouterr().out
    if as_json:
        found = json.loads(text)
        assert [list(one["segments"]) for one in found["removed"]] == [[str(segment(10, 19))]]
        assert (found["failed"], found["covered"]) == ({"--covered": "the bucket answers 500"}, None)
    else:
        assert f"  {segment(10, 19)}: stored " in text
        assert "not done: --covered: the bucket answers 500" in text
