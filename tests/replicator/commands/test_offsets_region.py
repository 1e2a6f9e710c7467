"""`offsets translate` with a region that is none of the sources: bad usage, before anything is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from replicator import main

CONFIG = """
region = "b"
[kafka]
"bootstrap.servers" = "localhost:9092"
[s3]
bucket = "b"
[sqs]
queue = "q"
[[ingress.sources]]
region = "us-east"
topic = "orders"
"""


@pytest.mark.parametrize("regions", [("--from", "us-eest"), ("--from", "b", "--to", "us-eest")])
def test_a_mistyped_region_is_bad_usage(
    regions: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "b.toml"
    file.write_text(CONFIG)
    with pytest.raises(SystemExit) as caught:
        main.main(["offsets", "translate", *regions, "--offset", "orders/0=1", "--config", str(file)])
    assert caught.value.code == 2
    wanted = "nothing of us-eest is delivered to b (did you mean 'us-east'?); its sources are: us-east"
    assert wanted in capsys.readouterr().err
