"""Builds egress and ingress as several processes of this machine: the parent's side.

service = build_processes(load(Path("replicator.toml")), "egress", processes=4)
service.start(); …; service.stop(); service.join(timedelta(seconds=30))
"""

from __future__ import annotations

from infra.runtime.metrics import MetricName
from infra.runtime.service import Service
from infra.runtime.workers.processes import WorkerProcesses
from infra.runtime.workers.supervisor_parts import SupervisorParts
from replicator.config import Config, SettingsFile
from replicator.services.flow_task import Flow, FlowTask, configured_instance
from replicator.services.gathered import HEARING, drains_within, gathered_service

PARENTS_OWN: tuple[MetricName, ...] = (
    *("ready", "worker_processes", "running_worker_processes", "lost_worker_processes"),
)


def build_processes(config: Config, flow: Flow, *, processes: int, file: SettingsFile | None = None) -> Service:
    """A service whose `processes` children each run `flow` as a member of its group. `file`: where `config` is from;
    its changes go to the children. Raises ConfigError; the run raises ProcessesNotStarted."""
    drain_within, parts = drains_within(config, flow), SupervisorParts()
    # without a configured instance id, members are dynamic: other machines have processes with the same numbers
    builder = FlowTask(flow=flow, config=config, instance_base=configured_instance(config))
    builder.config_of(0)  # its problems belong to the start
    supervisor = WorkerProcesses(count=processes, builder=builder, drain_within=drain_within, parts=parts)
    return gathered_service(
        supervisor,
        builder,
        own_metrics=PARENTS_OWN,
        parts=parts,
        grace=drain_within + HEARING,
        file=file,
    )
