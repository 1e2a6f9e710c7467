"""What of a configuration is sent to Spark's workers."""

from __future__ import annotations

import pickle

import pytest

from formats.topic_selection import TopicPattern
from replicator.config import from_mapping
from replicator.selection import Selection
from replicator.services.wiring import for_workers
from replicator.verify.scope import DIRECT, SOURCE, TARGET, VerifyScope
from replicator.verify.spark_task import VerifyTask

CONFIG = from_mapping(
    {
        "region": "a",
        "kafka": {"bootstrap.servers": "k:9092", "sasl.password": "of-kafka"},
        "s3": {"bucket": "b", "access_key_id": "AKID", "secret_access_key": "of-s3"},
        "sqs": {"queue": "q", "access_key_id": "AKID", "secret_access_key": "of-sqs"},
        "schema_registry": {"url": "http://r", "username": "u", "password": "of-registry"},
        "metrics": {"listen": "0", "username": "prometheus", "password": "of-metrics"},
    }
)


def test_workers_get_the_credentials_of_the_sections_that_they_need_and_no_others() -> None:
    config = CONFIG
    sent = pickle.dumps(for_workers(config))
    assert b"of-s3" in sent
    found = [name for name in ("kafka", "sqs", "registry", "metrics") if f"of-{name}".encode() in sent]
    assert not found
    assert b"of-kafka" in pickle.dumps(for_workers(config, "kafka"))


@pytest.mark.parametrize("kind", [SOURCE, TARGET, DIRECT])
def test_nor_do_they_get_those_of_the_files_that_the_archive_is_compared_with(kind: str) -> None:
    scope = VerifyScope(kind=kind, cluster=CONFIG, source_cluster=CONFIG if kind == DIRECT else None)
    task = VerifyTask(CONFIG, Selection(region="a", topics=[TopicPattern("t")]), scope)
    sent = pickle.dumps(task.for_workers())
    assert [name for name in ("sqs", "registry", "metrics") if f"of-{name}".encode() in sent] == []
    assert b"of-kafka" in sent
