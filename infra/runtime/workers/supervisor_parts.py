"""What a process that supervises others shares between its supervisor, its HTTP server and its threads."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

from infra.runtime.lifecycle import Clock, Stop, SystemClock
from infra.runtime.prometheus import PrometheusMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorParts:
    """Of the parent of processes on this machine, or of the driver of tasks on Spark. `resources` is closed when the
    service has ended."""

    clock: Clock = field(default_factory=SystemClock)
    metrics: PrometheusMetrics = field(default_factory=PrometheusMetrics)
    stop: Stop = field(default_factory=Stop)
    resources: ExitStack = field(default_factory=ExitStack)
