"""`replicator repair-segment`: take a damaged or missing segment from a copy."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from formats.errors import CorruptSegment, ForeignSegment, MalformedKey, SegmentsDiffer
from replicator.terminal.output import (
    DIFFERENCES,
    AsJson,
    ConfigFile,
    complain,
    count_text,
    load_config,
    print_json,
    print_text,
    set_up_work,
)

if TYPE_CHECKING:
    from infra.archive.segment_repair import RepairReport


def repair_segment(
    segment: Annotated[
        str,
        typer.Argument(metavar="SEGMENT", help="Its key, or REGION/TOPIC/PARTITION/LEVEL/START-END."),
    ],
    *,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="The copy: a bucket, s3://BUCKET/PREFIX, the configuration of its region (FILE.toml), or a FILE.",
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only prove the copy; change nothing.")] = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Take a damaged or missing segment from a copy.

    The copy is decoded first, to its last record, and must be of this topic and partition. A damaged object's bytes are
    kept below _control/v1/set-aside/ before it is removed; a sound object is never replaced. Interrupted, it goes on
    when it is run again. Exit code 3 when the copy is not sound, or is not of this archive: then nothing was changed.
    """
    settings = load_config(config)
    set_up_work(settings)  # before what loads Arrow
    from replicator.segment_repair import SegmentRepairs

    with SegmentRepairs(settings) as repairs:
        try:
            wanted = repairs.segment(segment)
        except MalformedKey as error:
            raise typer.BadParameter(f"SEGMENT: {error}; `verify` and `compact` print the names of segments") from error
        try:
            report = repairs.repair(wanted, source, dry_run=dry_run)
        except (CorruptSegment, ForeignSegment, SegmentsDiffer) as error:
            complain(str(error))
            raise typer.Exit(DIFFERENCES) from error
    if as_json:
        print_json(report_json(report))
    else:
        print_report(report)


def report_json(report: RepairReport) -> dict[str, object]:
    return {
        "segment": str(report.segment),
        "state": report.state.value,
        "why": report.why,
        "action": report.action.value,
        "records": report.records,
        "digest": report.digest,
        "set_aside": report.set_aside,
    }


def print_report(report: RepairReport) -> None:
    was = f"{report.state.value}{f' ({report.why})' if report.why else ''}"
    print_text(f"{report.segment} was {was}: {report.action.value}")
    if report.digest:
        print_text(f"  the copy is proven: {count_text(report.records)} records, digest {report.digest}")
    if report.set_aside:
        print_text(f"  the damaged bytes are kept at {report.set_aside}")
