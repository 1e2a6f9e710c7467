"""`replicator gc`: remove what retention no longer keeps, and segments that larger ones replace."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from formats.errors import ReplicatorError
from replicator.commands.compact import print_report, report_json
from replicator.services.command_logs import set_up_logs
from replicator.terminal.output import (
    DIFFERENCES,
    FAILED,
    AsJson,
    ConfigFile,
    bars,
    ended_by_signal,
    load_config,
    print_json,
    print_text,
    size_text,
    spark_if,
)

if TYPE_CHECKING:
    from compaction.gc import GcReport
    from compaction.retention import Expiry
    from compaction.run import CompactionReport as CleaningReport
    from infra.spark.driver import SparkSettings
    from replicator.config import Config, S3Settings

COVERED = "--covered"

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed, each with its reason.")]
TopicsOption = Annotated[
    list[str] | None, typer.Option("--topic", metavar="NAME", help="Clean up only this topic; may be repeated.")
]
Large = Annotated[bool, typer.Option("--allow-large", help="Also remove more of a topic than max_delete_percent.")]
Covered = Annotated[bool, typer.Option(COVERED, help="Also delete segments that larger ones provably contain.")]


def gc(  # noqa: PLR0917 -- options of a command
    config: ConfigFile = None,
    dry_run: DryRunOption = False,
    topic: TopicsOption = None,
    allow_large: Large = False,
    covered: Covered = False,
    spark: Annotated[bool, typer.Option("--spark", help="Prove what is removed on compaction.master.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove what [retention] of the file does not keep.

    Uploads that were never completed are aborted, and earlier generations of the catalogue, the watermarks, the groups
    and the heartbeats are thinned, too, like superseded copies of offset maps. Removals are recorded first, so that
    readers do not wait for removed segments. Exit code 1 when something failed, else 3 when something was refused (the
    reason is printed, and nothing of it is removed).
    """
    settings = load_config(config)
    set_up_logs(settings)
    _refuse_topics_without_rule(settings, topic or [])
    report, cleaned = _collect(
        settings,
        topic or [],
        spark_if(spark, settings),
        dry_run=dry_run,
        allow_large=allow_large,
        covered=covered,
        quiet=as_json,
    )
    if as_json:
        more = {"covered": None if cleaned is None else report_json(cleaned), "object_lock": locked(settings.s3)}
        print_json(_as_json(report) | more)
    else:
        for line in _lines(report, dry_run=dry_run):
            print_text(line)
        if cleaned is not None:
            print_report(cleaned, dry_run=dry_run)
        if (stays := locked(settings.s3)) is not None:
            print_text(stays)
    if report.failed or (cleaned is not None and cleaned.failed):
        raise typer.Exit(FAILED)
    if report.refused or report.kept or (cleaned is not None and cleaned.quarantined):
        raise typer.Exit(DIFFERENCES)


def _refuse_topics_without_rule(settings: Config, topics: list[str]) -> None:
    from formats.topic_selection import select

    if settings.retention is None:
        return
    known = select(topics, settings.retention.topics, settings.own_topics)
    if unknown := [topic for topic in topics if topic not in known]:
        raise typer.BadParameter(f"no rule of [retention.topics] is for {', '.join(unknown)}: kept for ever")


def _collect(
    settings: Config,
    topics: list[str],
    spark: SparkSettings | None,
    *,
    dry_run: bool,
    allow_large: bool,
    covered: bool,
    quiet: bool,
) -> tuple[GcReport, CleaningReport | None]:
    from replicator.services.retention import Retention

    with (
        bars(quiet=quiet or spark is None) as begin,
        Retention(settings, spark=spark, progress=begin("rows")) as retention,
        ended_by_signal(retention.stop),
    ):
        report = retention.collect(topics, dry_run=dry_run, allow_large=allow_large)
        try:
            return report, retention.clean(topics, dry_run=dry_run) if covered else None
        except ReplicatorError as error:  # what was removed before is reported all the same
            report.failed[COVERED] = str(error)
            return report, None


# --- what is printed


def locked(settings: S3Settings) -> str | None:
    """What becomes of removed objects that are locked; None without Object Lock."""
    if settings.object_lock_mode is None or settings.object_lock_retention is None:
        return None
    from infra.settings.units import format_duration

    stays_until = format_duration(settings.object_lock_retention)
    return (
        f"Object Lock, {settings.object_lock_mode}: a removed object gets a delete marker. Its bytes stay, and cost "
        f"money, until {stays_until} after they were put; then the bucket's lifecycle rule for noncurrent versions may "
        "remove them"
    )


def _lines(report: GcReport, *, dry_run: bool) -> Iterator[str]:
    yield f"archive of {report.region}: {report.segments:,} segments, {size_text(report.size_bytes)}"
    for plan in report.plans if dry_run else report.removed:
        count, size = len(plan.deletions), size_text(plan.size_bytes)
        yield f"{plan.source}: {'would remove' if dry_run else 'removed'} {count:,} segments, {size}"
        yield from (f"  {one.segment}: {one.reason}" for one in plan.deletions)
    for upload in report.uploads if dry_run else report.aborted:
        begun = upload.initiated_at.isoformat(timespec="seconds")
        yield f"{'would abort' if dry_run else 'aborted'} the upload of {upload.key}, begun {begun}, never completed"
    thinned = {kind: one.superseded for kind, one in report.generations.items()} if dry_run else report.thinned
    for kind, count in thinned.items():
        if count:
            of, name = report.generations[kind].stored, kind.removeprefix("_")
            yield f"{'would remove' if dry_run else 'removed'} {count:,} of {of:,} objects of the {name}"
    for segment, why in report.kept.items():
        yield f"kept, with all behind it: {segment}: {why}"
    for place, why in report.refused.items():
        yield f"refused: {place}: {why}"
    for what, why in report.failed.items():
        yield f"not done: {what}: {why}"
    for why in report.malformed:
        yield f"left alone: {why}"
    if dry_run:
        yield "nothing was changed"
    elif not (report.removed or report.aborted or report.thinned):
        yield "nothing was removed"


def _as_json(report: GcReport) -> dict[str, object]:
    return {
        "region": report.region,
        "segments": report.segments,
        "size_bytes": report.size_bytes,
        "planned": [_plan_json(plan) for plan in report.plans],
        "removed": [_plan_json(plan) for plan in report.removed],
        "abandoned_uploads": [upload.key for upload in report.uploads],
        "aborted_uploads": [upload.key for upload in report.aborted],
        "generations": {
            kind: {"stored": one.stored, "superseded": one.superseded, "superseded_bytes": one.superseded_bytes}
            for kind, one in report.generations.items()
        },
        "thinned_generations": dict(report.thinned),
        "kept": {str(segment): why for segment, why in report.kept.items()},
        "refused": report.refused,
        "failed": report.failed,
        "malformed": report.malformed,
    }


def _plan_json(plan: Expiry) -> dict[str, object]:
    return {
        "partition": str(plan.source),
        "size_bytes": plan.size_bytes,
        "segments": {str(one.segment): one.reason for one in plan.deletions},
    }
