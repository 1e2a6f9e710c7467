"""`replicator verify`: is the archive whole, and is it what the topics hold?"""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from formats.errors import ReplicatorError
from replicator.commands.restore_output import REMEDY
from replicator.terminal.options import (
    AnyTopics,
    From,
    Incarnation,
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
    AsJson,
    ConfigFile,
    bars,
    complain,
    load_config,
    print_json,
    print_text,
    set_up_work,
    spark_if,
)

if TYPE_CHECKING:
    from formats.segment import Segment
    from replicator.config import Config
    from replicator.verify.proven import Proven

SAVE_EVERY = 30.0  # seconds; the file is written whole
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
    incarnation: Incarnation = None,
    archive: Annotated[bool, typer.Option(help="Read every object of the archive.")] = True,
    source: Annotated[
        Path | None, typer.Option("--source", metavar="FILE", help="Compare with the topics of this file's cluster.")
    ] = None,
    target: Annotated[
        Path | None, typer.Option("--target", metavar="FILE", help="Compare with the copies in this file's cluster.")
    ] = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="Compare those two with each other, instead of each with the archive.")
    ] = False,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="FILE", help="Objects proven before: unchanged ones are skipped.")
    ] = None,
    read_again: Annotated[
        str, typer.Option("--read-again", metavar="DURATION", help="Age from which they are read again.")
    ] = "30d",
    report: Annotated[Path | None, typer.Option("--report", metavar="FILE", help="Write the report here, too.")] = None,
    check_report: Annotated[
        Path | None, typer.Option("--check-report", metavar="FILE", help="Only see that a report is unchanged.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record/--no-record", help="Leave word in the bucket, for `status`, of what was proven.")
    ] = True,
    spark: Annotated[bool, typer.Option("--spark", help="On compaction.master: a task for each partition.")] = False,
    as_json: AsJson = False,
) -> None:
    """Prove that the archive is whole, and is what topics hold.

    Every object is what its key and footer say, to the last record; together they leave no hole; and, where asked, they
    are what the topics hold. No earlier record is believed.

    Reports are chained digests, signed when $REPLICATOR_REPORT_KEY is set. Exit code 3 when anything is not as it
    should be.
    """
    from formats.segment import parse_key
    from infra.runtime.lifecycle import SystemClock
    from infra.settings.units import parse_duration
    from replicator.services.wiring import program
    from replicator.verify.proven import load_proven, save_proven
    from replicator.verify.report import line_of
    from replicator.verify.report import report as report_of
    from replicator.verify.spark_task import ARCHIVE, DIRECT, SOURCE, TARGET, VerifyScope, VerifyTask, here, on_spark

    key = os.environ.get(KEY_VARIABLE, "").encode()
    if check_report is not None:
        _check(check_report, key)
        return
    if direct and (source is None or target is None):
        raise typer.BadParameter("--direct compares the topics of --source with those of --target: give both")
    settings = load_config(config)
    set_up_work(settings)
    chosen = selected(
        settings, topics or ["^.*"], region, rename, partition, offsets, from_, until, incarnation, transforms=()
    )
    entries: list[Mapping[str, Any]] = []
    began = SystemClock().now()
    looks = [
        *([VerifyScope(kind=ARCHIVE, read_again_after=parsed(parse_duration, read_again))] if archive else []),
        *([VerifyScope(kind=SOURCE, cluster=load_config(source))] if source is not None and not direct else []),
        *([VerifyScope(kind=TARGET, cluster=load_config(target))] if target is not None and not direct else []),
        *([VerifyScope(kind=DIRECT, cluster=load_config(target), beside=load_config(source))] if direct else []),
    ]
    if not looks:
        raise typer.BadParameter("--no-archive leaves nothing to look at: say --source, --target, or both")
    on = spark_if(spark, settings)
    proven = load_proven(state) if state is not None else {}
    saved_at = time.monotonic()
    with bars(quiet=as_json) as begin, _kept(state, proven):
        for look in looks:
            told = begin(f"{look.kind}, partitions")
            found = (
                here(settings, chosen, look, proven, told)
                if on is None
                else on_spark(on, VerifyTask(settings, chosen, look), proven, told)
            )
            for entry, read in found:
                entries.append(entry)
                proven.update(read)
                for name in (*entry.get("corrupt", ()), *entry.get("unsettled", ())):
                    proven.pop(parse_key("", name), None)
                if not as_json:
                    print_text(line_of(entry))
                if state is not None and read and time.monotonic() - saved_at > SAVE_EVERY:
                    save_proven(state, proven)  # a run of hours that is stopped was not for nothing
                    saved_at = time.monotonic()
    if record:
        _record(settings, entries, began)
    said = report_of(entries, SystemClock().now(), program=program(), key=key)
    if report is not None:
        report.write_text(json.dumps(said, indent=1, ensure_ascii=False), encoding="utf-8")
    if as_json:
        print_json(said)
    else:
        bad = sum(not entry["equal"] for entry in said["entries"])
        result = (
            "everything is as it should be" if said["equal"] else f"{bad} of {len(entries)} are not as they should be"
        )
        if any(entry.get("corrupt") for entry in entries):
            print_text(REMEDY)
        print_text(f"{result}; chain {said['chain'][:16]}, {'signed' if key else 'not signed'}")
    if not said["equal"]:
        raise typer.Exit(DIFFERENCES)


@contextmanager
def _kept(state: Path | None, proven: Mapping[Segment, Proven]) -> Iterator[None]:
    """Saved whole at the end, however that comes."""
    from replicator.verify.proven import save_proven

    try:
        yield
    finally:
        if state is not None:
            save_proven(state, proven)


def _record(settings: Config, entries: Sequence[Mapping[str, Any]], at: datetime) -> None:
    """For `status`. Whoever may only read is told, and nothing else changes by it."""
    from formats.segment import parse_source
    from infra.archive.proofs import Proof, ProofStore, proven_prefix
    from infra.runtime.lifecycle import Stop
    from replicator.services.wiring import archive_objects

    found = {
        parse_source(entry["source"]): Proof(
            at=at, next_offset=entry["offsets"][1] + 1 if entry["offsets"] else 0, is_whole=entry["equal"]
        )
        for entry in entries
        if entry["kind"] == "archive"
    }
    with ExitStack() as opened:
        objects = archive_objects(settings.s3, Stop(), opened)
        try:
            ProofStore(objects, settings.s3.prefix, settings.region).record(found)
        except ReplicatorError as error:
            where = f"s3://{settings.s3.bucket}/{proven_prefix(settings.s3.prefix, settings.region)}*"
            complain(
                f"`status` will not know of this proof: {error}. Allow s3:GetObject, s3:PutObject and s3:DeleteObject "
                f"on {where}, or say --no-record"
            )


def _check(file: Path, key: bytes) -> None:
    from replicator.verify.report import check

    try:
        said: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"--check-report {file}: not a report: {error}") from error
    check(said, key)
    state = "everything was as it should be" if said["equal"] else "not everything was as it should be"
    signed = "signed with the key" if key else "signature not checked: no key" if said["signature"] else "not signed"
    print_text(f"the report of {said['at']} is unchanged, {signed}; {state}")
