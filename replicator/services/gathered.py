"""A service that is several: one `/metrics`, `/readyz` and reload for the processes that each run a flow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Protocol

from infra.runtime import log_fields
from infra.runtime.gathered_metrics import GatheredMetrics
from infra.runtime.health import Health, HealthSnapshot
from infra.runtime.health_server import HealthServer
from infra.runtime.metrics import MetricName
from infra.runtime.service import Service
from infra.runtime.threaded_service import ThreadedService
from infra.runtime.workers.supervisor_parts import SupervisorParts
from replicator.config import Config, SettingsFile
from replicator.config.reload import EGRESS, INGRESS
from replicator.services.flow_task import Flow, FlowTask, section_of
from replicator.services.listener_access import access_of
from replicator.services.preserving import check_preserving
from replicator.services.reload import ConfigReloader
from replicator.services.wiring import GRACE

HEARING = timedelta(seconds=2)  # until the last process has the order to drain, and this one its end

log = logging.getLogger(__name__)


class TaskSupervisor(Protocol):
    """Runs N processes, and knows how they are. Everything but `run` may be called from any thread."""

    @property
    def health(self) -> Health:
        """Problems of its own."""

    def run(self) -> None:
        """Until it is stopped, and all processes have drained."""

    def change_settings(self, pickled: bytes, /) -> None:
        """Let every process take them over."""

    def snapshot(self) -> HealthSnapshot: ...

    def metrics_by_task(self, accept: str, /) -> Mapping[int, str]:
        """The page of each process, in the format that a scraper asks for."""


def drains_within(config: Config, flow: Flow) -> timedelta:
    """Until every process has drained after an order. Raises ConfigError without a section of the flow."""
    return section_of(config, flow).shutdown_timeout + GRACE + HEARING


def gathered_service(
    supervisor: TaskSupervisor,
    builder: FlowTask,
    *,
    own_metrics: tuple[MetricName, ...],
    parts: SupervisorParts,
    grace: timedelta,
    file: SettingsFile | None,
) -> Service:
    """`builder`: what each process runs. `own_metrics`: of this process, beside those of the others. `file`: where the
    configuration is from; its changes go to the processes."""
    config, flow = builder.config, builder.flow
    if config.metrics.listen is not None:
        pages = GatheredMetrics(parts.metrics.registry, own_metrics, supervisor.metrics_by_task)
        access = access_of(config.metrics)
        server = HealthServer(
            config.metrics.listen, pages, supervisor, clock=parts.clock, metrics=parts.metrics, access=access
        )
        parts.resources.callback(server.close)
        log.info("listening", extra={log_fields.ADDRESS: server.address})
    loops: dict[str, Callable[[], None]] = {flow: supervisor.run}
    reloader = None
    if file is not None:
        reloader = ConfigReloader(
            file=file,
            running=config,
            reads=EGRESS if flow == "egress" else INGRESS,
            apply=lambda changed: supervisor.change_settings(builder.changed(changed)),
            check=check_preserving,
            health=supervisor.health,
            stop=parts.stop,
        )
        loops["config"] = reloader.run
    reload = reloader.request if reloader else None
    return ThreadedService(loops, parts.stop, parts.resources, grace=grace, reload=reload)
