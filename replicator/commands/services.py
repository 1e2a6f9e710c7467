"""`replicator egress|ingress|sync`: the services in the foreground."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from infra.runtime.process_exit import exit_process
from infra.runtime.service import build_and_run
from replicator.services.command_logs import set_up_logs
from replicator.terminal.interrupt import ended_by_interrupt
from replicator.terminal.output import (
    DIFFERENCES,
    FAILED,
    ConfigFile,
    bars,
    complain,
    count_text,
    load_config,
    on_sigterm,
    print_text,
    set_up_service_logs,
    settings_file,
    size_text,
)

if TYPE_CHECKING:
    from egress.bucket_sync import SyncResult
    from infra.runtime.service import Service
    from replicator.config import Config, SettingsFile
    from replicator.services.flow_task import Flow


OnSpark = Annotated[
    bool, typer.Option("--spark", help="Run on compaction.master: each task is a member of the consumer group.")
]
Tasks = Annotated[
    int | None,
    typer.Option("--tasks", metavar="N", min=1, help="With --spark: how many tasks; default: the cluster's cores."),
]


def egress(config: ConfigFile = None, spark: OnSpark = False, tasks: Tasks = None) -> None:
    """Archive this region's topics in its bucket.

    A service: it runs until SIGTERM or Ctrl-C. It takes over what changes in the file, where no restart is needed:
    `replicator config explain` says where.
    """
    file = settings_file(config)
    settings = file.load()
    set_up_service_logs(settings)
    if _is_on_spark(spark, tasks):
        _run_on_spark(file, settings, "egress", tasks)
        return
    if settings.egress is not None and settings.egress.processes > 1:
        _run_processes(file, settings, "egress", settings.egress.processes)
        return

    def build() -> Service:
        from replicator.services.egress import build_egress

        return build_egress(settings, file=file)

    _run(build)


def ingress(
    config: ConfigFile = None,
    take_over: Annotated[
        str,
        typer.Option(
            "--take-over",
            metavar="OLD_GROUP",
            help="Take the checkpoint topic over from this group, for good.",
        ),
    ] = "",
    spark: OnSpark = False,
    tasks: Tasks = None,
) -> None:
    """Deliver archived topics to this region's cluster.

    A service: it runs until SIGTERM or Ctrl-C, and takes over what changes in the file, where no restart is needed.
    --take-over is refused while that group has members; afterwards the checkpoint topic belongs to the file's group.
    With it, one process runs, whatever `processes` says.
    """
    file = settings_file(config)
    settings = file.load()
    set_up_service_logs(settings)
    if _is_on_spark(spark, tasks):
        if take_over:
            raise typer.BadParameter("--take-over is done once, by one process: run it without --spark, then with it")
        _run_on_spark(file, settings, "ingress", tasks)
        return
    if settings.ingress is not None and settings.ingress.processes > 1 and not take_over:
        _run_processes(file, settings, "ingress", settings.ingress.processes)
        return

    def build() -> Service:
        from replicator.services.ingress import build_ingress

        return build_ingress(settings, take_over=take_over, file=file)

    _run(build)


def sync(
    config: ConfigFile = None,
    once: Annotated[bool, typer.Option("--once", help="Copy what is missing now, then end.")] = False,
    spark: Annotated[bool, typer.Option("--spark", help="With --once: copy and compare on compaction.master.")] = False,
) -> None:
    """Copy this region's archive to another bucket.

    A service, unless --once: it runs until SIGTERM or Ctrl-C. An object that is there and differs is named, and never
    overwritten. With --once, exit code 3 when one differs, 1 when one could not be copied.
    """
    settings = load_config(config)
    if spark and not once:
        raise typer.BadParameter("a job on Spark ends: --spark needs --once")
    if once:
        with ended_by_interrupt("what was copied stays, and the next run copies the rest"):
            _report_sync(_synced_on_spark(settings) if spark else _synced(settings))
        return
    set_up_service_logs(settings)

    def build() -> Service:
        from replicator.services.sync import build_sync

        return build_sync(settings)

    _run(build)


def _synced(settings: Config) -> SyncResult | None:
    """None when it was stopped before its end."""
    from infra.runtime.tuning import tune
    from replicator.services.sync import build_sync

    set_up_logs(settings)
    tune()
    ended: list[SyncResult] = []
    service = build_sync(settings, once=ended.append)
    with on_sigterm(service.stop):
        service.start()
        service.join()
    return ended[0] if ended else None


def _synced_on_spark(settings: Config) -> SyncResult:
    from infra.runtime.lifecycle import Stop
    from replicator.services.compaction import spark_settings
    from replicator.services.sync import sync_on_spark

    set_up_logs(settings)
    stop = Stop()
    with on_sigterm(stop.set), bars(quiet=False) as begin:
        return sync_on_spark(settings, spark_settings(settings), stop=stop, progress=begin("rows"))


def _report_sync(result: SyncResult | None) -> None:
    if result is None:
        return
    print_text(
        f"copied {count_text(result.copied)} objects, {size_text(result.copied_bytes)}; "
        f"{count_text(result.present)} were there"
    )
    if result.difference:
        complain(result.difference)
        raise typer.Exit(DIFFERENCES)


def _is_on_spark(spark: bool, tasks: int | None) -> bool:
    if tasks is not None and not spark:
        raise typer.BadParameter("--tasks is of --spark: without it, start another process for another member")
    return spark


def _run_on_spark(file: SettingsFile, settings: Config, flow: Flow, tasks: int | None) -> None:
    try:
        from replicator.services.on_spark import build_on_spark
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "py4j"):
            raise
        complain(f"--spark needs PySpark, which is not installed here ({error}): pip install 'pyspark>=4.1'")
        raise typer.Exit(FAILED) from None
    _run(lambda: build_on_spark(settings, flow, tasks=tasks, file=file))


def _run_processes(file: SettingsFile, settings: Config, flow: Flow, processes: int) -> None:
    def build() -> Service:
        from replicator.services.processes import build_processes

        return build_processes(settings, flow, processes=processes, file=file)

    _run(build)


def _run(build: Callable[[], Service]) -> None:
    """`build` imports what the service needs, after `tune`: the first Arrow array of a module would load pandas."""
    from infra.runtime.tuning import tune

    tune()
    exit_process(build_and_run(build))
