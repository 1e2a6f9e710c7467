"""The metrics of several processes on one page: each sample has the label `task`.

The pages of the processes are joined as text, line by line: to parse every sample and to write it again takes a core
longer than the usual interval between two scrapes, from a thousand partitions on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from formats.errors import MalformedEvent
from infra.runtime import log_fields
from infra.runtime.metrics import MetricName
from infra.runtime.prometheus import NAMESPACE, MetricsPage, page_of

LABEL = "task"
_END = "# EOF"  # of OpenMetrics; Prometheus' older format has none

log = logging.getLogger(__name__)


class GatheredMetrics:
    """Implements `infra.runtime.prometheus.MetricsPages`. `own`: this process's metrics, of which only the names
    `shown` are. `ask` returns by task its page for a scraper's `Accept` header."""

    def __init__(
        self, own: CollectorRegistry, shown: Collection[MetricName], ask: Callable[[str], Mapping[int, str]]
    ) -> None:
        self._own = CollectorRegistry()
        self._own.register(_Shown(own, shown))
        self._ask = ask

    def page(self, accept: str) -> MetricsPage:
        own = page_of(self._own, accept)
        families: dict[str, _Family] = {}
        _add(families, own.text, "")
        for task, text in sorted(self._ask(accept).items()):
            try:
                _add(families, text, f'{LABEL}="{task}"')
            except MalformedEvent as error:
                log.warning("metrics_not_read", extra={log_fields.TASK: task, log_fields.ERROR: str(error)})
        lines = [line for one in families.values() for line in (*one.heads, *one.samples)]
        end = [_END] if own.text.endswith(f"{_END}\n") else []
        return MetricsPage(own.content_type, "\n".join([*lines, *end, ""]))


class _Family:
    """The lines of one metric: its help and type, and its samples."""

    __slots__ = ("heads", "samples")

    def __init__(self, heads: Sequence[str]) -> None:
        self.heads = heads
        self.samples: list[str] = []


def _add(families: dict[str, _Family], text: str, label: str) -> None:
    """Raises MalformedEvent for what is no page of metrics; then nothing of it is added."""
    found: dict[str, _Family] = {}
    name, samples = "", []
    for line in filter(None, text.split("\n")):  # no other sign ends a line
        if line.startswith("# "):
            if line != _END:
                name = line.split(" ", 3)[2]
                family = found.setdefault(name, _Family([]))
                family.heads, samples = [*family.heads, line], family.samples
        elif not name or not line.startswith(name):
            raise MalformedEvent(f"not a page of metrics: {line[:60]!r}")
        else:
            samples.append(_labelled(line, label) if label else line)
    for name, family in found.items():
        families.setdefault(name, _Family(family.heads)).samples += family.samples


def _labelled(line: str, label: str) -> str:
    """A sample with one label more: `name value` or `name{labels} value`."""
    name, _, value = line.partition(" ")
    if "{" in name:  # then the first one begins the labels
        return line.replace("{", f"{{{label},", 1)
    return f"{name}{{{label}}} {value}"


class _Shown(Collector):
    def __init__(self, own: CollectorRegistry, shown: Collection[MetricName]) -> None:
        self._own, self._shown = own, {f"{NAMESPACE}_{name}" for name in shown}

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        return (family for family in self._own.collect() if family.name in self._shown)
