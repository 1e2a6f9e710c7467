from __future__ import annotations

import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from infra.runtime.metrics import COUNTERS, GAUGES, HISTOGRAMS, TABLE, Metrics
from infra.runtime.prometheus import BUCKETS, PrometheusMetrics

SOURCE = {"region": "r", "topic": "t", "partition": "0"}


@pytest.fixture
def metrics() -> PrometheusMetrics:
    return PrometheusMetrics(CollectorRegistry())


def value(metrics: PrometheusMetrics, name: str, labels: dict[str, str]) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_the_table_is_complete() -> None:
    assert set(TABLE) == {*COUNTERS, *GAUGES, *HISTOGRAMS}
    assert len(TABLE) == len(COUNTERS) + len(GAUGES) + len(HISTOGRAMS)
    assert set(BUCKETS) == set(HISTOGRAMS)
    assert all(metric.help for metric in TABLE.values())


def test_it_implements_the_metrics_protocol(metrics: PrometheusMetrics) -> None:
    seam: Metrics = metrics
    seam.count("record_count", 3, **SOURCE)
    seam.count("record_count", 1, **SOURCE)
    assert value(metrics, "replicator_record_count_total", SOURCE) == 4


def test_gauges_are_set_and_forgotten(metrics: PrometheusMetrics) -> None:
    name = "replicator_ingress_lag_records"
    metrics.gauge("ingress_lag_records", 5, **SOURCE)
    metrics.gauge("ingress_lag_records", 3, **SOURCE)
    assert value(metrics, name, SOURCE) == 3
    metrics.forget("ingress_lag_records", **SOURCE)
    metrics.forget("ingress_lag_records", **SOURCE)
    assert value(metrics, name, SOURCE) is None
    metrics.gauge("ingress_lag_records", 7, **SOURCE)  # the partition came back
    assert value(metrics, name, SOURCE) == 7


def test_without_labels(metrics: PrometheusMetrics) -> None:
    metrics.gauge("assigned_partitions", 4)
    metrics.count("broker_errors")
    assert value(metrics, "replicator_assigned_partitions", {}) == 4
    assert value(metrics, "replicator_broker_errors_total", {}) == 1
    metrics.forget("assigned_partitions")
    assert value(metrics, "replicator_assigned_partitions", {}) == 0


def test_histograms(metrics: PrometheusMetrics) -> None:
    for seconds in (0.02, 100):
        metrics.observe("upload_latency_seconds", seconds, topic="t", partition="0")
    labels = {"topic": "t", "partition": "0"}
    assert value(metrics, "replicator_upload_latency_seconds_sum", labels) == 100.02
    assert value(metrics, "replicator_upload_latency_seconds_bucket", labels | {"le": "1.0"}) == 1


def test_the_order_of_labels_does_not_matter(metrics: PrometheusMetrics) -> None:
    metrics.count("record_count", region="r", topic="t", partition="0")
    metrics.count("record_count", partition="0", topic="t", region="r")
    assert value(metrics, "replicator_record_count_total", SOURCE) == 2


@pytest.mark.parametrize(
    "labels", [{}, {"topic": "t"}, {**SOURCE, "more": "x"}, {"region": "r", "topic": "t", "part": "0"}]
)
def test_wrong_labels_raise_an_error(metrics: PrometheusMetrics, labels: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="record_count has the labels"):
        metrics.count("record_count", 1, **labels)


def test_everything_is_exported_under_its_name(metrics: PrometheusMetrics) -> None:
    def labels(name: str) -> dict[str, str]:
        return dict.fromkeys(TABLE[name].labels, "x")  # type: ignore[index]

    for counter in COUNTERS:
        metrics.count(counter, 1, **labels(counter))
    for gauge in GAUGES:
        metrics.gauge(gauge, 1, **labels(gauge))
    for histogram in HISTOGRAMS:
        metrics.observe(histogram, 1, **labels(histogram))
    families = {
        family.name: family for family in text_string_to_metric_families(generate_latest(metrics.registry).decode())
    }
    for name, metric in TABLE.items():
        family = families[f"replicator_{name}"]
        assert family.documentation == metric.help
        assert family.samples
    assert {name.removesuffix("_created") for name in families} == {f"replicator_{name}" for name in TABLE}


def test_two_instances_in_one_process_are_separate() -> None:
    first, second = PrometheusMetrics(), PrometheusMetrics()
    first.count("broker_errors")
    assert value(second, "replicator_broker_errors_total", {}) == 0


def test_many_threads(metrics: PrometheusMetrics) -> None:
    def work() -> None:
        for n in range(1000):
            metrics.count("record_count", region="r", topic="t", partition=str(n % 10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = sum(value(metrics, "replicator_record_count_total", SOURCE | {"partition": str(n)}) or 0 for n in range(10))
    assert total == 4000
