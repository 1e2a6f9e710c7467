"""`replicator restore`: topics from the archive into this cluster, planned first, exactly once, resumable."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.commands.selecting import (
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
from replicator.commands.terminal import (
    DIFFERENCES,
    FAILED,
    AsJson,
    ConfigFile,
    complain,
    ended_by_signal,
    load_config,
    print_json,
    print_text,
    set_up_work,
    size_text,
    spark_if,
    table,
)

if TYPE_CHECKING:
    from ingress.restore_plan import Objection, PartitionPlan, RestorePlan
    from replicator.restore_worker import Outcome, Told

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
    spark: Annotated[bool, typer.Option("--spark", help="On [compaction] master: a task for each partition.")] = False,
    thaw: Annotated[bool, typer.Option("--thaw", help="Ask for archived objects (Glacier), and end.")] = False,
    thaw_days: Annotated[int, typer.Option("--thaw-days", min=1, help="How long they are to be readable.")] = 7,
    as_json: AsJson = False,
) -> None:
    """Restore topics from the archive into this cluster.

    Stopped or killed, it goes on where it stood when the same command is given again. Exit code 3 when something could
    not be restored, is corrupt or is missing; with --dry-run, when something speaks against it.
    """
    from replicator.config.units import parse_duration, parse_size
    from replicator.lifecycle import Stop
    from replicator.restore import Options, Restore, Wishes

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
    wishes = Wishes(
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
        if not dry_run:
            restoring.take_over()
        plan = restoring.plan()
        if dry_run:
            if as_json:
                print_json(plan_json(plan, rate))
            else:
                print_plan(plan, rate)
                print_sample(restoring.sample(plan, SAMPLE))
                print_text("nothing was written")
            raise typer.Exit(DIFFERENCES if plan.refused else 0)
        if thaw and any(topic.frozen for topic in plan.topics):
            count = restoring.thaw(plan, thaw_days)
            complain(f"asked for {count} archived objects; in some hours, the same command restores from them")
            raise typer.Exit(DIFFERENCES)
        if not as_json:
            print_plan(plan, rate)
        began = time.monotonic()
        with ended_by_signal(stop), _progress(plan, quiet=as_json) as (told, told_on_spark):
            outcomes = restoring.run(plan, told, told_on_spark)
        took = timedelta(seconds=time.monotonic() - began)
    if as_json:
        print_json(result_json(plan, selection.transforms, outcomes, took))
    else:
        print_result(outcomes, selection.transforms, took)
    if not all(outcome.is_whole for outcome in outcomes):
        raise typer.Exit(DIFFERENCES)
    if not follow and not all(outcome.is_done for outcome in outcomes):
        complain("stopped before the end; the same command goes on where this one stood")
        raise typer.Exit(FAILED)


# --- what the user says


def _objection(name: str) -> Objection:
    from ingress.restore_plan import ACCEPTED, Objection

    if name not in list(ACCEPTED):
        raise typer.BadParameter(f"--accept {name!r}: may be {', '.join(ACCEPTED)}")
    return Objection(name)


# --- what is printed


def print_plan(plan: RestorePlan, rate: int | None) -> None:
    print_text(f"restore {plan.id}")
    rows = [
        [str(p.source), str(p.target), _range(p), len(p.left), size_text(p.size_bytes), len(p.recorded), len(p.missing)]
        for p in plan.partitions
    ]
    print_text(table(["from", "to", "offsets left", "objects", "stored", "recorded gaps", "missing"], rows))
    for topic in plan.topics:
        if topic.facts is None:
            made = "".join(f", {name}={value}" for name, value in topic.configs.items())
            print_text(f"{topic.destination} is created: {topic.partition_count} partitions{made}")
    about = plan.lasts(rate).total_seconds()
    print_text(f"{plan.objects:_} objects, {size_text(plan.size_bytes)}, about {_shown_time(about)}")
    from replicator.restore import objections_text

    if lines := objections_text(plan):
        print_text("what speaks against it:\n" + "\n".join(lines))


def print_sample(changed: Sequence[tuple[Mapping[str, object], Mapping[str, object] | None]]) -> None:
    """What the functions of --filter and --map make of the first records."""
    for before, after in changed:
        print_text(f"record {before['offset']}: {before}")
        print_text(
            "  is left out" if after is None else "  stays as it is" if after == before else f"  becomes {after}"
        )


def print_result(outcomes: Sequence[Outcome], transforms: Sequence[str], took: timedelta) -> None:
    rows = [[o.source, o.target, o.records, size_text(o.size_bytes), o.next_offset, _state(o)] for o in outcomes]
    print_text(table(["from", "to", "records", "size", "next offset", "state"], rows))
    records, size_bytes = sum(o.records for o in outcomes), sum(o.size_bytes for o in outcomes)
    rate = size_bytes / max(took.total_seconds(), 0.001)
    print_text(
        f"{records:_} records, {size_text(size_bytes)} in {_shown_time(took.total_seconds())}, "
        f"{size_text(int(rate))} a second" + (f"; changed by {', '.join(transforms)}" if transforms else "")
    )
    for outcome in outcomes:
        for what in outcome.corrupt:
            print_text(f"corrupt: {what}")
        for start, end in outcome.missing:
            print_text(f"missing: {outcome.source} [{start},{end}]")
        if outcome.failed:
            print_text(f"not restored: {outcome.source} from offset {outcome.next_offset}: {outcome.failed}")


def _state(outcome: Outcome) -> str:
    if outcome.failed:
        return "failed"
    return "done" if outcome.is_done else "stopped"


def plan_json(plan: RestorePlan, rate: int | None) -> Mapping[str, object]:
    return {
        "id": plan.id,
        "checkpoint_topic": plan.checkpoint_topic,
        "objects": plan.objects,
        "size_bytes": plan.size_bytes,
        "about_seconds": plan.lasts(rate).total_seconds(),
        "refused": plan.refused,
        "objections": [_objected_json(o) for o in plan.objections],
        "topics": [
            {
                "topic": topic.life.place,
                "destination": topic.destination,
                "created": topic.facts is None,
                "partition_count": topic.partition_count,
                "configs": dict(topic.configs),
                "footers_read": topic.footers_read,
                "frozen": len(topic.frozen),
                "thawing": topic.thawing,
                "objections": [_objected_json(o) for o in topic.objections],
                "partitions": [
                    {
                        "source": str(p.source),
                        "partition": p.target.partition,
                        "offsets": None if p.offsets is None else [p.offsets.start, p.offsets.end],
                        "next_offset": p.next_offset,
                        "objects": len(p.left),
                        "size_bytes": p.size_bytes,
                        "recorded_gaps": [[g.start, g.end] for g in p.recorded],
                        "missing": [[g.start, g.end] for g in p.missing],
                    }
                    for p in topic.partitions
                ],
            }
            for topic in plan.topics
        ],
    }


def _objected_json(objected: object) -> Mapping[str, object]:
    from dataclasses import asdict

    return asdict(objected)  # type: ignore[call-overload, no-any-return]


def result_json(
    plan: RestorePlan, transforms: Sequence[str], outcomes: Sequence[Outcome], took: timedelta
) -> Mapping[str, object]:
    from dataclasses import asdict

    return {
        "id": plan.id,
        "seconds": round(took.total_seconds(), 3),
        "records": sum(outcome.records for outcome in outcomes),
        "size_bytes": sum(outcome.size_bytes for outcome in outcomes),
        "transforms": list(transforms),
        "partitions": [{**asdict(outcome), "state": _state(outcome)} for outcome in outcomes],
    }


def _range(plan: PartitionPlan) -> str:
    if plan.offsets is None:
        return "nothing is stored"
    return "done" if plan.is_done else f"{plan.next_offset}-{plan.offsets.end}"


def _shown_time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else str(timedelta(seconds=round(seconds)))


@contextmanager
def _progress(plan: RestorePlan, *, quiet: bool) -> Iterator[tuple[Told, Callable[[int, int], None]]]:
    """A bar, where somebody looks; on Spark it moves with each partition that is over."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None, lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("restored"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    sizes = {partition.key: partition.size_bytes for partition in plan.partitions}  # summed up once, not in every turn
    whole = max(sum(sizes.values()), 1)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("restored", total=whole)
        yield (
            lambda partitions: bar.update(
                task, completed=int(sum(p.share * sizes.get(p.plan.key, 0) for p in partitions))
            ),
            lambda done, total: bar.update(task, completed=whole * done // total),
        )
