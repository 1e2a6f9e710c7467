"""`replicator backfill`: write history that is still in Kafka into the archive; planned first, resumable."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.terminal.options import From, Offsets, Partitions, Topics, Until, parsed, parsed_offsets
from replicator.terminal.output import (
    DIFFERENCES,
    FAILED,
    INTERRUPTED,
    AsJson,
    ConfigFile,
    bars,
    complain,
    load_config,
    print_json,
    print_text,
    set_up_work,
    spark_if,
    stop_on_signals,
)

if TYPE_CHECKING:
    from infra.runtime.lifecycle import Stop
    from infra.spark.driver import SparkSettings
    from replicator.backfill.backfill import Backfill
    from replicator.backfill.request import BackfillPlan, BackfillReport, BackfillRequest
    from replicator.config import Config

FINISHES = "what is stored stays, and the same command goes on after it; a second signal ends it at once"


def backfill(  # noqa: PLR0917 -- options of a command
    topics: Topics,
    config: ConfigFile = None,
    partition: Partitions = None,
    offsets: Offsets = None,
    from_: From = None,
    until: Until = None,
    gaps: Annotated[bool, typer.Option("--gaps", help="Also write what recorded gaps say is missing.")] = False,
    leave_gap: Annotated[
        bool, typer.Option("--leave-gap", help="Record as a gap what is left out before the archive's begin.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    spark: Annotated[bool, typer.Option("--spark", help="Run a task for each range on compaction.master.")] = False,
    parallelism: Annotated[
        int, typer.Option("--parallelism", min=1, help="Write so many ranges at a time, without --spark.")
    ] = 4,
    task_offsets: Annotated[
        int | None, typer.Option("--task-offsets", min=1, help="Offsets of a range; default: ten full segments.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write what is still in Kafka of topics into the archive.

    Without options, everything that the cluster still has and the archive does not: what is before the archive's begin,
    and what is missing behind it. Egress may run meanwhile. Stopped or killed, it goes on when the same command is run
    again. Exit code 3 when a partition could not be written to its end; with --dry-run, when there is a conflict, which
    without --dry-run is code 1, and nothing is written.
    """
    from formats.topic_selection import TopicPattern
    from replicator.backfill.request import BackfillRequest
    from replicator.terminal.source_names import instant

    settings = load_config(config)
    set_up_work(settings)
    try:
        request = BackfillRequest(
            topics=[TopicPattern(topic) for topic in topics],
            partitions=frozenset(partition) if partition else None,
            offsets=parsed_offsets(offsets),
            since=None if from_ is None else parsed(instant, from_),
            until=None if until is None else parsed(instant, until),
            fill_gaps=gaps,
            leave_gap=leave_gap,
            task_offsets=task_offsets,
            parallelism=parallelism,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    _execute(settings, request, spark_if(spark, settings), dry_run=dry_run, as_json=as_json)


def _execute(
    settings: Config, request: BackfillRequest, spark: SparkSettings | None, *, dry_run: bool, as_json: bool
) -> None:
    from infra.runtime.lifecycle import Stop
    from replicator.backfill.backfill import Backfill
    from replicator.commands.backfill_output import plan_json, print_plan, print_report, report_json

    stop = Stop()
    with Backfill(settings, request, spark=spark, stop=stop) as filling:
        plan = filling.plan()
        if not as_json:
            print_plan(plan, filling.tasks_at_once)
        if dry_run or plan.conflicts or plan.is_empty:
            if as_json:
                print_json(plan_json(plan, filling.tasks_at_once))
            _end_without_work(is_refused=bool(plan.conflicts), is_empty=plan.is_empty, dry_run=dry_run, as_json=as_json)
            return
        report, signals = _run(filling, plan, stop, quiet=as_json)
    if as_json:
        print_json(report_json(report))
    else:
        print_report(report)
    if report.is_stopped:
        complain("stopped before its end; run the same command again to go on")
        raise typer.Exit(INTERRUPTED if signal.SIGINT in signals else FAILED)
    if report.failed:
        raise typer.Exit(DIFFERENCES)


def _run(filling: Backfill, plan: BackfillPlan, stop: Stop, *, quiet: bool) -> tuple[BackfillReport, Sequence[int]]:
    from replicator.backfill.range_writer import BackfillStopped

    with bars(quiet=quiet) as begin, stop_on_signals(stop, FINISHES) as signals:
        try:
            return filling.run(plan, begin("ranges")), signals
        except BackfillStopped as error:
            complain(str(error))
            raise typer.Exit(INTERRUPTED if signal.SIGINT in signals else FAILED) from None


def _end_without_work(*, is_refused: bool, is_empty: bool, dry_run: bool, as_json: bool) -> None:
    if is_refused:
        complain("this backfill has conflicts, so nothing was started")
        raise typer.Exit(DIFFERENCES if dry_run else FAILED)
    if not as_json:
        print_text("nothing is left to do" if is_empty else "nothing was written")
