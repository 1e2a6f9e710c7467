"""Builds egress and ingress as Spark applications: the driver's side.

service = build_on_spark(load(Path("replicator.toml")), "egress", tasks=4)
service.start(); …; service.stop(); service.join(timedelta(seconds=30))
"""

from __future__ import annotations

from datetime import timedelta

from infra.runtime.metrics import MetricName
from infra.runtime.service import Service
from infra.runtime.spark_submit import is_submitted
from infra.runtime.workers.supervisor_parts import SupervisorParts
from infra.spark.driver import SparkSettings
from infra.spark.long_job import LongJob
from replicator.config import Config, SettingsFile
from replicator.services.compaction import spark_settings
from replicator.services.flow_task import Flow, FlowTask, instance_base
from replicator.services.gathered import drains_within, gathered_service

DRIVERS_OWN: tuple[MetricName, ...] = (
    *("ready", "spark_tasks", "spark_running_tasks", "spark_lost_attempts", "spark_failed_jobs"),
)
JAVA_ENDS = timedelta(seconds=10)


def build_on_spark(
    config: Config,
    flow: Flow,
    *,
    tasks: int | None = None,
    spark: SparkSettings | None = None,
    file: SettingsFile | None = None,
) -> Service:
    """A service whose N tasks on Spark each run `flow`. `tasks`: None: as many as the cluster has cores. `spark`: by
    default the settings of [compaction]. `file`: where `config` is from; its changes go to the tasks. Raises
    ConfigError; the run raises JavaMissing, SparkUnavailable and TasksNotStarted."""
    drain_within, parts = drains_within(config, flow), SupervisorParts()
    settings = spark or spark_settings(config)
    # the workers of a local master share the output of the Java that this process has started
    passes_logs = settings.is_local and not is_submitted()
    base = instance_base(config, flow)
    builder = FlowTask(flow=flow, config=config, passes_logs=passes_logs, instance_base=base)
    builder.config_of(0)  # its problems belong to the start
    job = LongJob(settings=settings, tasks=tasks, builder=builder, drain_within=drain_within, parts=parts)
    return gathered_service(
        job,
        builder,
        own_metrics=DRIVERS_OWN,
        parts=parts,
        grace=drain_within + JAVA_ENDS,
        file=file,
    )
