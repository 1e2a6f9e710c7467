"""`replicator verify`: prove that the archive is whole and equals the topics."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from formats.errors import ReplicatorError
from replicator.commands.restore_output import REMEDY
from replicator.terminal.options import (
    AnyTopics,
    From,
    IncarnationOption,
    Offsets,
    Partitions,
    Region,
    Renames,
    Until,
    parsed,
    selected,
)
from replicator.terminal.output import (
    DIFFERENCES,
    FAILED,
    AsJson,
    ConfigFile,
    bars,
    complain,
    load_config_of_archive,
    load_other_config,
    print_json,
    print_text,
    set_up_work,
    spark_if,
)
from replicator.terminal.written_file import require_writable

if TYPE_CHECKING:
    from replicator.config import Config
    from replicator.verify.report import Report
    from replicator.verify.verify import Verification

KEY_VARIABLE = "REPLICATOR_REPORT_KEY"


def verify(  # noqa: PLR0917 -- options of a command
    topics: AnyTopics = None,
    config: ConfigFile = None,
    region: Region = None,
    rename: Renames = None,
    partition: Partitions = None,
    offsets: Offsets = None,
    from_: From = None,
    until: Until = None,
    incarnation: IncarnationOption = None,
    archive: Annotated[bool, typer.Option(help="Read every object of the archive.")] = True,
    source: Annotated[
        Path | None, typer.Option("--source", metavar="FILE", help="Compare with the topics of this file's cluster.")
    ] = None,
    target: Annotated[
        Path | None, typer.Option("--target", metavar="FILE", help="Compare with the copies in this file's cluster.")
    ] = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="Compare --source with --target instead of the archive.")
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="FILE", help="Skip unchanged objects that this file lists as proven."),
    ] = None,
    read_again: Annotated[
        str, typer.Option("--read-again", metavar="DURATION", help="Read objects again that were proven this long ago.")
    ] = "30d",
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write the report to this file, too.")
    ] = None,
    check_report: Annotated[
        Path | None, typer.Option("--check-report", metavar="FILE", help="Only check that a report is unchanged.")
    ] = None,
    as_reported: Annotated[
        bool,
        typer.Option(
            "--as-reported/--as-stored",
            help=r"Whether what egress reported as archived an hour ago has to be here, too. It has not where \[sync] "
            "copies some topics or levels only.",
        ),
    ] = True,
    record: Annotated[
        bool, typer.Option("--record/--no-record", help="Record in the bucket what was proven, for `status`.")
    ] = True,
    spark: Annotated[bool, typer.Option("--spark", help="Run a task for each partition on compaction.master.")] = False,
    as_json: AsJson = False,
) -> None:
    """Prove that the archive is whole, and equals the topics.

    Every object matches its key and footer, to the last record; together they leave no hole; with --source and
    --target, they equal the topics. No earlier result is trusted, except those of --state.

    Reports are chained digests, signed when $REPLICATOR_REPORT_KEY is set. Exit code 3 when anything differs; 1 when a
    partition could not be verified.
    """
    from infra.settings.units import parse_duration

    key = os.environ.get(KEY_VARIABLE, "").encode()
    if check_report is not None:
        _check(check_report, key)
        return
    if direct and (source is None or target is None):
        raise typer.BadParameter("--direct compares the topics of --source with those of --target: give both")
    require_writable("--report", report)
    require_writable("--state", state, replaced=True)
    settings = load_config_of_archive(config)
    set_up_work(settings)  # before what loads Arrow
    from replicator.verify.proven import ProvenObjects
    from replicator.verify.report import line_of
    from replicator.verify.scope import ARCHIVE, DIRECT, SOURCE, TARGET, VerifyScope
    from replicator.verify.spark_task import tasks_on
    from replicator.verify.verify import Verification

    chosen = selected(
        settings, topics or ["^.*"], region, rename, partition, offsets, from_, until, incarnation, transforms=()
    )
    whole = VerifyScope(kind=ARCHIVE, read_again_after=parsed(parse_duration, read_again), as_reported=as_reported)
    scopes = [
        *([whole] if archive else []),
        *([VerifyScope(kind=SOURCE, cluster=load_other_config(source))] if source is not None and not direct else []),
        *([VerifyScope(kind=TARGET, cluster=load_other_config(target))] if target is not None and not direct else []),
        *(
            [VerifyScope(kind=DIRECT, cluster=load_other_config(target), source_cluster=load_other_config(source))]
            if direct
            else []
        ),
    ]
    if not scopes:
        raise typer.BadParameter("--no-archive leaves nothing to verify: pass --source, --target, or both")
    on = spark_if(spark, settings)
    s3 = settings.s3
    where = f"s3://{s3.bucket}/{s3.prefix}{f' at {s3.endpoint_url}' if s3.endpoint_url else ''}"
    proven = ProvenObjects.of(state, where)
    with Verification(settings, chosen) as verification:
        with bars(quiet=as_json) as begin:
            found = verification.run(
                scopes,
                proven=proven,
                elsewhere=None if on is None else tasks_on(on),
                key=key,
                progress=lambda scope: begin(f"{scope.kind}, partitions"),
                on_entry=lambda entry: None if as_json else print_text(line_of(entry)),
            )
        if record:
            _record(verification, found, settings)
    if as_json:
        print_json(found.content)
    else:
        if found.has_corrupt:
            print_text(REMEDY)
        print_text(found.summary)
    if report is not None:  # last: what was found is printed, even if the disk is full
        report.write_text(json.dumps(found.content, indent=1, ensure_ascii=False), encoding="utf-8")
    if found.has_failed:
        raise typer.Exit(FAILED)
    if not found.is_equal:
        raise typer.Exit(DIFFERENCES)


def _record(verification: Verification, found: Report, settings: Config) -> None:
    """Record the proof for `status`. Without write permission, print a message only."""
    from infra.archive.proofs import proven_prefix

    try:
        verification.record(found)
    except ReplicatorError as error:
        where = f"s3://{settings.s3.bucket}/{proven_prefix(settings.s3.prefix, settings.region)}*"
        complain(
            f"`status` will not know of this proof: {error}. Allow s3:GetObject, s3:PutObject and s3:DeleteObject "
            f"on {where}, or pass --no-record"
        )


def _check(file: Path, key: bytes) -> None:
    from replicator.verify.report import check

    try:
        content: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"--check-report {file}: not a report: {error}") from error
    check(content, key)
    state = "everything was as it should be" if content["equal"] else "not everything was as it should be"
    signed = "signed with the key" if key else "signature not checked: no key" if content["signature"] else "not signed"
    print_text(f"the report of {content['at']} is unchanged, {signed}; {state}")
