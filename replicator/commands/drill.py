"""`replicator drill`: restore into a scratch cluster, verify and measure it."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from formats.errors import ReplicatorError
from replicator.terminal.options import AnyTopics, Partitions, Region, selected
from replicator.terminal.output import (
    DIFFERENCES,
    AsJson,
    ConfigFile,
    ended_by_signal,
    load_config_of_archive,
    load_other_config,
    print_json,
    print_text,
    set_up_work,
    size_text,
    spark_if,
)
from replicator.terminal.written_file import require_writable

if TYPE_CHECKING:
    from replicator.config import Config
    from replicator.drill import Drilled

SCRATCH = "scratch"


def drill(  # noqa: PLR0917 -- options of a command
    topics: AnyTopics = None,
    config: ConfigFile = None,
    region: Region = None,
    partition: Partitions = None,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", min=1, help="Restore N partitions, chosen at random.")
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="FILE", help="Restore into this file's cluster; default: start one."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--source", metavar="FILE", help="Measure RPO against this file's cluster; default: --config."),
    ] = None,
    history: Annotated[
        Path | None, typer.Option("--history", metavar="FILE", help="Append the measurements as a line of JSON.")
    ] = None,
    metrics_file: Annotated[
        Path | None,
        typer.Option("--metrics-file", metavar="FILE", help="Write metrics for Prometheus' textfile collector."),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Run on Spark: compaction.master of the file.")] = False,
    as_stored: Annotated[
        bool,
        typer.Option("--as-stored", help="Go by what is stored alone: egress reported more than this bucket gets."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Rehearse a restore, and measure RTO and RPO.

    Restores from the archive into a scratch cluster and compares every record. Made for cron. Without --into it starts
    a Kafka broker on this machine and removes it at the end; with --into, it deletes the topics that it created. Exit
    code 3 when anything could not be restored or is not equal.
    """
    from infra.runtime.lifecycle import Stop, SystemClock

    require_writable("--history", history)
    require_writable("--metrics-file", metrics_file, replaced=True)
    settings = load_config_of_archive(config)
    set_up_work(settings)  # before what loads Arrow
    from replicator.drill import Drill, Drilled, DrillStopped, append, write_metrics
    from replicator.verify.verify import Verification

    chosen = selected(
        settings,
        topics or ["^.*"],
        region,
        rename=None,
        partitions=partition,
        offsets=None,
        from_=None,
        until=None,
        incarnation=None,
        transforms=(),
    )
    stop, began = Stop(), SystemClock().now()

    def record(drilled: Drilled) -> None:
        if history is not None:
            append(history, drilled)
        if metrics_file is not None:
            write_metrics(metrics_file, drilled)

    try:
        with Verification(settings, chosen, stop=stop) as verification:
            verification.sources()  # fails before a cluster is started if the archive is missing or may not be read
        with ended_by_signal(stop), _scratch(settings, into) as scratch:
            found = Drill(
                config=settings,
                scratch=scratch,
                selection=chosen,
                source=None if source is None else load_other_config(source),
                sample=sample,
                spark=spark_if(spark, settings),
                renames=into is not None,
                as_stored=as_stored,
            ).run(stop)
    except DrillStopped:  # by a person, or a machine that ends: it says nothing of a restore
        raise
    except ReplicatorError as error:
        record(Drilled.failed(chosen.region, began, str(error)))  # else those of the last good one would stay
        raise
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)
    record(found)
    if not found.is_good:
        raise typer.Exit(DIFFERENCES)


@contextmanager
def _scratch(settings: Config, into: Path | None) -> Iterator[Config]:
    if into is not None:
        yield load_other_config(into)
        return
    from infra.local.stack import LocalStack
    from replicator.config import KafkaSettings

    with LocalStack(regions=(SCRATCH,)) as stack:
        kafka = KafkaSettings(base={"bootstrap.servers": stack.brokers[SCRATCH].bootstrap})
        yield replace(settings, kafka=kafka)


def _print(found: Drilled) -> None:
    for warning in found.warnings:
        print_text(f"warning: {warning}")
    for what in found.differences:
        print_text(what)
    equal = "every one of them equal" if found.is_good else f"{found.bad} partitions NOT restored, or not equal"
    print_text(f"{found.partitions} partitions, {found.records:,} records, {size_text(found.size_bytes)}: {equal}")
    print_text(f"RTO {found.restore_seconds:.1f} s (and {found.verify_seconds:.1f} s to prove it)")
    behind = found.behind_seconds
    print_text(f"RPO {f'unknown: {found.behind_unknown}' if behind is None else f'{behind:.1f} s'}")
