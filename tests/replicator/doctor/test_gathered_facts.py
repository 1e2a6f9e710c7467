"""Facts of a deployment that cannot be read: each is missing by itself, and the others are read."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from infra.runtime.lifecycle import Deadline, SystemClock
from replicator.config import Config, from_mapping
from replicator.doctor.catalogue import CHECKS
from replicator.doctor.facts import DeploymentFacts, Unread
from replicator.doctor.findings import examine
from replicator.doctor.gather import gather, roles_of

NOTHING_THERE = "127.0.0.1:9"


def deployment(servers: str = NOTHING_THERE, kafka: Mapping[str, str] | None = None, **s3: str) -> Config:
    """A region whose bucket refuses connections."""
    keys = {"access_key_id": "A", "secret_access_key": "S"}
    return from_mapping(
        {
            "region": "here",
            "kafka": {"bootstrap.servers": servers, **(kafka or {})},
            "s3": {"bucket": "ours", "region_name": "us-east-1", "endpoint_url": f"http://{NOTHING_THERE}"}
            | (s3 or keys),
            "egress": {"topics": {"orders": {}}},
        }
    )


def facts_of(config: Config, within: timedelta = timedelta(seconds=30), *, writes: bool = False) -> DeploymentFacts:
    pool: Any = ThreadPoolExecutor(16)
    try:
        with ExitStack() as opened:
            deadline = Deadline(within)
            return gather(config, roles_of(config), pool, SystemClock(), opened, writes=writes, deadline=deadline)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class NoToken:
    def __init__(self, servers: str) -> None:
        pass

    def token(self) -> tuple[str, float]:
        raise LookupError("there is none")


@pytest.mark.parametrize(
    ("kafka", "reason"),
    [
        ({"security.protocol": "ssl", "ssl.ca.location": "/absent/ca.pem"}, r'kafka\."ssl\.ca\.location": cannot be'),
        ({"auth": f"{__name__}:NoToken"}, r"NoToken made no token for the cluster: LookupError: there is none"),
    ],
)
def test_a_kafka_client_that_cannot_be_made_is_a_finding_beside_others(kafka: Mapping[str, str], reason: str) -> None:
    found = {one.name: one for one in examine(CHECKS, facts_of(deployment(kafka=kafka)))}
    assert re.search(reason, found["cluster-unreachable"].what)
    assert "HeadBucket s3://ours" in found["bucket-unreachable"].what


def test_a_profile_that_does_not_exist_is_a_finding_beside_others() -> None:
    found = {one.name: one for one in examine(CHECKS, facts_of(deployment(profile="absent")))}
    assert "absent" in found["bucket-unreachable"].what
    assert NOTHING_THERE in found["cluster-unreachable"].what


def test_a_cluster_that_hangs_hides_nothing_of_the_bucket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = facts_of(deployment(f"127.0.0.1:{silent.getsockname()[1]}"), timedelta(seconds=3))
    assert found.cluster is not None
    assert isinstance(found.cluster.brokers, Unread)
    refusals = [one.refusal for one in found.bucket.rights]
    assert refusals
    assert not [one for one in refusals if not isinstance(one, Unread) or "no answer within" in one.reason]


JOB = {"name": "nightly", "region": "gone", "owner": True}


@pytest.mark.parametrize(
    "work",
    [{"compaction": {"jobs": [JOB]}}, {"retention": {"region": "gone", "owner": True, "topics": {"orders": {}}}}],
)
def test_rights_are_asked_for_where_the_jobs_work(work: Mapping[str, Any]) -> None:
    """A job may merge, or remove from, the archive of a region that is no more."""
    bucket = {"bucket": "ours", "region_name": "us-east-1", "endpoint_url": f"http://{NOTHING_THERE}"}
    keys = {"access_key_id": "A", "secret_access_key": "S"}
    config = from_mapping({"region": "here", "s3": {**bucket, **keys}, **work})
    found = facts_of(config, writes=True).bucket
    asked = {(one.action, one.resource) for one in found.rights}
    assert ("s3:GetObject", "data/gone/*") in asked
    assert ("s3:DeleteObject", "data/gone/*") in asked
    assert not {resource for _, resource in asked if resource == "data/here/*"}
    needed = {resource for _, resource in found.needed}
    assert "arn:aws:s3:::ours/data/gone/*" in needed
    assert "arn:aws:s3:::ours/data/here/*" not in needed
