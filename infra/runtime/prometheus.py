"""The metrics of `infra.runtime.metrics` in a Prometheus registry; every name has the prefix `replicator_`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, write_to_textfile
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from infra.runtime.buckets import BUCKETS
from infra.runtime.metrics import COUNTERS, GAUGES, HISTOGRAMS, TABLE, CounterName, GaugeName, HistogramName, MetricName

NAMESPACE = "replicator"

_Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricsPage:
    content_type: str
    text: str


class MetricsPages(Protocol):
    """What a `HealthServer` serves."""

    def page(self, accept: str) -> MetricsPage:
        """Everything, in the format that a scraper asks for with its `Accept` header."""


def page_of(registry: CollectorRegistry, accept: str) -> MetricsPage:
    encode, content_type = choose_encoder(accept)
    return MetricsPage(content_type, encode(registry).decode())


class PrometheusMetrics:
    """Implements `infra.runtime.metrics.Metrics` and `MetricsPages`. A call costs two dictionary lookups more than the
    client's own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """`registry`: by default a new one, so that two services in a process do not share counters by accident."""
        self.registry = registry = CollectorRegistry() if registry is None else registry
        self._counters = {n: Counter(n, _help(n), _labels(n), NAMESPACE, registry=registry) for n in COUNTERS}
        self._gauges = {n: Gauge(n, _help(n), _labels(n), NAMESPACE, registry=registry) for n in GAUGES}
        self._histograms = {n: _Histogram(n) for n in HISTOGRAMS}
        for histogram in self._histograms.values():
            registry.register(histogram)
        # `.labels()` of the client takes a lock and converts every value to text; these dictionaries cache its results.
        self._counter_children: dict[tuple[CounterName, _Labels], Counter] = {}
        self._gauge_children: dict[tuple[GaugeName, _Labels], Gauge] = {}

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
        bounds = BUCKETS[name]
        counts = [0] * (len(bounds) + 1)
        counts[bisect_left(bounds, value)] = 1
        self._histograms[name].add(_values(name, labels), counts, value)

    def observe_many(self, name: HistogramName, counts: Sequence[int], total: float, **labels: str) -> None:
        self._histograms[name].add(_values(name, labels), counts, total)

    def write(self, file: Path) -> None:
        """Write the gauges that were set as text, atomically, for Prometheus' textfile collector. Other metrics are
        those of services, which Prometheus scrapes."""
        registry = CollectorRegistry()
        for name in sorted({name for name, _ in self._gauge_children}):
            registry.register(self._gauges[name])
        write_to_textfile(str(file), registry)

    def page(self, accept: str) -> MetricsPage:
        return page_of(self.registry, accept)

    def forget(self, name: GaugeName, **labels: str) -> None:
        """No error when it was never set."""
        values = _values(name, labels)
        self._gauge_children.pop((name, values), None)
        if values:
            self._gauges[name].remove_by_labels(labels)
        else:
            self._gauges[name].set(0)


class _Histogram(Collector):
    """A histogram that also takes values that are counted already, which the client's own class does not."""

    def __init__(self, name: HistogramName) -> None:
        self.name = name
        self._children: dict[_Labels, tuple[list[int], float]] = {}  # counts by bucket, sum
        self._lock = Lock()

    def add(self, values: _Labels, counts: Sequence[int], total: float) -> None:
        """`values`: of the labels."""
        buckets = len(BUCKETS[self.name]) + 1
        if len(counts) != buckets:
            raise ValueError(f"{self.name} has {buckets} buckets, not {len(counts)}")
        with self._lock:
            before, sum_before = self._children.get(values, ([0] * buckets, 0.0))
            self._children[values] = [a + b for a, b in zip(before, counts, strict=True)], sum_before + total

    def describe(self) -> Iterator[HistogramMetricFamily]:
        yield HistogramMetricFamily(f"{NAMESPACE}_{self.name}", _help(self.name), labels=_labels(self.name))

    def collect(self) -> Iterator[HistogramMetricFamily]:
        with self._lock:
            children = dict(self._children)
        bounds = [_text(bound) for bound in (*BUCKETS[self.name], float("inf"))]
        for family in self.describe():
            for values, (counts, total) in children.items():
                family.add_metric(values, list(zip(bounds, accumulate(counts), strict=True)), total)
            yield family


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


def _text(bound: float) -> str:
    """As the client writes the label `le`."""
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]


def _help(name: MetricName) -> str:
    return TABLE[name].help


def _labels(name: MetricName) -> tuple[str, ...]:
    return TABLE[name].labels
