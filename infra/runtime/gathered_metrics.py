"""The metrics of several processes as one: each sample has the label `task`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from infra.runtime import log_fields
from infra.runtime.metrics import MetricName
from infra.runtime.prometheus import NAMESPACE

LABEL = "task"

log = logging.getLogger(__name__)


class GatheredMetrics(Collector):
    """`own`: this process's metrics, of which only the names `shown` are. `ask` returns OpenMetrics text by task."""

    def __init__(
        self, own: CollectorRegistry, shown: Collection[MetricName], ask: Callable[[], Mapping[int, str]]
    ) -> None:
        self._own, self._ask = own, ask
        self._shown = {f"{NAMESPACE}_{name}" for name in shown}

    def describe(self) -> Iterable[Metric]:
        return ()  # registering it asks no task

    def collect(self) -> Iterator[Metric]:
        families = {family.name: family for family in self._own.collect() if family.name in self._shown}
        for task, text in sorted(self._ask().items()):
            try:
                parsed: list[Metric] = list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
            except ValueError as error:
                log.warning("metrics_not_read", extra={log_fields.TASK: task, log_fields.ERROR: str(error)})
                continue
            for found in parsed:
                family = families.setdefault(
                    found.name, Metric(found.name, found.documentation, found.type, found.unit)
                )
                family.samples += [one._replace(labels={**one.labels, LABEL: str(task)}) for one in found.samples]
        yield from families.values()


def gathered_registry(
    own: CollectorRegistry, shown: Collection[MetricName], ask: Callable[[], Mapping[int, str]]
) -> CollectorRegistry:
    """For a `HealthServer`: arguments as for `GatheredMetrics`."""
    registry = CollectorRegistry()
    registry.register(GatheredMetrics(own, shown, ask))
    return registry
