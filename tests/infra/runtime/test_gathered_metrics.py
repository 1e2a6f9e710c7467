"""Metrics of several processes on one page."""

from __future__ import annotations

import math

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from infra.runtime.gathered_metrics import gathered_registry
from infra.runtime.metrics import MetricName
from infra.runtime.prometheus import PrometheusMetrics


def of_a_task(records: int) -> PrometheusMetrics:
    metrics = PrometheusMetrics()
    metrics.count("egress_records", records, topic='a"\\b', partition="0")
    metrics.gauge("egress_memory_bytes", math.inf)
    metrics.observe("upload_latency_seconds", 0.3, topic="a", partition="0")
    return metrics


def test_each_sample_has_its_task() -> None:
    own = PrometheusMetrics()
    own.gauge("spark_tasks", 2)
    own.count("broker_errors")
    tasks = {0: of_a_task(3).text(), 1: of_a_task(4).text()}
    shown: tuple[MetricName, ...] = ("spark_tasks",)
    registry = gathered_registry(own.registry, shown, lambda: tasks)
    page = openmetrics(registry).decode()  # type: ignore[no-untyped-call]
    families = {family.name: family for family in text_string_to_metric_families(page)}  # type: ignore[no-untyped-call]
    records = [s for s in families["replicator_egress_records"].samples if s.name.endswith("_total")]
    assert [(s.labels, s.value) for s in records] == [
        ({"topic": 'a"\\b', "partition": "0", "task": "0"}, 3),
        ({"topic": 'a"\\b', "partition": "0", "task": "1"}, 4),
    ]
    assert [s.labels for s in families["replicator_egress_memory_bytes"].samples] == [{"task": "0"}, {"task": "1"}]
    assert [s.value for s in families["replicator_spark_tasks"].samples if not s.labels] == [2]
    assert all("task" in s.labels for s in families["replicator_broker_errors"].samples), "the driver's is not shown"
    histogram = families["replicator_upload_latency_seconds"].samples
    assert sum(s.value for s in histogram if s.name.endswith("_count")) == 2
    plain = generate_latest(registry).decode()
    heads = [line for line in plain.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads)), "one group for each name"


def test_what_cannot_be_read_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    registry = gathered_registry(PrometheusMetrics().registry, (), lambda: {0: "no metrics", 1: of_a_task(1).text()})
    page = generate_latest(registry).decode()
    assert 'task="1"' in page
    assert 'task="0"' not in page
    assert [record.message for record in caplog.records] == ["metrics_not_read"]
