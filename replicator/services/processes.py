"""Builds egress and ingress as several processes of this machine: the parent's side.

service = build_processes(load(Path("replicator.toml")), "egress", processes=4)
service.start(); …; service.stop(); service.join(timedelta(seconds=30))
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta

from infra.runtime.lifecycle import Stop, SystemClock
from infra.runtime.metrics import MetricName
from infra.runtime.prometheus import PrometheusMetrics
from infra.runtime.service import Service
from infra.runtime.workers.processes import WorkerProcesses
from replicator.config import Config, SettingsFile
from replicator.services.flow_task import Flow, FlowTask, configured_instance
from replicator.services.gathered import gathered_service
from replicator.services.wiring import GRACE

PARENTS_OWN: tuple[MetricName, ...] = (
    *("ready", "worker_processes", "running_worker_processes", "lost_worker_processes"),
)
HEARING = timedelta(seconds=2)  # until the last process has the order to drain, and the parent its end


def build_processes(config: Config, flow: Flow, *, processes: int, file: SettingsFile | None = None) -> Service:
    """A service whose `processes` children each run `flow` as a member of its group. `file`: where `config` is from;
    its changes go to the children. Raises ConfigError; the run raises ProcessesNotStarted."""
    section = config.egress if flow == "egress" else config.ingress
    if section is None:
        raise config.without(flow, f"; add [{flow}]")
    # without a configured instance id, members are dynamic: other machines have processes with the same numbers
    builder = FlowTask(flow=flow, config=config, instance_base=configured_instance(config))
    builder.config_of(0)  # its problems belong to the start
    drain_within = section.shutdown_timeout + GRACE + HEARING
    clock, metrics, stop, resources = SystemClock(), PrometheusMetrics(), Stop(), ExitStack()
    supervisor = WorkerProcesses(
        count=processes,
        builder=builder,
        drain_within=drain_within,
        clock=clock,
        metrics=metrics,
        stop=stop,
        resources=resources,
    )
    return gathered_service(
        supervisor,
        builder,
        own_metrics=PARENTS_OWN,
        metrics=metrics,
        clock=clock,
        stop=stop,
        resources=resources,
        grace=drain_within + HEARING,
        file=file,
    )
