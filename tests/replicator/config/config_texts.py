"""Configurations that the tests read, and the problems that are found in them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from formats.errors import ConfigError
from replicator.config import parse

SMALL = """
region = "us-east-1"
[kafka]
"bootstrap.servers" = "localhost:9092"
[s3]
bucket = "source-bucket"
"""
WHOLE = """
region = "us-east-1"

[kafka]
"bootstrap.servers" = "localhost:9092"
[kafka.consumer]
"fetch.min.bytes" = 1
"check.crcs" = true

[s3]
bucket = "source-bucket"
prefix = "data"

[egress]
group_id = "replicator.egress"
[egress.topics."sensor.events"]
max_segment_messages = 1_000_000
max_segment_size = "100MiB"
max_segment_age = "5m"

[sqs]
queue = "destination-bucket-events-queue"

[ingress]
group_id = "replicator.ingress"
segment_events_topic = "replicator.segmentevents"
segment_events_retention = "1h"
checkpoint_topic = "replicator.checkpoint"
delivery = "at-least-once"
[[ingress.sources]]
region = "us-east-1"
topic = "sensor.events"
destination_topic = "sensor.events.copy"
lost_segment_timeout = "1h"
late_segment_retries = 5
first_segment_delay = "5m"

[sync]
topics = ["a", "^b.*"]
levels = [0, 1]
[sync.destination]
bucket = "other"
[sync.queue]
queue = "source-events"

[retention]
max_delete_percent = 20
[retention.defaults]
keep_segments = 2
[retention.topics."sensor.events"]
max_age = "30d"
hold = ["3:1000-2000", "*:0-99"]
[retention.topics."^logs-.*"]
max_bytes = "1TiB"
"""


def problems(text: str, environment: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, environment=environment or {})
    return list(caught.value.problems)


def only(text: str, environment: Mapping[str, str] | None = None) -> str:
    found = problems(text, environment)
    assert len(found) == 1, found
    return found[0]


def ingress(*sources: str, region: str = "here", more: str = "") -> str:
    tables = "\n".join(f"[[ingress.sources]]\n{source}" for source in sources)
    return SMALL.replace("us-east-1", region) + f'[sqs]\nqueue = "q"\n[ingress]\n{more}\n{tables}\n'
