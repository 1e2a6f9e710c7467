"""The metrics of `infra.runtime.metrics` in a Prometheus registry; every name has the prefix `replicator_`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, write_to_textfile

from infra.runtime.metrics import COUNTERS, GAUGES, HISTOGRAMS, TABLE, CounterName, GaugeName, HistogramName, MetricName

NAMESPACE = "replicator"

_LATENCY = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_AGE = (0.1, 0.5, 1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 6 * 3600, 24 * 3600)  # sealing takes minutes
BUCKETS: Mapping[HistogramName, tuple[float, ...]] = {
    "upload_latency_seconds": _LATENCY,
    "produce_latency_seconds": _LATENCY,
    "record_age_seconds": _AGE,
    "replication_latency_seconds": _AGE,
}

_Labels = tuple[str, ...]


class PrometheusMetrics:
    """Implements `infra.runtime.metrics.Metrics`. A call costs two dictionary lookups more than the client's own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """`registry`: by default a new one, so that two services in a process do not share counters by accident."""
        self.registry = registry = CollectorRegistry() if registry is None else registry
        self._counters = {n: Counter(n, _help(n), _labels(n), NAMESPACE, registry=registry) for n in COUNTERS}
        self._gauges = {n: Gauge(n, _help(n), _labels(n), NAMESPACE, registry=registry) for n in GAUGES}
        self._histograms = {
            n: Histogram(n, _help(n), _labels(n), NAMESPACE, registry=registry, buckets=BUCKETS[n]) for n in HISTOGRAMS
        }
        # `.labels()` of the client takes a lock and converts every value to text; these dictionaries cache its results.
        self._counter_children: dict[tuple[CounterName, _Labels], Counter] = {}
        self._gauge_children: dict[tuple[GaugeName, _Labels], Gauge] = {}
        self._histogram_children: dict[tuple[HistogramName, _Labels], Histogram] = {}

    def count(self, name: CounterName, value: float = 1, **labels: str) -> None:
        values = _values(name, labels)
        child = self._counter_children.get((name, values))
        if child is None:
            parent = self._counters[name]
            child = self._counter_children[name, values] = parent.labels(*values) if values else parent
        child.inc(value)

    def gauge(self, name: GaugeName, value: float, **labels: str) -> None:
        values = _values(name, labels)
        child = self._gauge_children.get((name, values))
        if child is None:
            parent = self._gauges[name]
            child = self._gauge_children[name, values] = parent.labels(*values) if values else parent
        child.set(value)

    def observe(self, name: HistogramName, value: float, **labels: str) -> None:
        values = _values(name, labels)
        child = self._histogram_children.get((name, values))
        if child is None:
            parent = self._histograms[name]
            child = self._histogram_children[name, values] = parent.labels(*values) if values else parent
        child.observe(value)

    def write(self, file: Path) -> None:
        """Write the gauges that were set as text, atomically, for Prometheus' textfile collector. Other metrics are
        those of services, which Prometheus scrapes."""
        registry = CollectorRegistry()
        for name in sorted({name for name, _ in self._gauge_children}):
            registry.register(self._gauges[name])
        write_to_textfile(str(file), registry)

    def forget(self, name: GaugeName, **labels: str) -> None:
        """No error when it was never set."""
        values = _values(name, labels)
        self._gauge_children.pop((name, values), None)
        if values:
            self._gauges[name].remove_by_labels(labels)
        else:
            self._gauges[name].set(0)


def _values(name: MetricName, labels: Mapping[str, str]) -> _Labels:
    """Label values in the table's order. Raises ValueError for labels other than the table's, a bug in the caller."""
    wanted = TABLE[name].labels
    try:
        values = tuple([labels[label] for label in wanted])
    except KeyError:
        values = ()
    if len(values) != len(wanted) or len(labels) != len(wanted):
        raise ValueError(f"{name} has the labels {wanted}, not {tuple(labels)}")
    return values


def _help(name: MetricName) -> str:
    return TABLE[name].help


def _labels(name: MetricName) -> tuple[str, ...]:
    return TABLE[name].labels
