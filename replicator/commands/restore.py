"""`replicator restore`: topics from the archive into this cluster, planned first, exactly once, resumable."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.commands.restore_output import plan_json, print_plan, print_result, print_sample, result_json
from replicator.commands.restore_progress import progress
from replicator.terminal.options import (
    From,
    Incarnation,
    Offsets,
    Partitions,
    Region,
    Renames,
    Topics,
    Until,
    pair,
    parsed,
    selected,
)
from replicator.terminal.output import (
    DIFFERENCES,
    DONE,
    FAILED,
    INTERRUPTED,
    USAGE,
    AsJson,
    ConfigFile,
    complain,
    ended_and_told,
    load_config,
    print_json,
    print_text,
    set_up_work,
    spark_if,
)

if TYPE_CHECKING:
    from replicator.restore.conflicts import ConflictKind
    from replicator.restore.plan import RestorePlan
    from replicator.restore.progress import RestoreOutcome

FINISHES = "what is under way is delivered first; a second signal ends it at once"
SAMPLE = 5  # records that --dry-run shows before and after

Accept = Annotated[
    list[str] | None, typer.Option("--accept", metavar="OBJECTION", help="Begin in spite of it; may be repeated.")
]


def restore(  # noqa: PLR0917 -- options of a command
    topics: Topics,
    config: ConfigFile = None,
    region: Region = None,
    rename: Renames = None,
    partition: Partitions = None,
    offsets: Offsets = None,
    from_: From = None,
    until: Until = None,
    incarnation: Incarnation = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    restore_id: Annotated[str, typer.Option("--id", help="A name for it; the same one goes on where it stood.")] = "",
    accept: Accept = None,
    partition_count: Annotated[int | None, typer.Option("--partition-count", min=1)] = None,
    replication_factor: Annotated[int, typer.Option("--replication-factor", help="-1: the cluster's default.")] = -1,
    topic_config: Annotated[list[str] | None, typer.Option("--topic-config", metavar="KEY=VALUE")] = None,
    keep: Annotated[
        list[str] | None, typer.Option("--filter", metavar="MODULE:FUNCTION", help="Says which records stay.")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--map", metavar="MODULE:FUNCTION", help="Changes the records.")
    ] = None,
    max_rate: Annotated[str | None, typer.Option("--max-rate", metavar="SIZE", help="A second, such as 50MiB.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with new segments, until it is stopped.")] = False,
    every: Annotated[str, typer.Option("--every", help="How often --follow looks for new segments.")] = "30s",
    spark: Annotated[bool, typer.Option("--spark", help="On compaction.master: a task for each partition.")] = False,
    thaw: Annotated[bool, typer.Option("--thaw", help="Ask for archived objects (Glacier), and end.")] = False,
    thaw_days: Annotated[int, typer.Option("--thaw-days", min=1, help="How long they are to be readable.")] = 7,
    as_json: AsJson = False,
) -> None:
    """Restore topics from the archive into this cluster.

    Stopped or killed, it goes on where it stood when the same command is given again. Exit code 3 when something could
    not be restored, is corrupt, is missing or was accepted as missing; with --dry-run, when something speaks against
    it, which without --dry-run is code 1, and nothing is begun. Ctrl-C ends it in order, and says where it stood; a
    second one ends it at once.
    """
    from infra.runtime.lifecycle import Stop
    from infra.settings.units import parse_duration, parse_size
    from replicator.restore.restore import Options, Restore, RestoreStopped, TargetOptions

    settings = load_config(config)
    set_up_work(settings)
    selection = selected(
        settings,
        topics,
        region,
        rename,
        partition,
        offsets,
        from_,
        until,
        incarnation,
        [*(keep or []), *(change or [])],
    )
    wishes = TargetOptions(
        accept=[_objection(name) for name in accept or ()],
        partition_count=partition_count,
        replication_factor=replication_factor,
        configs=dict(pair(text, "--topic-config") for text in topic_config or ()),
    )
    if spark and follow:
        raise typer.BadParameter("--follow goes on for ever, and a task of Spark should end: use one of them")
    rate = None if max_rate is None else parsed(parse_size, max_rate)
    options = Options(
        restore_id=restore_id,
        keep=tuple(keep or ()),
        change=tuple(change or ()),
        max_rate=rate,
        follow=parsed(parse_duration, every) if follow else None,
        spark=spark_if(spark, settings),
    )
    stop = Stop()
    with Restore(settings, selection, wishes, options, stop=stop) as restoring:
        if not dry_run and not thaw:
            restoring.take_over()
        plan = restoring.plan()
        if dry_run:
            if as_json:
                print_json(plan_json(plan, rate))
            else:
                print_plan(plan, rate)
                print_sample(restoring.sample(plan, SAMPLE))
                print_text("nothing was written")
            _refuse_empty(plan, follow=follow)
            raise typer.Exit(DIFFERENCES if plan.refused else 0)
        if thaw and any(topic.frozen for topic in plan.topics):
            count = restoring.thaw(plan, thaw_days)
            complain(f"asked for {count:,} archived objects; in some hours, the same command restores from them")
            raise typer.Exit(DIFFERENCES)
        if not as_json:
            print_plan(plan, rate)
        _refuse_empty(plan, follow=follow)
        if plan.refused:  # said once: on stdout, with the plan
            if as_json:
                print_json(plan_json(plan, rate))
            complain("this restore would not end well, so nothing was begun")
            raise typer.Exit(FAILED)
        began = time.monotonic()
        with progress(plan, follow=follow, quiet=as_json) as shown, ended_and_told(stop, FINISHES) as signals:
            try:
                outcomes = restoring.run(plan, shown.told, shown.told_on_spark)
            except RestoreStopped as error:
                complain(str(error))
                raise typer.Exit(INTERRUPTED if signal.SIGINT in signals else FAILED) from None
        took = timedelta(seconds=time.monotonic() - began)
    if as_json:
        print_json(result_json(plan, selection.transforms, outcomes, took))
    else:
        print_result(plan, outcomes, selection.transforms, took)
    code = exit_code(outcomes, signals, follow=follow)
    if code in {FAILED, INTERRUPTED}:
        complain(shown.stopped(outcomes))
    if code != DONE:
        raise typer.Exit(code)


def exit_code(outcomes: Sequence[RestoreOutcome], signals: Collection[int], *, follow: bool) -> int:
    """`signals`: those that came. A restore that was over when Ctrl-C came was not ended by it."""
    is_cut_short = follow or not all(outcome.is_done or outcome.failed for outcome in outcomes)
    if signal.SIGINT in signals and is_cut_short:
        return INTERRUPTED
    if not all(outcome.is_whole for outcome in outcomes):
        return DIFFERENCES
    return DONE if follow or all(outcome.is_done for outcome in outcomes) else FAILED


def _refuse_empty(plan: RestorePlan, *, follow: bool) -> None:
    """A follower waits for what comes."""
    from replicator.restore.restore import EMPTY

    if plan.is_empty and not follow:
        complain(f"{EMPTY}: nothing was created")
        raise typer.Exit(USAGE)


# --- what the user says


def _objection(name: str) -> ConflictKind:
    from replicator.restore.conflicts import ACCEPTED, ConflictKind

    if name not in list(ACCEPTED):
        raise typer.BadParameter(f"--accept {name!r}: may be {', '.join(ACCEPTED)}")
    return ConflictKind(name)
