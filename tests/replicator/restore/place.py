"""A bucket, a cluster to restore into, and the commands as users run them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from infra.contracts.cluster import TopicPartition
from infra.local.aws import s3_client
from infra.local.stack import LocalStack
from infra.storage.s3 import S3ObjectStore
from replicator import main
from replicator.config import Config, from_mapping
from tests.fakes.kafka_target import TargetRecord, target_records
from tests.formats.sample_records import Row, batch_of
from tests.infra.cluster import Cluster
from tests.processes.harness import to_toml
from tests.replicator.restore.history import REGION


class Place:
    def __init__(self, stack: LocalStack, unique: Callable[[str], str], folder: Path) -> None:
        self.bucket, self.unique, self.stack, self.folder = unique("bucket"), unique, stack, folder
        self.client = s3_client(stack.moto.endpoint_url)
        self.client.create_bucket(Bucket=self.bucket)
        self.objects = S3ObjectStore(self.client, self.bucket)
        self.cluster = Cluster(stack.brokers["b"])
        self.more: Mapping[str, Any] = {}  # tables of the file

    @property
    def config(self) -> Config:
        return from_mapping(self.tables)

    @property
    def tables(self) -> Mapping[str, Any]:
        return {
            "region": REGION,
            "kafka": dict(self.cluster.properties),
            "s3": {
                "bucket": self.bucket,
                "endpoint_url": self.stack.moto.endpoint_url,
                "region_name": "us-east-1",
                "access_key_id": "test",
                "secret_access_key": "test",
            },
        }

    @property
    def file(self) -> Path:
        file = self.folder / "replicator.toml"
        s3 = {**self.tables["s3"], "secret_access_key": "${SECRET}"}  # files hold no secrets
        file.write_text(to_toml({**self.tables, "s3": s3, **self.more}), encoding="utf-8")
        return file

    def restored(self, name: str, partition: int) -> list[TargetRecord]:
        return self.cluster.records(TopicPartition(name, partition))

    def close(self) -> None:
        self.client.close()


class Commands:
    def __init__(self, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
        self._place, self.capsys = place, capsys
        self.out = self.err = ""  # of the last command

    def run(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output."""
        with pytest.raises(SystemExit) as caught:
            main.main([*arguments, "--config", str(self._place.file)])
        assert isinstance(caught.value.code, int | None)
        captured = self.capsys.readouterr()
        self.out, self.err = captured.out, captured.err
        return caught.value.code or 0, captured.out or captured.err

    def json(self, *arguments: str) -> tuple[int, Any]:
        code, text = self.run(*arguments, "--json")
        return code, json.loads(text)


def expected(rows: Sequence[Row]) -> list[TargetRecord]:
    return target_records(batch_of(list(rows))) if rows else []
