"""One round of sync beside a running service of the same file."""

from __future__ import annotations

import socket

import pytest

from egress.bucket_sync import SyncResult
from formats.errors import ConfigError
from replicator.config import Config, from_mapping
from replicator.services.sync import build_sync


def syncing(listen: str) -> Config:
    bucket = {"region_name": "us-east-1", "endpoint_url": "http://127.0.0.1:9", "conditional_writes": "assume"}
    keys = {"access_key_id": "A", "secret_access_key": "S"}
    return from_mapping(
        {
            "region": "here",
            "s3": {"bucket": "ours", **bucket, **keys},
            "sync": {"destination": {"bucket": "theirs", **bucket, **keys}},
            "metrics": {"listen": listen},
        }
    )


def test_one_round_needs_no_port_and_a_service_does() -> None:
    results: list[SyncResult] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = syncing(f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ConfigError, match=r"metrics\.listen: cannot listen"):
            build_sync(config)
        service = build_sync(config, once=results.append)
    service.join()  # nothing has begun: closes its clients
