"""A source region whose name is mistyped, or that has no egress yet: no command that watches it gives an all-clear."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from infra.local.aws import create_bucket_with_queue
from infra.local.stack import LocalStack
from replicator import main

pytestmark = pytest.mark.integration

FILE = """
region = "eu-west-1"
[kafka]
"bootstrap.servers" = "{servers}"
[s3]
bucket = "{name}"
{aws}
[sqs]
queue = "{name}"
{aws}
[ingress]
group_id = "{name}"
checkpoint_topic = "{name}.checkpoints"
segment_events_topic = "{name}.events"
[[ingress.sources]]
region = "us-esat-1"
topic = "^.*"
"""
AWS = (
    'endpoint_url = "{}"\nregion_name = "us-east-1"\naccess_key_id = "test"\nsecret_access_key = "${{SECRET_OF_TEST}}"'
)


@pytest.fixture
def file(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SECRET_OF_TEST", "test")
    name, aws = unique("empty"), AWS.format(stack.moto.endpoint_url)
    create_bucket_with_queue(stack.moto.endpoint_url, name, name)
    file = tmp_path / "eu-west-1.toml"
    file.write_text(FILE.format(servers=stack.brokers["b"].bootstrap, name=name, aws=aws), encoding="utf-8")
    return file


@pytest.mark.parametrize("command", ["status", "plan", "client lag"])
def test_a_region_of_which_nothing_ever_arrived_is_named(
    command: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main([*command.split(), "--config", str(file)])
    assert caught.value.code == 3
    assert "nothing of source region us-esat-1 has ever arrived in this bucket" in "".join(capsys.readouterr())
