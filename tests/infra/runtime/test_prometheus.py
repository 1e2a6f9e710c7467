from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from infra.runtime.buckets import BUCKETS
from infra.runtime.metrics import COUNTERS, GAUGES, HISTOGRAMS, TABLE, HistogramName, Metrics
from infra.runtime.prometheus import PrometheusMetrics
from tests.examples import property_examples
from tests.fakes.surroundings import CountedMetrics

PROPERTY = property_examples()
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
    seam.count("ingress_segments", 3, **SOURCE)
    seam.count("ingress_segments", 1, **SOURCE)
    assert value(metrics, "replicator_ingress_segments_total", SOURCE) == 4


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


def of_record_sizes(metrics: PrometheusMetrics) -> list[str]:
    """What is exported, in the order of the client's own class."""
    text = generate_latest(metrics.registry).decode()
    return [line for line in text.splitlines() if "replicator_record_size_bytes" in line and "_created" not in line]


@PROPERTY
@given(sizes=st.lists(st.integers(0, 2**26) | st.sampled_from([64, 256, 2**24]), min_size=1, max_size=20))
def test_values_that_are_counted_already_are_exported_as_the_same_values_one_by_one(sizes: list[int]) -> None:
    labels = SOURCE | {"destination": "copy"}
    bounds = BUCKETS["record_size_bytes"]
    at_once, one_by_one, of_client = PrometheusMetrics(), PrometheusMetrics(), CollectorRegistry()
    client = Histogram(
        "record_size_bytes",
        TABLE["record_size_bytes"].help,
        TABLE["record_size_bytes"].labels,
        "replicator",
        registry=of_client,
        buckets=bounds,
    )
    counts = [0] * (len(bounds) + 1)
    for size in sizes:
        counts[sum(bound < size for bound in bounds)] += 1
        one_by_one.observe("record_size_bytes", size, **labels)
        client.labels(**labels).observe(size)
    none = [0] * len(counts)
    for more, total in ((none, 0), (counts, sum(sizes)), (none, 0)):
        at_once.observe_many("record_size_bytes", more, total, **labels)
    expected = [line for line in generate_latest(of_client).decode().splitlines() if "_created" not in line]
    assert of_record_sizes(at_once) == of_record_sizes(one_by_one) == expected


@pytest.mark.parametrize("change", [-1, 1])
def test_another_number_of_buckets_raises_an_error(metrics: PrometheusMetrics, change: int) -> None:
    counts = [0] * (len(BUCKETS["record_size_bytes"]) + 1 + change)
    for one in (metrics, CountedMetrics()):
        with pytest.raises(ValueError, match="record_size_bytes has 11 buckets, not"):
            one.observe_many("record_size_bytes", counts, 0, **SOURCE, destination="copy")


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_bounds_rise(name: HistogramName) -> None:
    assert list(BUCKETS[name]) == sorted(set(BUCKETS[name]))


def test_the_order_of_labels_does_not_matter(metrics: PrometheusMetrics) -> None:
    metrics.count("ingress_segments", region="r", topic="t", partition="0")
    metrics.count("ingress_segments", partition="0", topic="t", region="r")
    assert value(metrics, "replicator_ingress_segments_total", SOURCE) == 2


@pytest.mark.parametrize(
    "labels", [{}, {"topic": "t"}, {**SOURCE, "more": "x"}, {"region": "r", "topic": "t", "part": "0"}]
)
def test_wrong_labels_raise_an_error(metrics: PrometheusMetrics, labels: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="ingress_segments has the labels"):
        metrics.count("ingress_segments", 1, **labels)


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
            metrics.count("ingress_segments", region="r", topic="t", partition=str(n % 10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = sum(
        value(metrics, "replicator_ingress_segments_total", SOURCE | {"partition": str(n)}) or 0 for n in range(10)
    )
    assert total == 4000
