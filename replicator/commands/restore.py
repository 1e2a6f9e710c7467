"""`replicator restore`: restore topics from the archive into this cluster; planned first, exactly once, resumable."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, NoReturn, assert_never

import typer

from replicator.commands.restore_progress import progress
from replicator.restore.choices import AclSource, ConfigMode
from replicator.terminal.options import (
    At,
    From,
    IncarnationOption,
    Offsets,
    Partitions,
    PreserveOffsets,
    Region,
    Renames,
    Topics,
    Transactional,
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
    load_config_of_archive,
    print_json,
    print_text,
    set_up_work,
    spark_if,
    stop_on_signals,
)

if TYPE_CHECKING:
    from infra.runtime.lifecycle import Stop
    from replicator.config import Config
    from replicator.restore.conflicts import ConflictKind
    from replicator.restore.group_restore import GroupOutcomes
    from replicator.restore.plan import RestorePlan
    from replicator.restore.progress import RestoreOutcome
    from replicator.restore.request import RestoreRequest
    from replicator.restore.restore import Restore

FINISHES = "what is in flight is delivered first; a second signal ends it at once"
SAMPLE = 5  # records that --dry-run shows before and after

Accept = Annotated[
    list[str] | None, typer.Option("--accept", metavar="CONFLICT", help="Start despite this conflict; may be repeated.")
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
    at: At = None,
    transactional: Transactional = False,
    groups: Annotated[
        bool,
        typer.Option("--groups/--no-groups", help="With --at: set the positions that inactive groups had then."),
    ] = False,
    preserve_offsets: PreserveOffsets = False,
    incarnation: IncarnationOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    restore_id: Annotated[str, typer.Option("--id", help="Name the restore; the same name resumes it.")] = "",
    accept: Accept = None,
    partition_count: Annotated[
        int | None, typer.Option("--partition-count", min=1, help="Create topics with so many partitions.")
    ] = None,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", help="Set the replication factor; -1: the cluster's default.")
    ] = -1,
    topic_config: Annotated[
        list[str] | None,
        typer.Option("--topic-config", metavar="KEY=VALUE", help="Create topics with this config; may be repeated."),
    ] = None,
    configs: Annotated[
        ConfigMode,
        typer.Option("--configs", help="Create topics as a restore needs them, as the source had them, or bare."),
    ] = ConfigMode.TARGET,
    acls: Annotated[
        AclSource, typer.Option("--acls", help="Create the ACLs that the source's topics had, as ingress mirrors them.")
    ] = AclSource.NONE,
    purge: Annotated[
        bool, typer.Option("--purge", help="Delete the records that destinations hold first; needs --yes.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete what --purge names.")] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="MODULE:FUNCTION", help="Keep the records that this function selects."),
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--map", metavar="MODULE:FUNCTION", help="Change records with this function.")
    ] = None,
    max_rate: Annotated[
        str | None,
        typer.Option(
            "--max-rate", metavar="SIZE", help="Limit the bytes per second, such as 50MiB; with --spark, of each task."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new segments, until stopped.")] = False,
    every: Annotated[str, typer.Option("--every", help="Set the interval of listings with --follow.")] = "30s",
    spark: Annotated[bool, typer.Option("--spark", help="Run a task for each partition on compaction.master.")] = False,
    thaw: Annotated[bool, typer.Option("--thaw", help="Request archived objects (Glacier), and end.")] = False,
    thaw_days: Annotated[
        int, typer.Option("--thaw-days", min=1, help="Keep requested objects readable for so many days.")
    ] = 7,
    as_json: AsJson = False,
) -> None:
    """Restore topics from the archive into this cluster.

    Stopped or killed, it resumes when the same command is run again. Exit code 3 when something could not be restored,
    is corrupt, is missing or was accepted as missing; with --dry-run, when there is a conflict, which without --dry-run
    is code 1, and nothing is started. Ctrl-C ends it in order and prints its position; a second one ends it at once.
    """
    from infra.settings.units import parse_duration, parse_size
    from replicator.restore.conflicts import ConflictKind
    from replicator.restore.request import Options, RestoreRequest
    from replicator.restore.target_options import TargetOptions

    settings = load_config_of_archive(config)
    set_up_work(settings)
    transforms = [*(keep or []), *(change or [])]
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
        transforms=transforms,
        at=at,
        is_transactional=transactional,
        preserves_offsets=preserve_offsets,
    )
    target = TargetOptions(
        accept=[*(_conflict_kind(name) for name in accept or ()), *([ConflictKind.PURGE] if yes else [])],
        partition_count=partition_count,
        replication_factor=replication_factor,
        configs=dict(pair(text, "--topic-config") for text in topic_config or ()),
        configs_from=configs,
        acls=acls,
        purge=purge,
    )
    if yes and not purge:
        raise typer.BadParameter("--yes confirms --purge, which is not given")
    if spark and follow:
        raise typer.BadParameter("--follow never ends, and a Spark task has to end: use one of them")
    options = Options(
        restore_id=restore_id,
        keep=tuple(keep or ()),
        change=tuple(change or ()),
        max_rate=None if max_rate is None else parsed(parse_size, max_rate),
        follow=parsed(parse_duration, every) if follow else None,
        spark=spark_if(spark, settings),
        groups=groups,
    )
    if at is not None and follow:
        raise typer.BadParameter("--follow goes on, and --at ends at a moment: use one of them")
    if groups and at is None:
        raise typer.BadParameter("positions of groups are those of a moment: --groups needs --at")
    request = RestoreRequest(
        selection=selection,
        target=target,
        options=options,
        dry_run=dry_run,
        thaw_days=thaw_days if thaw else None,
    )
    _execute(settings, request, as_json=as_json)


def _execute(settings: Config, request: RestoreRequest, *, as_json: bool) -> None:
    """Run the restore and print its result."""
    from infra.runtime.lifecycle import Stop
    from replicator.commands.restore_output import plan_json, print_plan, print_result, print_sample, result_json
    from replicator.restore.request import DryRun, Empty, Ready, Refused, Thawing
    from replicator.restore.restore import Restore

    stop, rate = Stop(), request.options.max_rate
    with Restore(settings, request.selection, request.target, request.options, stop=stop) as restoring:
        prepared = restoring.prepare(dry_run=request.dry_run, thaw_days=request.thaw_days)
        plan = prepared.plan
        if not as_json and not isinstance(prepared, Thawing):
            print_plan(plan, rate)
        match prepared:
            case DryRun():
                if as_json:
                    print_json(plan_json(plan, rate))
                else:
                    print_sample(restoring.sample(plan, SAMPLE))
                    print_text("nothing was written")
                if not restoring.is_empty(plan):
                    raise typer.Exit(DIFFERENCES if plan.refused or plan.lacking else 0)
                _nothing_selected()
            case Empty():
                _nothing_selected()
            case Thawing(objects=count):
                complain(f"requested {count:,} archived objects; run the same command again in some hours")
                raise typer.Exit(DIFFERENCES)
            case Refused():  # conflicts are printed once: on stdout, with the plan
                if as_json:
                    print_json(plan_json(plan, rate))
                complain("this restore has conflicts, so nothing was started")
                raise typer.Exit(FAILED)
            case Ready():
                ended = _run(restoring, plan, stop, follow=request.options.follow is not None, quiet=as_json)
            case _:
                assert_never(prepared)
    if as_json:
        print_json(result_json(plan, request.selection.transforms, ended.outcomes, ended.took, ended.groups))
    else:
        print_result(plan, ended.outcomes, request.selection.transforms, ended.took, ended.groups)
    if ended.code in {FAILED, INTERRUPTED}:
        complain(ended.stopped)
    if ended.code != DONE:
        raise typer.Exit(ended.code)


def _nothing_selected() -> NoReturn:
    from replicator.restore.restore import EMPTY

    complain(f"{EMPTY}: nothing was created")
    raise typer.Exit(USAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    outcomes: Sequence[RestoreOutcome]
    took: timedelta
    code: int
    stopped: str  # the totals when it was stopped
    groups: GroupOutcomes


def _run(restoring: Restore, plan: RestorePlan, stop: Stop, *, follow: bool, quiet: bool) -> _Ended:
    from replicator.restore.group_restore import SET
    from replicator.restore.restore import RestoreStopped

    began = time.monotonic()
    with progress(plan, follow=follow, quiet=quiet) as shown, stop_on_signals(stop, FINISHES) as signals:
        try:
            outcomes = restoring.run(plan, shown.update, shown.update_on_spark)
        except RestoreStopped as error:
            complain(str(error))
            raise typer.Exit(INTERRUPTED if signal.SIGINT in signals else FAILED) from None
    took = timedelta(seconds=time.monotonic() - began)
    code = exit_code(outcomes, signals, follow=follow)
    if code == DONE and plan.lacking:
        code = DIFFERENCES
    groups: GroupOutcomes = {}
    if all(outcome.is_done for outcome in outcomes):
        groups = restoring.set_groups(plan)
        if code == DONE and not all(one.outcome in SET for some in groups.values() for one in some):
            code = DIFFERENCES
    return _Ended(outcomes=outcomes, took=took, code=code, stopped=shown.stopped(outcomes), groups=groups)


def exit_code(outcomes: Sequence[RestoreOutcome], signals: Collection[int], *, follow: bool) -> int:
    """`signals`: the received ones. Ctrl-C does not count for a restore that had ended already."""
    is_cut_short = follow or not all(outcome.is_done or outcome.failed for outcome in outcomes)
    if signal.SIGINT in signals and is_cut_short:
        return INTERRUPTED
    if not all(outcome.is_whole for outcome in outcomes):
        return DIFFERENCES
    return DONE if follow or all(outcome.is_done for outcome in outcomes) else FAILED


# --- arguments


def _conflict_kind(name: str) -> ConflictKind:
    from replicator.restore.conflicts import ACCEPT_BY_NAME, ACCEPTED, ConflictKind

    if name not in ACCEPT_BY_NAME:
        names = [kind for kind in ACCEPTED if kind in ACCEPT_BY_NAME]
        raise typer.BadParameter(f"--accept {name!r}: may be {', '.join(names)}")
    return ConflictKind(name)
