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
    set_up_logs,
    size_text,
    table,
)

if TYPE_CHECKING:
    from formats.transform import Transform
    from ingress.restore_plan import Objection, PartitionPlan, RestorePlan
    from ingress.restoring import Partition

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
    as_json: AsJson = False,
) -> None:
    """Restore topics from the archive into this cluster.

    Stopped or killed, it goes on where it stood when the same command is given again. Exit code 3 when something could
    not be restored, is corrupt or is missing; with --dry-run, when something speaks against it.
    """
    from formats.transform import load as load_transform
    from replicator.lifecycle import Stop
    from replicator.restore import Restore, Wishes

    settings = load_config(config)
    set_up_logs(settings)
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
    transform = load_transform(keep or (), change or ())
    rate = None if max_rate is None else _size(max_rate)
    stop = Stop()
    with Restore(
        settings,
        selection,
        restore_id=restore_id,
        wishes=wishes,
        transform=transform,
        max_rate=rate,
        follow=_duration(every) if follow else None,
        stop=stop,
    ) as restoring:
        if not dry_run:
            restoring.take_over()
        plan = restoring.plan()
        if dry_run:
            _show_plan(plan, rate, transform, as_json=as_json)
            raise typer.Exit(DIFFERENCES if plan.refused else 0)
        if not as_json:
            print_plan(plan, rate)
        began = time.monotonic()
        with ended_by_signal(stop), _progress(plan, quiet=as_json) as told:
            partitions = restoring.run(plan, told)
        took = timedelta(seconds=time.monotonic() - began)
    if as_json:
        print_json(result_json(plan, partitions, took))
    else:
        print_result(partitions, took)
    if any(p.failed or p.corrupt or p.passed for p in partitions):
        raise typer.Exit(DIFFERENCES)
    if not follow and not all(p.is_over for p in partitions):
        complain("stopped before the end; the same command goes on where this one stood")
        raise typer.Exit(FAILED)


# --- what the user says


def _objection(name: str) -> Objection:
    from ingress.restore_plan import ACCEPTED, Objection

    if name not in list(ACCEPTED):
        raise typer.BadParameter(f"--accept {name!r}: may be {', '.join(ACCEPTED)}")
    return Objection(name)


def _size(text: str) -> int:
    from replicator.config.units import parse_size

    return parsed(parse_size, text)


def _duration(text: str) -> timedelta:
    from replicator.config.units import parse_duration

    return parsed(parse_duration, text)


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


def _show_plan(plan: RestorePlan, rate: int | None, _transform: Transform, *, as_json: bool) -> None:
    if as_json:
        print_json(plan_json(plan, rate))
    else:
        print_plan(plan, rate)
        print_text("nothing was written")


def print_result(partitions: Sequence[Partition], took: timedelta) -> None:
    rows = [
        [str(p.plan.source), str(p.plan.target), p.records, size_text(p.size_bytes), p.next_offset, _state(p)]
        for p in partitions
    ]
    print_text(table(["from", "to", "records", "size", "next offset", "state"], rows))
    records, size_bytes = sum(p.records for p in partitions), sum(p.size_bytes for p in partitions)
    rate = size_bytes / max(took.total_seconds(), 0.001)
    print_text(
        f"{records:_} records, {size_text(size_bytes)} in {_shown_time(took.total_seconds())}, "
        f"{size_text(int(rate))} a second"
    )
    for partition in partitions:
        for what in partition.corrupt:
            print_text(f"corrupt: {what}")
        for offsets in partition.passed:
            print_text(f"missing: {partition.plan.source} {offsets}")
        if partition.failed:
            print_text(f"not restored: {partition.plan.source} from offset {partition.next_offset}: {partition.failed}")


def _state(partition: Partition) -> str:
    if partition.failed:
        return "failed"
    return "done" if partition.is_done else "stopped"


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


def result_json(plan: RestorePlan, partitions: Sequence[Partition], took: timedelta) -> Mapping[str, object]:
    return {
        "id": plan.id,
        "seconds": round(took.total_seconds(), 3),
        "records": sum(p.records for p in partitions),
        "size_bytes": sum(p.size_bytes for p in partitions),
        "partitions": [
            {
                "source": str(p.plan.source),
                "target": str(p.plan.target),
                "records": p.records,
                "size_bytes": p.size_bytes,
                "next_offset": p.next_offset,
                "state": _state(p),
                "failed": p.failed,
                "corrupt": p.corrupt,
                "missing": [[o.start, o.end] for o in p.passed],
            }
            for p in partitions
        ],
    }


def _range(plan: PartitionPlan) -> str:
    if plan.offsets is None:
        return "nothing is stored"
    return "done" if plan.is_done else f"{plan.next_offset}-{plan.offsets.end}"


def _shown_time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else str(timedelta(seconds=round(seconds)))


@contextmanager
def _progress(plan: RestorePlan, *, quiet: bool) -> Iterator[Callable[[Sequence[Partition]], None]]:
    """A bar, where somebody looks."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("restored"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("restored", total=max(plan.size_bytes, 1))
        yield lambda partitions: bar.update(task, completed=int(sum(p.share * p.plan.size_bytes for p in partitions)))
