"""One of several processes, on Spark or of this machine, is one service: egress or ingress, unchanged, as a member of
its consumer group."""

from __future__ import annotations

import io
import logging
import pickle
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TextIO, assert_never, cast

from infra.runtime import log_fields
from infra.runtime.logs import configure
from infra.runtime.workers.attempt import WatchedService
from infra.spark.java_output import PASSED_ON
from replicator.config import Config
from replicator.services.wiring import ServiceContext, for_workers

if TYPE_CHECKING:
    from egress.settings import EgressSettings
    from ingress.settings import IngressSettings

Flow = Literal["egress", "ingress"]
INSTANCE = "group.instance.id"
NEEDED = ("kafka", "egress", "sqs", "ingress", "schema_registry")  # each service leaves the other's topics alone


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowTask:
    """An `infra.runtime.workers.attempt.ServiceBuilder`. Pickled with its configuration, which includes credentials.

    `passes_logs`: the worker's stderr comes to the driver, which writes our lines to its own. `instance_base`: of the
    members' `group.instance.id`, to which the task's number is added; empty: members are dynamic.
    """

    flow: Flow
    config: Config = field(repr=False)
    passes_logs: bool = False
    instance_base: str

    def instance(self, task: int) -> str:
        return f"{self.instance_base}-{task}" if self.instance_base else ""

    def set_up(self, task: int) -> None:
        style = self.config.log.format or "json"
        stream = cast("TextIO", _PassedOn(sys.stderr)) if self.passes_logs else sys.stderr
        configure(self.config.log.level or "info", style, stream).addFilter(_TaskField(task))

    def build(self, task: int, settings: bytes | None) -> WatchedService:
        config = self._with(self.config_of(task), settings)
        around, sent = ServiceContext(config), SentConfig(config)
        match self.flow:
            case "egress":  # each process loads its own flow, and their parent neither
                from replicator.services.egress import build_egress  # noqa: PLC0415

                service = build_egress(config, around=around, file=sent)
            case "ingress":
                from replicator.services.ingress import build_ingress  # noqa: PLC0415

                service = build_ingress(config, around=around, file=sent)
            case _:
                assert_never(self.flow)

        def metrics_text(accept: str) -> str:
            around.metrics.gauge("ready", float(around.health.snapshot().is_ready))
            return around.metrics.page(accept).text

        def change(pickled: bytes) -> None:
            sent.replace(self._with(config, pickled))

        return WatchedService(service=service, health=around.health, metrics_text=metrics_text, change=change)

    def _with(self, config: Config, settings: bytes | None) -> Config:
        """`settings`: of `changed`."""
        # the driver has proved that it sent them, as it has sent this task
        return config if settings is None else replace(config, **{self.flow: pickle.loads(settings)})  # noqa: S301

    def changed(self, config: Config) -> bytes:
        """The settings of `config` that reload, for `WatchedService.change`. They are in the flow's section, which
        holds no credentials."""
        return pickle.dumps(config.egress if self.flow == "egress" else config.ingress)

    def config_of(self, task: int) -> Config:
        """The configuration with an instance id of the task's own, and without a port: the driver serves for all."""
        config = for_workers(self.config, *NEEDED)
        cluster = config.cluster
        consumer = {**cluster.consumer, **({INSTANCE: self.instance(task)} if self.instance_base else {})}
        return replace(config, kafka=replace(cluster, consumer=consumer))


class SentConfig:
    """A `replicator.services.reload.ReloadedFile`: what the driver has sent last, else what the task began with."""

    path = "the driver's configuration"

    def __init__(self, config: Config) -> None:
        self._sent = (0, config)

    def replace(self, config: Config) -> None:
        self._sent = (self._sent[0] + 1, config)

    def read(self) -> str:
        return str(self._sent[0])

    def parse(self, _text: str) -> Config:
        return self._sent[1]


def configured_instance(config: Config) -> str:
    """The configured `group.instance.id` of consumers; empty without one."""
    return config.cluster.properties("consumer").get(INSTANCE, "")


def instance_base(config: Config, flow: Flow) -> str:
    """The configured `group.instance.id`, else the group's id."""
    return configured_instance(config) or section_of(config, flow).group_id


def section_of(config: Config, flow: Flow) -> EgressSettings | IngressSettings:
    """Raises ConfigError without one."""
    section = config.egress if flow == "egress" else config.ingress
    if section is None:
        raise config.without(flow, f"; add [{flow}]")
    return section


class _TaskField(logging.Filter):
    """Adds the task's number to each line."""

    def __init__(self, task: int) -> None:
        super().__init__()
        self._task = task

    def filter(self, record: logging.LogRecord) -> bool:
        setattr(record, log_fields.TASK, self._task)
        return True


class _PassedOn(io.TextIOBase):
    """Marks each line for the driver. Written at once: lines of several processes share the pipe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write("".join(f"{PASSED_ON}{line}\n" for line in text.splitlines()))
        self._stream.flush()
        return len(text)

    def flush(self) -> None:
        self._stream.flush()
