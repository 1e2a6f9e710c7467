"""What of a configuration is sent to Spark's workers."""

from __future__ import annotations

import pickle

from replicator.config import from_mapping
from replicator.services.wiring import for_workers


def test_workers_get_the_credentials_of_the_sections_that_they_need_and_no_others() -> None:
    config = from_mapping(
        {
            "region": "a",
            "kafka": {"bootstrap.servers": "k:9092", "sasl.password": "of-kafka"},
            "s3": {"bucket": "b", "access_key_id": "AKID", "secret_access_key": "of-s3"},
            "sqs": {"queue": "q", "access_key_id": "AKID", "secret_access_key": "of-sqs"},
            "schema_registry": {"url": "http://r", "username": "u", "password": "of-registry"},
            "metrics": {"listen": "0", "username": "prometheus", "password": "of-metrics"},
        }
    )
    sent = pickle.dumps(for_workers(config))
    assert b"of-s3" in sent
    found = [name for name in ("kafka", "sqs", "registry", "metrics") if f"of-{name}".encode() in sent]
    assert not found
    assert b"of-kafka" in pickle.dumps(for_workers(config, "kafka"))
